"""Peloton's MigrationService over real storage; the clusters are a table."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api.convert import new_job_record
from peloton.api.v0.job import job_pb2
from peloton.api.v0.migration import migration_pb2 as pb
from peloton.api.v0.migration.migration_pb2_grpc import MigrationServiceStub
from peloton.errors import InvalidArgument
from peloton.model.migration import MigrationTarget
from peloton.model.pod import PodShape
from peloton.model.reason import Infeasible
from peloton.model.resources import Resources
from services.api.server import start
from services.storage.storage import Storage
from tests.unit.api_service.fakes import OneSandbox, RecordedWakes
from tests.unit.api_service.services import service_config
from tests.unit.api_service.story import JOB, UNKNOWN, create, expect_refusal, run

Status = grpc.StatusCode
POOL = "/eng/maps"


class Clusters:
    """Clusters of which only ``b`` is known."""

    def __init__(self) -> None:
        self.capacity, self.free = Resources.of(100, 100_000, 100_000), Resources.of(50, 100_000, 100_000)
        self.infeasible: Infeasible | None = None

    def target(self, cluster: str, shapes: Sequence[PodShape]) -> MigrationTarget:
        if cluster != "b":
            raise InvalidArgument(f"unknown cluster {cluster}; known clusters: b")
        found = {shape: self.infeasible for shape in shapes if self.infeasible}
        return MigrationTarget(self.capacity, self.free, found)


@pytest.fixture
def clusters() -> Clusters:
    return Clusters()


@pytest.fixture
def woken(wakes: RecordedWakes) -> list[str]:
    return wakes.migrations


@pytest.fixture
async def address(storage: Storage, wakes: RecordedWakes, hosts: OneSandbox, clusters: Clusters) -> AsyncIterator[str]:
    server = await start(storage, wakes, lambda _: None, "127.0.0.1:0", hosts, targets=clusters)
    yield f"127.0.0.1:{server.port}"
    await server.stop(0)


@pytest.fixture
def migrations(channel: grpc.aio.Channel) -> Any:
    return MigrationServiceStub(channel)


@pytest.fixture
async def service(jobs: Any, storage: Storage) -> None:
    """Create a service with three running instances in the cluster without a name."""
    await create(jobs, service_config())
    storage.pods.create(JOB, lambda _: None)
    storage.jobs.settle(JOB, 1)
    run(storage, 0, 1, 2)


@pytest.mark.usefixtures("service")
async def test_a_plan_changes_nothing(migrations: Any, storage: Storage, woken: list[str]) -> None:
    """The plan has the pods to move, their demand, and the target's free resources."""
    answer = await migrations.Start(pb.StartRequest(job_id=JOB, target="b", batch_size=2, dry_run=True))

    assert not answer.HasField("migration")
    assert ([], []) == (woken, storage.migrations.latest(1))
    plan = answer.plan
    assert (3, 1, 0, {"": 3}) == (plan.instance_count, plan.service_count, plan.batch_pod_count, dict(plan.leaves))
    assert (3.0, 50.0) == (plan.needed.cpu, plan.free.cpu)
    assert plan.text.startswith("web to cluster b: 3 instances of 1 service move, 2 at a time\n")
    assert "cpu: 3 needed, 50 free in the target" in plan.text


@pytest.mark.usefixtures("service")
async def test_a_migration_is_stored_and_woken(migrations: Any, woken: list[str]) -> None:
    """A repeated request has the same answer; the commands signal its workflow; the binding is released after the
    end."""
    request = pb.StartRequest(job_id=JOB, target="b")
    first, second = [(await migrations.Start(request)).migration for _ in range(2)]

    assert first == second
    assert ("web", JOB, "b", "MIGRATING", 2) == (
        first.name,
        first.job_id,
        first.target,
        first.state,
        first.services_at_once,
    )
    assert "PAUSED" == (await migrations.Pause(pb.PauseRequest(id=first.id))).migration.state
    assert "MIGRATING" == (await migrations.Resume(pb.ResumeRequest(id=first.id))).migration.state
    assert (
        Status.ABORTED,
        "the migration of web to cluster b is under way (MIGRATING): roll it back",
    ) == await expect_refusal(migrations.Release(pb.ReleaseRequest(job_id=JOB)))
    assert "ROLLING_BACK" == (await migrations.Rollback(pb.RollbackRequest(id=first.id))).migration.state
    assert [first.id] * 5 == woken


@pytest.mark.usefixtures("service")
async def test_what_cannot_work_is_refused_before_it_begins(migrations: Any, clusters: Clusters) -> None:
    """A target is refused if no host fits the pods, if it is too small, and if it is too full unless forced."""
    request = pb.StartRequest(job_id=JOB, target="b")
    clusters.infeasible = Infeasible(host_count=4, constraint="label disk=ssd")
    assert (
        Status.ABORTED,
        "no host of cluster b could take pods of web: 0 of 4 hosts meet the constraint label disk=ssd",
    ) == await expect_refusal(migrations.Start(request))
    clusters.infeasible = None
    clusters.free = Resources.of(2, 100_000, 100_000)
    assert (
        Status.ABORTED,
        "web needs cpu 3 and finds 2 free in cluster b: free resources there, or force the migration",
    ) == await expect_refusal(migrations.Start(request))
    assert (await migrations.Start(pb.StartRequest(job_id=JOB, target="b", force=True, dry_run=True))).plan.text
    clusters.capacity = clusters.free
    assert (
        Status.ABORTED,
        "web needs cpu 3 and finds 2: cluster b is too small for what moves",
    ) == await expect_refusal(migrations.Start(pb.StartRequest(job_id=JOB, target="b", force=True)))


