"""Files of pods that the host manager reads for the api, and commands in them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from peloton.api.private import hostmgr_pb2 as pb
from peloton.errors import NotFound, PelotonError, Unavailable, Unimplemented
from services.hostmgr.driver import Capabilities, CommandStart, Exchange, ExchangeAnswer, FilePiece, PodOnHost
from services.hostmgr.servicer import HostsServicer

POD = "91b1b8e5-2ba8-41e7-bc23-0242ac11000d-3-2"


class Driver:
    """The driver of a cluster that serves one file of ten bytes."""

    def __init__(self) -> None:
        self.capabilities = Capabilities(serves_files=True)
        self.exchanges: list[Exchange] = []

    def read_file(self, pod: PodOnHost, path: str, offset: int, follow: bool) -> FilePiece:
        if path == "broken":
            raise ConnectionError("connection reset")
        if path != "stdout":
            raise NotFound(f"pod {pod.pod_id} has no file {path}")
        return FilePiece(b"0123456789"[offset:], not follow)

    def exchange(self, pod: PodOnHost, exchange: Exchange) -> ExchangeAnswer:
        self.exchanges.append(exchange)
        if exchange.session == "broken":
            raise ConnectionError("connection reset")
        return ExchangeAnswer(b"out", b"err", 0 if exchange.ends_input else None, wants_input=True)


class Core:
    def __init__(self) -> None:
        self.driver = Driver()


@pytest.fixture
def core() -> Core:
    return Core()


def servicer_of(core: Core) -> HostsServicer:
    return HostsServicer(cast("Any", core), *[cast("Any", None)] * 4)


def read(core: Core, **fields: Any) -> pb.ReadFileResponse:
    return servicer_of(core).ReadFile(pb.ReadFileRequest(**{"pod_id": POD, **fields}), cast("Any", None))


def exchange(core: Core, **fields: Any) -> pb.ExchangeWithCommandResponse:
    request = pb.ExchangeWithCommandRequest(**{"pod_id": POD, "session": "s", **fields})
    return servicer_of(core).ExchangeWithCommand(request, cast("Any", None))


def test_a_piece_of_a_file(core: Core) -> None:
    """The piece starts at the requested byte and says whether more follows."""
    assert pb.ReadFileResponse(data=b"789", is_end=True) == read(core, path="stdout", offset=7)
    assert pb.ReadFileResponse() == read(core, path="stdout", offset=10, follow=True)


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"path": "core"}, "NOT_FOUND", f"pod {POD} has no file core"),
        ({"path": "broken"}, "UNAVAILABLE", f"file broken of pod {POD} cannot be read: connection reset"),
        ({"pod_id": "x", "path": "stdout"}, "INVALID_ARGUMENT", "x"),
    ],
)
def test_a_file_that_cannot_be_read(core: Core, fields: dict[str, str], code: str, text: str) -> None:
    """The status says whose fault the error is."""
    with pytest.raises(PelotonError) as refused:
        read(core, **fields)
    assert (code, True) == (refused.value.code, text in refused.value.message)


def test_a_cluster_without_files(core: Core) -> None:
    """The call fails with UNIMPLEMENTED."""
    core.driver.capabilities = Capabilities()
    with pytest.raises(Unimplemented):
        read(core, path="stdout")


def test_exchanges_with_a_command(core: Core) -> None:
    """All fields reach the driver; an exit code of zero is returned too."""
    start = pb.CommandStart(container="main", argv=["sort", "-u"], has_input=True, has_terminal=True)
    running = pb.ExchangeWithCommandResponse(stdout=b"out", stderr=b"err", wants_input=True)
    ended = pb.ExchangeWithCommandResponse(stdout=b"out", stderr=b"err", wants_input=True, exit_code=0)
    assert running == exchange(core, start=start, columns=80, rows=25)
    assert ended == exchange(core, number=1, data=b"x", ends_input=True)
    assert running == exchange(core, number=2, is_last=True)
    assert [
        Exchange("s", 0, CommandStart("main", ("sort", "-u"), True, True), terminal=(80, 25)),
        Exchange("s", 1, data=b"x", ends_input=True),
        Exchange("s", 2, is_last=True),
    ] == core.driver.exchanges


def test_a_command_whose_connection_breaks(core: Core) -> None:
    """The call may be repeated."""
    with pytest.raises(Unavailable) as refused:
        exchange(core, session="broken")
    assert f"command in pod {POD}: connection reset" == refused.value.message
