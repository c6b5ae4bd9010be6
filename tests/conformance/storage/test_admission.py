"""The part of storage that the resource manager uses."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa

from peloton.api.v0.respool.respool_pb2 import ResourcePoolConfig
from peloton.lifecycle.gang import enough_for_both
from peloton.model.admission import AllocatedRange, PendingRange
from peloton.model.host_pool import Workload
from peloton.model.ids import ROOT_POOL_ID, RespoolId
from peloton.model.job import JobState, JobType
from peloton.model.pod import AllOf, HostLabel, PodShape
from peloton.model.resources import RESOURCE_KINDS, Resources
from peloton.model.respool import PoolResource, PoolSpec, ReservationType
from services.storage.storage import Storage
from services.storage.tables import RESPOOL
from tests.conformance.storage import builders as world
from tests.conformance.storage.builders import NOW, READY, F, I, K, P, S, everywhere
from tests.simulation.pool_changes import config_of


@everywhere
def test_initialized_pods_are_queueable_in_order(storage: Storage) -> None:
    """The ranges contain the INITIALIZED instances that have to run, bounded by the limit."""
    job_id = world.a_job(storage, 10)
    storage.admission.mark_pending(job_id, [(2, 2)], 1)
    storage.pods.set_goals(job_id, [(6, 1)], K, NOW, "stop")

    assert [(0, 2), (4, 2), (7, 3)] == storage.admission.queueable(job_id, 100)
    assert [(0, 2), (4, 1)] == storage.admission.queueable(job_id, 3)
    assert [] == storage.admission.queueable(job_id, 0)


@everywhere
def test_a_gang_is_never_split(storage: Storage) -> None:
    """A waiting gang comes first and whole, whatever the limit. An incomplete gang does not come."""
    job_id = world.a_job(storage, 6, minimumRunningInstances=4, maximumRunningInstances=6, retries=3)

    assert [(0, 4), (4, 2)] == storage.admission.queueable(job_id, 100)
    assert [(0, 4), (4, 1)] == storage.admission.queueable(job_id, 5)
    assert [(0, 4)] == storage.admission.queueable(job_id, 1)

    world.admit(storage, job_id)
    world.launch(storage, job_id)
    world.report(storage, job_id, [1, 2, 4], F)
    progress = world.settle_all(storage, job_id)
    assert (1, [(4, 1)]) == (progress.admit_count, storage.admission.queueable(job_id, 9))


@everywhere
def test_a_gang_waits_for_capacity(storage: Storage) -> None:
    """A whole gang that does not fit under the maximum of running instances delays the other pods."""
    job_id = world.a_running_job(storage, 6, minimumRunningInstances=3, maximumRunningInstances=4, retries=3)
    world.report(storage, job_id, [0, 1, 2], F)
    progress = storage.jobs.settle(job_id, NOW)
    assert 3 == progress.admit_count
    storage.admission.mark_pending(job_id, [(4, 1)], 1)

    assert [] == storage.admission.queueable(job_id, 10)
    assert 0 == storage.jobs.settle(job_id, NOW).admit_count


@everywhere
def test_queueing_is_conditional_and_counts_once(storage: Storage) -> None:
    """INITIALIZED pods that have to run become PENDING. The second call changes nothing."""
    job_id = world.a_job(storage, 4)
    storage.pods.set_goals(job_id, [(3, 1)], K, NOW, "stop")

    assert [(7, 0, 3)] == storage.admission.mark_pending(job_id, [(0, 2), (2, 2)], 7)
    assert [] == storage.admission.mark_pending(job_id, [(0, 2), (2, 2)], 8)

    assert "Task sent for placement" == world.pod(storage, job_id).message
    assert (PendingRange(7, 0, 3, 1),) == storage.admission.snapshot().jobs[0].pending


@everywhere
def test_admission_is_conditional_and_counts_once(storage: Storage) -> None:
    """PENDING pods of the ranges, and no others, become READY, for several jobs in one call."""
    one, two = world.a_job(storage, 3), world.a_job(storage, 3)
    storage.admission.mark_pending(one, [(0, 3)], 1)
    storage.admission.mark_pending(two, [(1, 1)], 2)

    assert 3 == storage.admission.mark_ready([(one, 0, 2), (two, 0, 3)])
    assert 0 == storage.admission.mark_ready([(one, 0, 2), (two, 0, 3)])
    assert 0 == storage.admission.mark_ready([])

    assert ([READY, READY, P], [I, READY, I]) == (world.states(storage, one), world.states(storage, two))


@everywhere
def test_killing_the_queued_reports_what_they_held(storage: Storage) -> None:
    """PENDING and READY pods with goal KILLED end, and are returned as ranges with their former state. Others stay."""
    job_id = world.a_job(storage, 6)
    world.queue(storage, job_id)
    storage.admission.mark_ready([(job_id, 0, 3)])
    storage.pods.set_goals(job_id, [(0, 2), (4, 2)], K, NOW, "stop")

    assert [(4, 2, P), (0, 2, READY)] == storage.admission.kill_queued(job_id, NOW)
    assert [] == storage.admission.kill_queued(job_id, NOW)

    assert [K, K, READY, P, K, K] == world.states(storage, job_id)
    assert "Non-running task killed" == world.pod(storage, job_id).message


@everywhere
def test_ready_pods_come_alone_or_as_a_gang(storage: Storage) -> None:
    """The gang comes whole with the shape that is enough for each member. Every other pod comes alone."""
    config = world.a_config(5, minimumRunningInstances=3)
    config.instanceConfig[1].resource.cpuLimit = 4
    config.instanceConfig[4].ports.add(name="http", value=0)
    job_id = world.create(storage, config)
    storage.pods.create(job_id, lambda _: None)
    world.admit(storage, job_id)

    gang = storage.pods.ready_gang(job_id)
    fourth, fifth = storage.pods.ready_gangs(job_id, 10)

    assert gang is not None
    assert ((0, 1), (1, 1), (2, 1)) == gang.pods
    assert Resources(4000, 100, 0, 0) == gang.shape.resources
    assert (((3, 1),), ((4, 1),)) == (fourth.pods, fifth.pods)
    assert (0, 1) == (fourth.shape.port_count, fifth.shape.port_count)
    assert [Workload.BATCH] * 3 == [one.shape.workload for one in (gang, fourth, fifth)]
    assert [fourth] == storage.pods.ready_gangs(job_id, 1)
    assert [] == storage.pods.ready_gangs(job_id, 0)


@everywhere
def test_a_gang_in_part_is_not_placed(storage: Storage) -> None:
    """A gang is not offered for placement while a member is not READY or has to be killed. The other pods are."""
    job_id = world.a_job(storage, 4, minimumRunningInstances=3)
    world.queue(storage, job_id)
    storage.admission.mark_ready([(job_id, 1, 3)])

    assert storage.pods.ready_gang(job_id) is None
    assert [((3, 1),)] == [gang.pods for gang in storage.pods.ready_gangs(job_id, 10)]

    storage.admission.mark_ready([(job_id, 0, 1)])
    storage.pods.set_goals(job_id, [(1, 1)], K, NOW, "stop")
    assert storage.pods.ready_gang(job_id) is None


def test_a_shape_that_is_enough_for_both() -> None:
    """The common shape has the larger of each amount, and both constraints."""
    rack, disk = HostLabel("rack", "1"), HostLabel("disk", "ssd")
    one = PodShape(Resources(1, 5, 0, 0), port_count=2, preemptible=True, constraint=rack)
    two = PodShape(Resources(3, 4, 0, 0), port_count=1, controller=True, constraint=disk)

    expected = PodShape(Resources(3, 5, 0, 0), port_count=2, controller=True, constraint=AllOf((rack, disk)))
    assert expected == enough_for_both(one, two)
    assert one == enough_for_both(one, one)


@everywhere
def test_a_snapshot_holds_what_is_queued_and_what_is_allocated(storage: Storage) -> None:
    """The snapshot contains ranges of PENDING pods by queue number and ranges of allocated ones, of every job that has
    not ended."""
    ended = world.a_running_job(storage, 1)
    world.report(storage, ended, [0], S)
    world.settle_all(storage, ended)
    job_id = world.a_job(storage, 10)
    storage.admission.mark_pending(job_id, [(8, 2)], 3)
    storage.admission.mark_pending(job_id, [(0, 6)], 5)
    storage.admission.mark_ready([(job_id, 0, 3)])
    world.launch(storage, job_id, limit=2)

    snapshot = storage.admission.snapshot()

    [job] = snapshot.jobs
    assert storage.jobs.get(job_id) == job.job
    assert (PendingRange(3, 8, 2, 1), PendingRange(5, 3, 3, 1)) == job.pending
    assert (AllocatedRange(0, 2, 1, launched=True), AllocatedRange(2, 1, 1, launched=False)) == job.allocated
    assert 1 == snapshot.log_cursor


@everywhere
def test_the_log_reports_what_ended_in_order(storage: Storage) -> None:
    """The log has one row for each run that ended on a host, with consecutive numbers, and none for other reports."""
    job_id = world.a_running_job(storage, 3)
    world.report(storage, job_id, [2], S)
    world.report(storage, job_id, [0, 1], F)
    world.report(storage, job_id, [0], F)

    log = storage.admission.status_log(0, 10)
    assert [(1, job_id, 2, 1, S), (2, job_id, 0, 1, F), (3, job_id, 1, 1, F)] == log
    assert log[1:2] == storage.admission.status_log(1, 1)
    assert 1 == storage.admission.prune_status_log(2, 1)
    assert 1 == storage.admission.prune_status_log(2, 5)
    assert log[2:] == storage.admission.status_log(0, 10)
    assert 3 == storage.admission.snapshot().log_cursor


def a_pool(name: str, parent: RespoolId = ROOT_POOL_ID) -> tuple[PoolSpec, ResourcePoolConfig]:
    resources = tuple(PoolResource(kind, 1_000, 2_000, 3_000, ReservationType.STATIC) for kind in RESOURCE_KINDS)
    spec = PoolSpec(RespoolId(name), parent, name, resources, controller_limit_percent=5.5)
    config = config_of(spec)
    config.description = f"what {name} is for"
    return spec, config


def test_pools_are_kept(storage: Storage) -> None:
    """A pool is stored, replaced, read back as it was sent and as admission requires it, and deleted."""
    (one, its_config), (two, other_config) = a_pool("a"), a_pool("b", RespoolId("a"))
    a, b = one.respool_id, two.respool_id
    storage.pools.put(b, other_config)
    storage.pools.put(a, ResourcePoolConfig(name="old"))
    storage.pools.put(a, its_config)

    assert {a: its_config, b: other_config} == storage.pools.configs()
    assert (one, two) == storage.pools.specs() == storage.admission.snapshot().pools
    assert (True, False) == (storage.pools.delete(b), storage.pools.delete(b))
    assert (one,) == storage.pools.specs()


@pytest.mark.parametrize("spec", ["", "[]"])
def test_a_pool_is_its_configuration(storage: Storage, spec: str) -> None:
    """A row is read without the text that former versions stored with it, and that is still written for them."""
    pool, config = a_pool("a")
    storage.pools.put(pool.respool_id, config)
    with storage.db.reading() as conn:
        text = conn.execute(sa.select(RESPOOL.c.spec)).scalar_one()
    storage.db.write(lambda conn: conn.execute(sa.update(RESPOOL).values(spec=spec)))

    assert (pool,) == storage.pools.specs() == storage.admission.snapshot().pools
    assert ["a", ROOT_POOL_ID, "a"] == json.loads(text)[:3]


@everywhere
def test_services_have_no_gangs(storage: Storage) -> None:
    """A minimum of running instances makes a gang only of a batch job."""
    job_id = world.a_job(storage, 4, type_=JobType.SERVICE, minimumRunningInstances=3)

    assert [(0, 2)] == storage.admission.queueable(job_id, 2)


@everywhere
def test_a_stopping_job_queues_nothing(storage: Storage) -> None:
    """No pod is queued for a job whose goal is KILLED."""
    job_id = world.create(storage, world.a_config(2))
    storage.pods.create(job_id, lambda _: None)
    storage.jobs.set_goal(job_id, JobState.KILLED, NOW)

    assert [] == storage.admission.queueable(job_id, 10)
    assert [] == storage.admission.mark_pending(job_id, [(0, 2)], 1)