@pytest.mark.usefixtures("service")
async def test_a_pool_is_migrated_with_those_below_it(migrations: Any, storage: Storage) -> None:
    """The services are named with their pools."""
    started = (await migrations.Start(pb.StartRequest(pool_path="/eng", target="b"))).migration
    storage.migrations.advance(started.id)

    [found] = (await migrations.Query(pb.QueryRequest(pool_path="/eng"))).migrations
    assert ("/eng", ["maps/web"], "MIGRATING") == (found.pool_path, [one.name for one in found.services], found.state)


REFUSED: dict[str, tuple[pb.StartRequest, Status, str]] = {
    "no object": (pb.StartRequest(target="b"), Status.INVALID_ARGUMENT, "name either a job or a pool"),
    "two objects": (
        pb.StartRequest(target="b", job_id=JOB, pool_path=POOL),
        Status.INVALID_ARGUMENT,
        "name either a job or a pool",
    ),
    "no target": (pb.StartRequest(job_id=JOB), Status.INVALID_ARGUMENT, "no target: name a cluster"),
    "unknown target": (
        pb.StartRequest(pool_path=POOL, target="c"),
        Status.INVALID_ARGUMENT,
        "unknown cluster c; known clusters: b",
    ),
    "no id": (pb.StartRequest(job_id="x", target="b"), Status.INVALID_ARGUMENT, "job_id must be a UUID, not 'x'"),
    "unknown job": (
        pb.StartRequest(job_id=UNKNOWN.value, target="b"),
        Status.NOT_FOUND,
        f"job {UNKNOWN.value} not found",
    ),
    "unknown pool": (pb.StartRequest(pool_path="/x", target="b"), Status.NOT_FOUND, "resource pool /x not found"),
    "batch": (
        pb.StartRequest(pool_path=POOL, target="b", batch_size=100_001),
        Status.INVALID_ARGUMENT,
        "batch_size is 100001, at most 100000",
    ),
    "services": (
        pb.StartRequest(pool_path=POOL, target="b", services_at_once=101),
        Status.INVALID_ARGUMENT,
        "services_at_once is 101, at most 100",
    ),
}


@pytest.mark.parametrize(("request_", "status", "text"), REFUSED.values(), ids=REFUSED.keys())
async def test_requests_that_mean_nothing(
    migrations: Any, request_: pb.StartRequest, status: Status, text: str
) -> None:
    """Each error names the object and the rule."""
    assert (status, text) == await expect_refusal(migrations.Start(request_))


async def test_external_jobs_stay_where_they_are(migrations: Any, storage: Storage) -> None:
    """The migration of an external job is refused."""
    config = job_pb2.JobConfig(name="Job team/train", type=job_pb2.EXTERNAL)
    storage.jobs.create(new_job_record(JOB, config, 1), config, 1)

    status, text = await expect_refusal(migrations.Start(pb.StartRequest(job_id=JOB, target="b")))

    assert Status.INVALID_ARGUMENT is status
    assert str(text).startswith(f"job {JOB} is external: its pods belong to Job team/train")


async def test_a_pool_and_its_history(
    migrations: Any, jobs: Any, config: Callable[..., job_pb2.JobConfig], storage: Storage
) -> None:
    """The pool's services move; batch pods on hosts are counted, and need resources in the target only if they
    leave."""
    await create(jobs, config(2))
    storage.pods.create(JOB, lambda _: None)
    run(storage, 0, 1)
    plans = [
        (await migrations.Start(pb.StartRequest(pool_path=POOL, target="b", now=now, dry_run=True))).plan
        for now in (False, True)
    ]
    assert [(0, 2, 0.0), (0, 2, 2.0)] == [(p.instance_count, p.batch_pod_count, p.needed.cpu) for p in plans]
    started = (await migrations.Start(pb.StartRequest(pool_path=POOL, target="b"))).migration
    assert (POOL, "", POOL) == (started.name, started.job_id, started.pool_path)
    storage.migrations.advance(started.id)

    by_pool = await migrations.Query(pb.QueryRequest(pool_path=POOL))
    by_id = await migrations.Query(pb.QueryRequest(id=started.id))

    assert by_pool == by_id == await migrations.Query(pb.QueryRequest())
    assert ("SUCCEEDED", 0, False) == (
        by_pool.migrations[0].state,
        by_pool.migrations[0].service_count,
        by_pool.has_more,
    )
    released = [(await migrations.Release(pb.ReleaseRequest(pool_path=POOL))).cluster for _ in range(2)]
    assert ["b", ""] == released
    assert (Status.NOT_FOUND, f"migration {UNKNOWN.value} not found") == await expect_refusal(
        migrations.Pause(pb.PauseRequest(id=UNKNOWN.value))
    )
    assert (Status.INVALID_ARGUMENT, "id must be the UUID of a migration, not 'x'") == await expect_refusal(
        migrations.Query(pb.QueryRequest(id="x"))
    )
