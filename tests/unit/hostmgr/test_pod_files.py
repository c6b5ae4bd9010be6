"""Files of pods that the host manager reads for the api."""

from __future__ import annotations

from typing import Any, cast

import grpc
import pytest

from peloton.api.private import hostmgr_pb2 as pb
from peloton.errors import NotFound
from services.hostmgr.driver import Capabilities, FilePiece, PodOnHost
from services.hostmgr.servicer import HostsServicer

POD = "91b1b8e5-2ba8-41e7-bc23-0242ac11000d-3-2"


class Driver:
    """Of a cluster that serves one file of ten bytes."""

    def __init__(self) -> None:
        self.capabilities = Capabilities(serves_files=True)

    def read_file(self, pod: PodOnHost, path: str, offset: int, follow: bool) -> FilePiece:
        if path == "broken":
            raise ConnectionError("connection reset")
        if path != "stdout":
            raise NotFound(f"pod {pod.pod_id} has no file {path}")
        return FilePiece(b"0123456789"[offset:], not follow)


class Core:
    def __init__(self) -> None:
        self.driver = Driver()


class Context:
    """Keeps the status of a call that is refused."""

    def abort(self, code: grpc.StatusCode, text: str) -> None:
        raise PermissionError(code.name, text)


@pytest.fixture
def core() -> Core:
    return Core()


def read(core: Core, **fields: Any) -> pb.ReadFileResponse:
    servicer = HostsServicer(cast("Any", core), cast("Any", None), cast("Any", None))
    return servicer.ReadFile(pb.ReadFileRequest(**{"pod_id": POD, **fields}), cast("Any", Context()))


def test_a_piece_of_a_file(core: Core) -> None:
    """From the byte that is wanted, and whether anything follows."""
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
    """Whose fault that is."""
    with pytest.raises(PermissionError, match=code) as refused:
        read(core, **fields)
    assert text in refused.value.args[1]


def test_a_cluster_without_files(core: Core) -> None:
    """It says so."""
    core.driver.capabilities = Capabilities()
    with pytest.raises(PermissionError, match="UNIMPLEMENTED"):
        read(core, path="stdout")
