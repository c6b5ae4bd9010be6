"""The complete server: reflection, health, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from peloton.api.service_names import EXPLAIN_SERVICE, JOB_MANAGER, RESOURCE_MANAGER, SERVED, TASK_MANAGER
from peloton.errors import Aborted, ResourceExhausted
from services.api.calls import WRITE_BYTES_MAX, WRITES_MAX, Calls
from services.api.server import ApiServer, start
from services.servers.grpc_errors import RETRY_KEYS
from services.servers.grpc_status import ErrorsToStatus
from tests.unit.api_service.fakes import RecordedWakes
from tests.unit.api_service.no_storage import NoStorage


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    wakes = RecordedWakes()
    server = await start(cast(Any, NoStorage()), wakes, lambda _: None, "127.0.0.1:0")
    yield server
    await server.stop(0)


@pytest.fixture
async def channel(api: ApiServer) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{api.port}") as channel:
        yield channel


async def test_reflection_lists_the_services(channel: grpc.aio.Channel) -> None:
    """Reflection lists every service under each of its names, and health."""
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
    call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
    listed = {service.name async for answer in call for service in answer.list_services_response.service}

    assert listed >= {
        *JOB_MANAGER,
        *TASK_MANAGER,
        *RESOURCE_MANAGER,
        *EXPLAIN_SERVICE,
        "peloton.api.v0.host.svc.HostService",
        "peloton.api.v0.update.svc.UpdateService",
        "peloton.api.v1alpha.job.stateless.svc.JobService",
        "peloton.api.v1alpha.pod.svc.PodService",
        "peloton.api.v1alpha.watch.svc.WatchService",
        "peloton.api.v1alpha.admin.svc.AdminService",
        "peloton.api.v1alpha.respool.ResourcePoolService",
        "peloton.api.v1alpha.host.svc.HostService",
        "peloton.private.hostmgr.hostsvc.InternalHostService",
    }
    assert "grpc.health.v1.Health" in listed


async def test_reflection_describes_a_short_name(channel: grpc.aio.Channel) -> None:
    """A generic client finds the methods of the name without a version."""
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
    request = reflection_pb2.ServerReflectionRequest(file_containing_symbol=JOB_MANAGER[0])
    answers = [answer async for answer in stub.ServerReflectionInfo(iter([request]))]

    assert b"GetActiveJobs" in answers[0].file_descriptor_response.file_descriptor_proto[0]


@pytest.mark.parametrize("service", ["", *SERVED])
async def test_health(channel: grpc.aio.Channel, service: str) -> None:
    """The process and each service are SERVING after the start."""
    stub: Any = health_pb2_grpc.HealthStub(channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))

    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_services_without_a_server(channel: grpc.aio.Channel) -> None:
    """Declared services without an implementation answer UNIMPLEMENTED."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await cast(Any, channel).unary_unary("/peloton.api.v0.job.svc.JobService/Create")(b"")

    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_unexpected_errors_are_internal(channel: grpc.aio.Channel, caplog: pytest.LogCaptureFixture) -> None:
    """An internal error is INTERNAL with a short text; the log has the traceback."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:  # this server has no storage
        await cast(Any, channel).unary_unary(f"/{JOB_MANAGER[0]}/GetActiveJobs")(b"")

    assert caught.value.code() == grpc.StatusCode.INTERNAL
    assert caught.value.details() == (
        "internal error in /peloton.api.job.JobManager/GetActiveJobs: TypeError; see the log of the api"
    )
    assert any(record.exc_info for record in caplog.records)


async def test_port_taken(api: ApiServer) -> None:
    """A second server on the same port fails with the address."""
    wakes = RecordedWakes()
    with pytest.raises(OSError, match=f"the api cannot listen on 127.0.0.1:{api.port}"):
        await start(cast(Any, NoStorage()), wakes, lambda _: None, f"127.0.0.1:{api.port}")


class Refusing:
    """A handler that raises an error under the interceptor."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        async def behaviour(request: bytes, context: Any) -> bytes:
            raise self._error

        return grpc.unary_unary_rpc_method_handler(cast(Any, behaviour))


@pytest.mark.parametrize(
    ("error", "code", "pushback"),
    [
        (Aborted("run 3 is over"), grpc.StatusCode.ABORTED, None),
        (ResourceExhausted("64 writes are in flight", 2.5), grpc.StatusCode.RESOURCE_EXHAUSTED, "2500"),
        (ResourceExhausted("the answer is too large"), grpc.StatusCode.RESOURCE_EXHAUSTED, None),
    ],
)
async def test_expected_errors_keep_their_code(error: Exception, code: grpc.StatusCode, pushback: str | None) -> None:
    """A PelotonError becomes the status of its class with its text; a temporary one has a retry time."""
    server = grpc.aio.server(interceptors=[ErrorsToStatus("api")])
    server.add_generic_rpc_handlers((cast(Any, Refusing(error)),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await cast(Any, channel).unary_unary("/any/Method")(b"")
    await server.stop(None)

    assert (caught.value.code(), caught.value.details()) == (code, str(error))
    trailing = dict(caught.value.trailing_metadata())
    assert [trailing.get(key) for key in RETRY_KEYS] == [pushback, pushback]


async def test_writes_are_bounded() -> None:
    """One write above the bound is refused at once; completed writes make way for others."""
    calls, gate = Calls(), asyncio.Event()
    waiting = [asyncio.create_task(calls.write(1, gate.wait)) for _ in range(WRITES_MAX)]
    await asyncio.sleep(0)
    with pytest.raises(
        ResourceExhausted, match=f"{WRITES_MAX} writes are in flight, the bound is {WRITES_MAX}: try again in 1.0 s"
    ):
        await calls.write(1, gate.wait)
    gate.set()
    await asyncio.gather(*waiting)

    assert await calls.write(1, gate.wait)
    await calls.close()


async def test_bytes_of_writes_are_bounded() -> None:
    """Large writes wait for each other, but a single write may have any size."""
    calls, gate = Calls(), asyncio.Event()
    first = asyncio.create_task(calls.write(WRITE_BYTES_MAX + 1, gate.wait))
    await asyncio.sleep(0)
    with pytest.raises(ResourceExhausted, match=r"the bound is 536,870,912: try again in 1\.0 s"):
        await calls.write(1, gate.wait)
    gate.set()

    assert await first
    await calls.close()


async def test_a_write_outlives_its_caller() -> None:
    """A cancelled caller does not cancel a write in progress."""
    calls, gate, ended = Calls(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await gate.wait()
        ended.set()

    caller = asyncio.create_task(calls.write(1, work))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    gate.set()
    await calls.close()

    assert ended.is_set()
