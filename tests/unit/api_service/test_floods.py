"""The api under floods: callers that hold streams, calls and connections do not keep others out."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from peloton.api.v0.access import access_pb2
from services.access import shares
from services.access.shares import ANONYMOUS_CALLS_MAX, CALLER_SHARE
from services.api.server import RPCS_MAX
from services.servers.grpc_bounds import CONNECTIONS_MAX
from tests.doubles.floods import COUNTS, MIB, encode_message, encode_streams, holding, read_memory_mib
from tests.unit.api_service.test_access import Cluster, cluster, code_of, job  # noqa: F401, a fixture
from tests.waiting import timeout_s

HEALTH, REFLECTION = "/grpc.health.v1.Health", "/grpc.reflection.v1alpha.ServerReflection"
JOBS = "/peloton.api.v0.job.JobManager"
MEMORY_MIB = 300
"""Growth of the process with 3,000 hostile streams or connections, those of the test among it."""
ANSWER_S = 10.0
FLOODS = {
    "watches of health": (f"{HEALTH}/Watch", encode_message(b"")),
    "streams of reflection": (f"{REFLECTION}/ServerReflectionInfo", None),
    "calls that send no request": (f"{HEALTH}/Check", None),
    "calls whose request does not end": (f"{HEALTH}/Check", encode_message(b"x" * 100, 256 * MIB)),
    "calls that need credentials": (f"{JOBS}/Get", encode_message(b"x" * 100, 256 * MIB)),
}


async def check_honest(cluster: Cluster) -> None:  # noqa: F811
    """Check that probes, and users on new connections, are answered in time."""
    async with grpc.aio.insecure_channel(
        f"127.0.0.1:{cluster.port}", options=[("grpc.use_local_subchannel_pool", 1)]
    ) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        bound_s = timeout_s(ANSWER_S)
        probe = await health.Check(health_pb2.HealthCheckRequest(), timeout=bound_s, wait_for_ready=True)
        assert health_pb2.HealthCheckResponse.SERVING == probe.status
        who = await cluster.access.WhoAmI(access_pb2.WhoAmIRequest(), metadata=cluster.of("ada"), timeout=bound_s)
        assert "ada" == who.name
        assert "OK" == (await code_of(cluster.jobs.Create(job(), metadata=cluster.of("mia"), timeout=bound_s)))[0]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("flood", FLOODS)
async def test_users_are_served_while_streams_are_held(cluster: Cluster, flood: str, count: int) -> None:  # noqa: F811
    """Whatever callers without credentials hold, honest calls are answered, and all is released at the end."""
    await check_honest(cluster)
    before_mib, tasks = read_memory_mib(), len(asyncio.all_tasks())
    path, message = FLOODS[flood]
    connections = 10
    sent = encode_streams(path, count // connections, message)
    with holding(cluster.port, connections, sent):
        await asyncio.sleep(0.5)
        await check_honest(cluster)
        held = len(asyncio.all_tasks()) - tasks
        assert held < 2.5 * ANONYMOUS_CALLS_MAX, "each call has two tasks, and honest calls have some"
        assert read_memory_mib() - before_mib < MEMORY_MIB
    deadline_s = time.monotonic() + timeout_s()
    while len(asyncio.all_tasks()) > tasks + 4:
        assert time.monotonic() < deadline_s, len(asyncio.all_tasks())
        await asyncio.sleep(0.05)
    await check_honest(cluster)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("sent", [b"", b"PRI * HTTP/2.0\r\n", encode_streams("", 0)], ids=["silent", "half", "idle"])
async def test_users_are_served_while_connections_are_held(cluster: Cluster, sent: bytes, count: int) -> None:  # noqa: F811
    """Connections without a handshake, with half of one, and without calls keep no one out."""
    assert count < CONNECTIONS_MAX
    before_mib = read_memory_mib()
    with holding(cluster.port, count, sent):
        await check_honest(cluster)
        assert read_memory_mib() - before_mib < MEMORY_MIB
    await check_honest(cluster)


async def test_a_connection_without_a_handshake_ends(cluster: Cluster) -> None:  # noqa: F811
    """The server closes a connection whose handshake has not come within its time."""
    began_s = time.monotonic()
    with holding(cluster.port, 1) as (one,):
        one.settimeout(0)
        reader, writer = await asyncio.open_connection(sock=one)
        await asyncio.wait_for(reader.read(), timeout_s())
        writer.close()
    assert 8 < time.monotonic() - began_s


async def test_a_request_that_does_not_come_ends_the_call(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """A caller without credentials has seconds to send its request, and learns of the bound."""
    monkeypatch.setattr(shares, "ANONYMOUS_REQUEST_S", 0.2)
    check: Any = cluster.channel.stream_unary(f"{HEALTH}/Check")
    call = check()
    assert ("CANCELLED", "the request has not come within 0.2 s") == await code_of(call)
    assert ("INVALID_ARGUMENT", "the call has ended without a request") == await code_of(check(iter(())))


async def test_the_oldest_stream_without_credentials_gives_way(cluster: Cluster) -> None:  # noqa: F811
    """A stream that gives way ends with the bound and a time to retry; users' streams stay."""
    async with AsyncExitStack() as stack:
        request = health_pb2.HealthCheckRequest()
        health: Any = health_pb2_grpc.HealthStub(cluster.channel)
        own = health.Watch(request, metadata=cluster.of("ada"))
        stack.callback(own.cancel)
        await own.read()
        first = health.Watch(request)
        await first.read()
        others = [health.Watch(request) for _ in range(ANONYMOUS_CALLS_MAX)]
        for other in others:
            stack.callback(other.cancel)
            await other.read()
        code, text = await code_of(first.read())
        assert ("RESOURCE_EXHAUSTED", True) == (code, text.startswith("calls without credentials reach their bound"))
        assert not own.done()
        assert not others[-1].done()


async def test_a_user_has_a_part_of_the_calls(cluster: Cluster) -> None:  # noqa: F811
    """The call beyond the part is refused, also a stream; another user is served."""
    most = RPCS_MAX // CALLER_SHARE
    health: Any = health_pb2_grpc.HealthStub(cluster.channel)
    held = [health.Watch(health_pb2.HealthCheckRequest(), metadata=cluster.of("rita")) for _ in range(most)]
    await asyncio.gather(*(one.read() for one in held))
    refused = await code_of(cluster.access.WhoAmI(access_pb2.WhoAmIRequest(), metadata=cluster.of("rita")))
    assert (
        "RESOURCE_EXHAUSTED",
        f'user "rita" has {most} calls in progress, the bound of each: try again later',
    ) == refused
    assert "OK" == (await code_of(cluster.access.WhoAmI(access_pb2.WhoAmIRequest(), metadata=cluster.of("ada"))))[0]
    for one in held:
        one.cancel()
    who = access_pb2.WhoAmIRequest()

    async def is_served() -> bool:
        return (await code_of(cluster.access.WhoAmI(who, metadata=cluster.of("rita"))))[0] == "OK"

    deadline_s = time.monotonic() + timeout_s()
    while not await is_served():
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.05)
