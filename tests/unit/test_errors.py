"""Status codes: each has one meaning, and is documented for clients."""

from __future__ import annotations

from typing import Any, cast

import grpc
import grpc.aio
import pytest

from peloton.errors import ERRORS, InvalidArgument
from services.servers.grpc_errors import DETAILS_BYTES_MAX, details_of
from services.servers.grpc_status import ErrorsToStatus
from tests.unit.tidy import ROOT

TABLE = (ROOT / "docs" / "operations.md").read_text().split("## Status codes")[1].split("\n## ")[0]


@pytest.mark.parametrize("code", [*ERRORS, "DEADLINE_EXCEEDED"])
def test_every_code_is_in_the_table_of_clients(code: str) -> None:
    """Every code has the party at fault, and whether the call may be repeated."""
    rows = [line.split("|") for line in TABLE.splitlines() if line.startswith(f"| {code}")]

    assert rows
    assert all(whose.strip() and repeat.strip() for _, _, whose, repeat, *_ in rows)


def test_codes_are_those_of_grpc() -> None:
    """Each code has its own class."""
    assert {code: type(error) for code, error in ERRORS.items()} == dict.fromkeys(ERRORS, type)
    assert set(ERRORS) <= {code.name for code in grpc.StatusCode}


@pytest.mark.parametrize(
    ("letter", "sent"), [("n", 1), (" ", 1), ("~", 1), ("%", 3), ("\n", 3), ("ж", 6), ("漢", 9), ("🚀", 12)]
)
def test_no_status_outgrows_a_header(letter: str, sent: int) -> None:
    """A long text is cut by its bytes as sent, and has its length; a text that fits is whole."""
    fits = letter * (DETAILS_BYTES_MAX // sent)
    rest = f"... ({len(fits) + 1:,} characters)"

    assert fits == details_of(InvalidArgument(fits))
    assert letter * ((DETAILS_BYTES_MAX - len(rest)) // sent) + rest == details_of(InvalidArgument(fits + letter))


def test_a_huge_text_is_cut() -> None:
    """The count of characters fits within the bound."""
    rest = "... (50,000,000 characters)"

    assert "n" * (DETAILS_BYTES_MAX - len(rest)) + rest == details_of(InvalidArgument("n" * 50_000_000))


class Refusing:
    """Each method refuses its request, and quotes all of it."""

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        async def refuse(request: bytes, context: Any) -> bytes:
            raise InvalidArgument(request.decode())

        return grpc.unary_unary_rpc_method_handler(cast(Any, refuse))


@pytest.mark.parametrize("letter", ["n", "%", "ж", "漢", "🚀"])
async def test_a_long_status_arrives(letter: str) -> None:
    """A client receives the code and the cut text, whatever the alphabet."""
    server = grpc.aio.server(interceptors=[ErrorsToStatus("test")])
    server.add_generic_rpc_handlers((cast(Any, Refusing()),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    text = letter * 20_000
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await cast(Any, channel.unary_unary("/any/Refuse"))(text.encode())
    finally:
        await server.stop(None)

    assert (grpc.StatusCode.INVALID_ARGUMENT, details_of(InvalidArgument(text))) == (
        caught.value.code(),
        caught.value.details(),
    )
