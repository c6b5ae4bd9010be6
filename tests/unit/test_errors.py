"""Status codes: one meaning each, and each is told to clients."""

from __future__ import annotations

import grpc
import pytest

from peloton.errors import ERRORS, InvalidArgument
from services.grpc_errors import DETAILS_CHARS_MAX, details_of
from tests.unit.tidy import ROOT

TABLE = (ROOT / "docs" / "operations.md").read_text().split("## Status codes")[1].split("\n## ")[0]


@pytest.mark.parametrize("code", [*ERRORS, "DEADLINE_EXCEEDED"])
def test_every_code_is_in_the_table_of_clients(code: str) -> None:
    """With whose fault it is and whether the call may be repeated."""
    rows = [line.split("|") for line in TABLE.splitlines() if line.startswith(f"| {code}")]

    assert rows
    assert all(whose.strip() and repeat.strip() for _, _, whose, repeat, *_ in rows)


def test_codes_are_those_of_grpc() -> None:
    """Each by its own class."""
    assert {code: type(error) for code, error in ERRORS.items()} == dict.fromkeys(ERRORS, type)
    assert set(ERRORS) <= {code.name for code in grpc.StatusCode}


def test_no_status_outgrows_a_header() -> None:
    """Its text is cut, and says how long it was; what fits is whole."""
    fits = "n" * DETAILS_CHARS_MAX

    assert fits == details_of(InvalidArgument(fits))
    assert f"{fits}... (50,000,000 characters)" == details_of(InvalidArgument("n" * 50_000_000))
