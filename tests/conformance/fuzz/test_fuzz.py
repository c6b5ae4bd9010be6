"""Every public method, called as no sound client calls it: each answer is one that a caller can do something with."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import message_factory, text_format
from google.protobuf.descriptor import MethodDescriptor

from peloton.api.limits import MESSAGE_SIZES, code_of
from peloton.api.service_names import ADMIN_SERVICE, INTERNAL_HOST_SERVICE, SERVED
from peloton.api.v0.job import job_pb2
from peloton.api.v0.short_names.job_pb2_grpc import JobManagerStub
from peloton.api.v1alpha.job.stateless.svc.stateless_svc_pb2_grpc import JobServiceStub
from peloton.model.ids import JobId, RespoolId
from services.api.backlog import Bounds
from services.api.server import start as start_api
from services.hostmgr.advisor import AdvisorSettings, HostAdvisor
from services.hostmgr.client import HostManagerClient
from services.hostmgr.drain_watch import DrainWatch
from services.hostmgr.image_prefetch import prefetcher
from services.hostmgr.latency_reports import LatencyReports
from services.hostmgr.maintenance import MaintenanceController
from services.hostmgr.rebalancer import Rebalancer
from services.hostmgr.servicer import serve as serve_hosts
from services.hostmgr.views import ClusterViews
from services.resmgr.pool_rules import with_defaults
from services.resmgr.server import serve as serve_pools
from services.storage import migrate
from services.storage.storage import Storage
from tests.conformance.fuzz.requests import JOBS, Maker, methods
from tests.conformance.hostmgr.emulated import Emulated
from tests.conformance.hostmgr.link import Link
from tests.conformance.hostmgr.world import World, wait
from tests.conformance.storage.services import roll
from tests.nightly import PROPERTY, takes_all_examples
from tests.unit.api_service.fakes import RecordedWakes
from tests.unit.api_service.services import create as create_service
from tests.unit.api_service.services import service_config, spec
from tests.unit.api_service.story import LEAF, wire
from tests.unit.resmgr.world import FAST, FixedCapacity, pool_config

SEED = int(os.environ.get("PELOTON_TEST_SEEDS", "1").split(",")[0])
CALLS = int(os.environ.get("PELOTON_TEST_CALLS", "0")) or (8000 if takes_all_examples() else 1000)
AT_ONCE = 16
CALL_S = 30.0
MESSAGES_MAX = 3
"""The number of messages of a stream, sent or read."""
LOGGED_MAX = 20
FAULTS = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED}
UNBOUNDED = Bounds(jobs_paced=10**9, jobs_waiting=10**9, jobs_active=10**9, pods_active=10**18)
SPARE = RespoolId("33333333-3333-3333-3333-333333333333")


class HostsWake(RecordedWakes):
    def hosts_changed(self, hostnames: Iterable[str]) -> None: ...

    def pods_changed(self, job_ids: Iterable[Any], cause: str = "") -> None: ...


@pytest.fixture
def world(tmp_path: Path) -> Iterable[World]:
    """A host manager with three hosts, and its storage with two pools."""
    url = f"sqlite:///{tmp_path / 'peloton.db'}"
    migrate.upgrade(url)
    storage = Storage(url)
    for pool_id, name in ((LEAF, "maps"), (SPARE, "spare")):
        config = pool_config(name, 0, 10)
        config.resources.add(kind="memory", limit=1_000, share=1)
        config = with_defaults(config)
        storage.pools.put(pool_id, config)
    storage.close()
    cluster = Emulated(tmp_path / "minicluster")
    link = Link(cluster.target)
    world = World(url, link, cluster)
    wait(lambda: world.core.cache.host_count() == 3, "the hosts")
    yield world
    world.close()
    link.close()
    cluster.close()


@pytest.fixture
async def channel(world: World) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to an api, with a resource manager and a host manager behind it."""
    wakes, storage = HostsWake(), world.storage
    watch = DrainWatch(wakes, wakes)
    maintenance = MaintenanceController(
        world.core,
        storage.maintenance,
        storage.host_pods,
        storage.disruptions,
        storage.host_pools,
        wakes,
        wakes,
        watch,
        cluster="local",
        share=0.5,
    )
    rebalancer = Rebalancer(
        world.core.cache,
        storage.rebalances,
        "local",
        storage.host_pods.coming_back,
        wakes,
        world.core.count_domains,
        world.core.kill_evicted,
    )
    advisor = HostAdvisor(AdvisorSettings(), storage.jobs, LatencyReports(time.monotonic))
    views = ClusterViews("local", world.core, advisor, dict, storage.overview)
    hosts, hosts_port = serve_hosts(
        world.core, maintenance, prefetcher(""), dict, "127.0.0.1:0", 600, rebalancer, advisor, views
    )
    to_hosts = grpc.insecure_channel(f"127.0.0.1:{hosts_port}")
    of_hosts = HostManagerClient(lambda: to_hosts)
    pools = await serve_pools(storage, wakes, FixedCapacity(), "127.0.0.1:0", FAST, of_hosts)
    api = await start_api(
        storage,
        wakes,
        lambda _: f"127.0.0.1:{pools.port}",
        "127.0.0.1:0",
        bounds=UNBOUNDED,
        clusters=lambda: {"local": f"127.0.0.1:{hosts_port}"},
    )
    async with grpc.aio.insecure_channel(f"127.0.0.1:{api.port}", options=MESSAGE_SIZES) as channel:
        yield channel
    await api.stop(0)
    await pools.stop()
    to_hosts.close()
    await asyncio.to_thread(hosts.stop(0).wait)


