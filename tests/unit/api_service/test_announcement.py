"""Reports of processes without a database."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api.private import processes_pb2 as pb
from peloton.api.private.processes_pb2_grpc import ProcessesStub
from peloton.model.diagnosis import ProcessRecord
from peloton.release import read_version
from services import announcement
from services.announcement import announcing
from services.settings import Settings
from services.storage.storage import Storage
from services.tls.transport import PLAINTEXT


async def test_pages_and_bridge_report_until_they_end(storage: Storage, address: str) -> None:
    """The report is there soon after the start, without what is secret, and is deleted at the end."""
    settings = Settings(api=address, auth_oidc_issuer="https://u:secret@issuer", aurora_kafka_url="http://u:secret@k/t")
    found: list[ProcessRecord] = []

    async with asyncio.timeout(60), announcing(["web", "aurorabridge"], settings, PLAINTEXT):
        while not found:
            await asyncio.sleep(0.01)
            found = storage.processes.list_running(time.time_ns())

    assert [("web+aurorabridge", read_version())] == [(one.role, one.version) for one in found]
    assert {
        "PELOTON_AUTH_OIDC_ISSUER": "https://issuer", "PELOTON_AURORA_KAFKA_URL": "http://k/t",
        "PELOTON_AURORA_POOL": "/AuroraBridge", "PELOTON_WEB_SESSION_S": "43200",
    }.items() <= found[0].settings.items()  # fmt: skip
    assert "secret" not in str(found)
    assert [] == storage.processes.list_running(time.time_ns())


async def test_pages_serve_before_an_api_that_takes_no_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older api, and one that does not answer, change nothing."""
    monkeypatch.setattr(announcement, "PERIOD_S", 0.01)
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    for api in (f"127.0.0.1:{port}", "127.0.0.1:1"):
        async with asyncio.timeout(60), announcing(["web"], Settings(api=api), PLAINTEXT):
            await asyncio.sleep(0.1)
    await server.stop(None)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"role": "api"}, "role 'api' does not announce itself"),
        ({"process": ""}, "1 to 300 characters"),
        ({"process": "h\0"}, "no NUL"),
        ({"settings": {"x": "y" * 2_001}}, "at most 2,000 characters"),
        ({"settings": {str(number): "" for number in range(51)}}, "51 settings, at most 50"),
    ],
)
async def test_reports_are_bounded(
    storage: Storage, channel: grpc.aio.Channel, fields: dict[str, Any], fault: str
) -> None:
    """A report that no role makes is refused."""
    stub: Any = ProcessesStub(channel)
    with pytest.raises(grpc.aio.AioRpcError, match=fault) as refused:
        await stub.Announce(pb.AnnounceRequest(**{"process": "h:1", "role": "web", **fields}))
    assert grpc.StatusCode.INVALID_ARGUMENT is refused.value.code()
    assert [] == storage.processes.list_running(time.time_ns())
