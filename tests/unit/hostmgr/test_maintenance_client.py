"""The client of workers for the maintenance of a host makes the calls of operators."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from peloton.api.v0.maintenance import maintenance_pb2 as pb
from peloton.api.v0.maintenance import maintenance_pb2_grpc
from peloton.errors import Aborted
from peloton.model.maintenance import MaintenanceAct
from services.hostmgr.client import HostManagerClient


class Operated(maintenance_pb2_grpc.MaintenanceServiceServicer):
    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str]]] = []

    def Complete(self, request: pb.CompleteRequest, context: Any) -> pb.CompleteResponse:
        self.asked.append(("complete", list(request.hostnames)))
        return pb.CompleteResponse()

    def Cancel(self, request: pb.CancelRequest, context: Any) -> pb.CancelResponse:
        self.asked.append(("cancel", list(request.hostnames)))
        return pb.CancelResponse()

    def Force(self, request: pb.ForceRequest, context: Any) -> pb.ForceResponse:
        context.abort(grpc.StatusCode.ABORTED, "host host1 is DRAINED: nothing is left to force")
        raise AssertionError("abort raises")


@pytest.fixture
def operated() -> Iterator[tuple[Operated, HostManagerClient]]:
    server, servicer = grpc.server(ThreadPoolExecutor(1)), Operated()
    maintenance_pb2_grpc.add_MaintenanceServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield servicer, HostManagerClient(lambda: channel)
    server.stop(None).wait()


def test_each_act_is_a_call_of_the_api(operated: tuple[Operated, HostManagerClient]) -> None:
    """The error has the message of the host manager."""
    servicer, client = operated
    client.steer("host1", MaintenanceAct.COMPLETE)
    client.steer("host1", MaintenanceAct.CANCEL)

    assert [("complete", ["host1"]), ("cancel", ["host1"])] == servicer.asked
    with pytest.raises(Aborted, match="nothing is left to force"):
        client.steer("host1", MaintenanceAct.FORCE)