class Fuzz:
    """Calls with numbers: the seed and the number say what is sent."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel: Any = channel
        self.codes: Counter[str] = Counter()
        self.faults: dict[tuple[str, str], str] = {}

    async def run(self, numbers: range, called: Sequence[MethodDescriptor]) -> None:
        waiting = iter(numbers)

        async def caller() -> None:
            for number in waiting:
                await self._call(number, called)

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(caller())

    async def _call(self, number: int, called: Sequence[MethodDescriptor]) -> None:
        random = Random(f"{SEED}/{number}")
        method = random.choice(called)
        maker = Maker(random, (LEAF, SPARE, "root"))
        count = random.randrange(1, MESSAGES_MAX + 1) if method.client_streaming else 1
        sent = [maker.request(method) for _ in range(count)]
        path = f"/{method.containing_service.full_name}/{method.name}"
        code, details = grpc.StatusCode.OK, ""
        try:
            await self._send(method, path, sent)
        except grpc.aio.AioRpcError as error:
            code, details = grpc.StatusCode[code_of(error)], error.details() or ""
        self.codes[code.name] += 1
        if code in FAULTS:
            reported = "\n--\n".join(_shown(method, raw) for raw in sent)
            self.faults.setdefault(
                (path, details[:60]), f"call {number}: {path}: {code.name} {details}\n{reported[:2_000]}"
            )

    async def _send(self, method: MethodDescriptor, path: str, sent: Sequence[bytes]) -> None:
        if method.client_streaming:
            await self._channel.stream_unary(path)(iter(sent), timeout=CALL_S)
        elif not method.server_streaming:
            await self._channel.unary_unary(path)(sent[0], timeout=CALL_S)
        else:
            call = self._channel.unary_stream(path)(sent[0], timeout=CALL_S)
            try:
                async with asyncio.timeout(0.05):  # a watch may have nothing to tell
                    for _ in range(MESSAGES_MAX):
                        if await call.read() is grpc.aio.EOF:
                            break
            except TimeoutError:
                pass
            call.cancel()


def _shown(method: MethodDescriptor, raw: bytes) -> str:
    message = message_factory.GetMessageClass(method.input_type)()
    try:
        message.MergeFromString(raw)
    except Exception:
        return repr(raw)
    return text_format.MessageToString(message)


async def jobs_with_pods(channel: grpc.aio.Channel, storage: Storage) -> None:
    """A batch job whose pods wait, and a service whose pods run."""
    batch, service = JobId(JOBS[0]), JobId(JOBS[1])
    config = service_config()
    config.type = job_pb2.BATCH
    jobs: Any = JobManagerStub(channel)
    await jobs.Create(job_pb2.CreateRequest(id=wire(batch), config=config))
    storage.pods.create(batch, lambda _: None)
    await create_service(JobServiceStub(channel), spec(), service)
    roll(storage, service)


@PROPERTY
async def test_no_request_is_answered_with_an_internal_error(
    world: World, channel: grpc.aio.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    """No INTERNAL, no UNKNOWN, no traceback in a log; and a sound client is served in the end."""
    caplog.set_level(logging.ERROR)
    await jobs_with_pods(channel, world.storage)
    fuzz = Fuzz(channel)
    locking = (*ADMIN_SERVICE, *INTERNAL_HOST_SERVICE)
    admin = list(methods(locking))
    others = list(methods([name for name in SERVED if name not in locking]))

    await fuzz.run(range(CALLS), others)
    jobs: Any = JobManagerStub(channel)
    config = service_config()
    created = await jobs.Create(job_pb2.CreateRequest(config=config))
    await fuzz.run(range(CALLS, CALLS + CALLS // 50), admin)  # it locks the others

    print(f"seed {SEED}, {CALLS} calls of {len(others)} methods: {dict(fuzz.codes)}")
    assert list(fuzz.faults.values())[:LOGGED_MAX] == [], "\n\n".join(list(fuzz.faults.values())[:LOGGED_MAX])
    assert [record.getMessage() for record in caplog.records if record.exc_info][:LOGGED_MAX] == []
    assert created.jobId.value, created
