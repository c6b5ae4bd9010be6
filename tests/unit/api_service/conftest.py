"""A real server over real storage (a new SQLite file), called by real stubs; Temporal and hosts are fakes."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio

from peloton.api.v0.job import job_pb2
from peloton.api.v0.short_names.job_pb2_grpc import JobManagerStub
from peloton.api.v0.short_names.task_pb2_grpc import TaskManagerStub
from peloton.api.v0.update.svc.update_svc_pb2_grpc import UpdateServiceStub
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc.stateless_svc_pb2_grpc import JobServiceStub
from peloton.api.v1alpha.pod.svc.pod_svc_pb2_grpc import PodServiceStub
from peloton.model.ids import ROOT_POOL_ID, JobId, RespoolId
from peloton.model.resources import RESOURCE_KINDS, UNLIMITED
from peloton.model.respool import PoolResource, PoolSpec
from services.api.calls import Calls
from services.api.server import start
from services.storage import migrate
from services.storage.storage import Storage
from tests import sqlite_engines
from tests.simulation.pool_changes import config_of
from tests.unit.api_service.aurora import GPU_POOL, POOL, Bridge, Make, Pools
from tests.unit.api_service.fakes import OneSandbox, RecordedWakes
from tests.unit.api_service.services import create, evolve, spec
from tests.unit.api_service.story import ID, INNER, JOB, LEAF

sqlite_engines.reuse()

SERVICE_VERSION = "1-1-1"


def pool(respool_id: RespoolId, parent: str, name: str, cpu_milli: int) -> PoolSpec:
    amounts = {"cpu": cpu_milli}
    resources = tuple(PoolResource(kind, 0, amounts.get(kind, UNLIMITED), 1) for kind in RESOURCE_KINDS)
    return PoolSpec(respool_id, RespoolId(parent), name, resources)


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a template file with the pools / -> /eng -> /eng/maps, where /eng/maps has 12 cpu; tests copy it."""
    path = tmp_path_factory.mktemp("api") / "peloton.db"
    migrate.upgrade(f"sqlite:///{path}")
    storage = Storage(f"sqlite:///{path}")
    for one in (
        pool(ROOT_POOL_ID, "", "root", UNLIMITED),
        pool(INNER, ROOT_POOL_ID, "eng", UNLIMITED),
        pool(LEAF, INNER, "maps", 12_000),
    ):
        storage.pools.put(one.respool_id, config_of(one))
    storage.close()
    return path


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def service_database(database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a template file that has a service with three running instances as well."""
    return await add_running_service(Path(shutil.copy(database, tmp_path_factory.mktemp("service"))), spec())


async def add_running_service(path: Path, wanted: stateless_pb2.JobSpec) -> Path:
    """Create the service through the API, and run its first update to the end."""
    storage = Storage(f"sqlite:///{path}")
    server = await start(storage, RecordedWakes(), lambda _: None, "127.0.0.1:0", OneSandbox())
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        assert await create(JobServiceStub(channel), wanted) == SERVICE_VERSION
    await server.stop(0)
    evolve(storage)
    storage.close()
    return path


@pytest.fixture
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    name = "service_database" if "running_service" in request.fixturenames else "database"
    storage = Storage(f"sqlite:///{shutil.copy(request.getfixturevalue(name), tmp_path)}")
    yield storage
    storage.close()


@pytest.fixture
def running_service(storage: Storage) -> str:
    """Take the template with the service, and return the service's entity version."""
    return SERVICE_VERSION


@pytest.fixture
def wakes() -> RecordedWakes:
    return RecordedWakes()


@pytest.fixture
def hosts() -> OneSandbox:
    return OneSandbox()


@pytest.fixture
async def address(storage: Storage, wakes: RecordedWakes, hosts: OneSandbox) -> AsyncIterator[str]:
    server = await start(storage, wakes, lambda _: None, "127.0.0.1:0", hosts)
    yield f"127.0.0.1:{server.port}"
    await server.stop(0)


@pytest.fixture
async def calls() -> AsyncIterator[Calls]:
    calls = Calls()
    yield calls
    await calls.close()


@pytest.fixture
async def channel(address: str) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield channel


@pytest.fixture
def jobs(channel: grpc.aio.Channel) -> Any:
    return JobManagerStub(channel)


@pytest.fixture
def tasks(channel: grpc.aio.Channel) -> Any:
    return TaskManagerStub(channel)


@pytest.fixture
def v1(channel: grpc.aio.Channel) -> Any:
    """Return a stub of v1alpha's JobService."""
    return JobServiceStub(channel)


@pytest.fixture
def pods(channel: grpc.aio.Channel) -> Any:
    return PodServiceStub(channel)


@pytest.fixture
def updates(channel: grpc.aio.Channel) -> Any:
    return UpdateServiceStub(channel)


@pytest.fixture
async def job(jobs: Any, config: Callable[..., job_pb2.JobConfig], storage: Storage, wakes: RecordedWakes) -> JobId:
    """Create a job of four pods in state INITIALIZED; instance 2 is called "odd"."""
    wanted = config(4)
    wanted.instanceConfig[2].name = "odd"
    await jobs.Create(job_pb2.CreateRequest(id=ID, config=wanted))
    storage.pods.create(JOB, lambda _: None)
    wakes.started.clear()
    return JOB


@pytest.fixture
def config() -> Callable[..., job_pb2.JobConfig]:
    """Return a builder of valid batch jobs in /eng/maps."""

    def build(instance_count: int = 4, name: str = "shards", **fields: Any) -> job_pb2.JobConfig:
        job = job_pb2.JobConfig(name=name, instanceCount=instance_count, **fields)
        job.respoolID.value = LEAF
        job.sla.preemptible = True  # the pool has no reservation
        job.defaultConfig.name = "shard"
        job.defaultConfig.resource.cpuLimit = 1
        job.defaultConfig.resource.memLimitMb = 64
        job.defaultConfig.command.value = "true"
        job.defaultConfig.labels.add(key="tier", value="gold")
        return job

    return build


@pytest.fixture
def bridge_pools(storage: Storage) -> Pools:
    return Pools(storage, {"/AuroraBridge": POOL, "/GPUAuroraBridge": GPU_POOL})


@pytest.fixture
async def make_bridge(address: str, bridge_pools: Pools) -> AsyncIterator[Make]:
    """Return a maker of bridges: each is another process."""
    made: list[Bridge] = []

    def new(**more: Any) -> Bridge:
        made.append(Bridge(address, **({"pools": bridge_pools} | more)))
        return made[-1]

    yield new
    for bridge in made:
        await bridge.close()


@pytest.fixture
def bridge(make_bridge: Make) -> Bridge:
    return make_bridge()
