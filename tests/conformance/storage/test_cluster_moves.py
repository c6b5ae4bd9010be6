"""Migrations of services and pools to another cluster, step by step."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from peloton.api import convert
from peloton.errors import Aborted, NotFound
from peloton.lifecycle.constraints import describe
from peloton.model.ids import JobId, PodId, RespoolId, new_job_id
from peloton.model.job import JobRecord
from peloton.model.migration import Migration, MigrationAct, MigrationProgress, MigrationSpec, MigrationState
from peloton.model.pod import PodStatus
from peloton.model.update import UpdateSpec
from services.storage.storage import Storage
from tests.conformance.storage.builders import NOW, K, R, a_job, admit, pods, settle_all
from tests.conformance.storage.services import ALL_AT_ONCE, service_config, turn, update

A, B = "a", "b"
POOL = (RespoolId("pool"), "/maps")


def job_of(storage: Storage, job_id: JobId) -> JobRecord:
    job = storage.jobs.get(job_id)
    assert job is not None
    return job


def launch(storage: Storage, job_id: JobId, cluster: str = "") -> None:
    """Run every READY pod in the cluster that its shape allows, and in A if it allows any."""
    for gang in storage.pods.ready_gangs(job_id, 1_000):
        (instance, run), said = gang.pods[0], describe(gang.shape.constraint) if gang.shape.constraint else ""
        where = cluster or (B if said in ("label peloton/cluster=b", "label peloton/cluster=a < 1") else A)
        storage.host_pods.mark_launched(job_id, [(instance, run, "host", "agent", {})], NOW, where)
        storage.host_pods.apply_status([PodStatus(PodId(job_id, instance, run), R, NOW)], where)
    settle_all(storage, job_id)


def cluster_turn(storage: Storage, job_id: JobId, starts: bool = True) -> None:
    """Acts as the job and its clusters after a step: pods end, are queued, and start."""
    for cluster in (A, B):
        for pod_id, *_ in storage.host_pods.mark_killing(job_id, 1_000, cluster=cluster):
            storage.host_pods.apply_status([PodStatus(pod_id, K, NOW)], cluster)
    settle_all(storage, job_id)
    if starts:
        admit(storage, job_id)
        launch(storage, job_id)


def a_service_in_a(storage: Storage, count: int = 4, **sla: Any) -> JobId:
    job_id = new_job_id()
    config = service_config(count, **sla)
    storage.updates.create_service(convert.new_job_record(job_id, config, NOW), config, b"", ALL_AT_ONCE, "", NOW)
    turn(storage, job_id, starts=False)
    admit(storage, job_id)
    launch(storage, job_id)
    turn(storage, job_id, starts=False)
    assert {A: count} == pod_hosts(storage, job_id)
    return job_id


def pod_hosts(storage: Storage, job_id: JobId) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in pods(storage, job_id):
        if one.host:
            found[one.cluster] = found.get(one.cluster, 0) + 1
    return found


def migrate(storage: Storage, job_id: JobId, **spec: Any) -> Migration:
    return storage.migrations.request(job_of(storage, job_id), None, MigrationSpec(B, **spec))


def run_to_the_end(storage: Storage, migration: Migration, *jobs: JobId) -> list[int]:
    """Take turns until the migration is over. Returns the number of instances that moved in each."""
    moved = [0]
    for _ in range(100):
        progress = storage.migrations.advance(migration.migration_id)
        moved.append(progress.moved_count)
        if progress.is_over:
            return [after - before for before, after in pairwise(moved) if after > before]
        for job_id in jobs:
            cluster_turn(storage, job_id)
    raise AssertionError(f"it does not end: {progress}")


def test_a_service_moves_batch_by_batch(storage: Storage) -> None:
    """Never more instances are down than the batch. In the end all run in the target, and new pods go there, too."""
    job_id = a_service_in_a(storage, 5)
    migration = migrate(storage, job_id, batch_size=2)

    assert [2, 2, 1] == run_to_the_end(storage, migration, job_id)

    assert {B: 5} == pod_hosts(storage, job_id)
    found = storage.migrations.get(migration.migration_id)
    assert found is not None
    assert (MigrationState.SUCCEEDED, NOW) == (found.state, found.completed_ns)
    assert B == storage.migrations.binding(job_of(storage, job_id))
    storage.pods.want_new_runs(job_id, [(0, 1)])
    cluster_turn(storage, job_id)
    assert {B: 5} == pod_hosts(storage, job_id)


def test_the_sla_is_asked(storage: Storage) -> None:
    """No instance is taken down while one that failed is down already. The refusal is stored with the job."""
    job_id = a_service_in_a(storage, 4, maximumUnavailableInstances=1)
    storage.pods.want_new_runs(job_id, [(3, 1)])
    migration = migrate(storage, job_id, batch_size=2)

    progress = storage.migrations.advance(migration.migration_id)

    refusal = "1 of at most 1 instances are unavailable already"
    assert (f"train: 1 instance to serve in cluster b and its SLA: {refusal}", 3) == (
        progress.waiting_for,
        progress.left_count,
    )
    assert {(False, refusal)} == {(one.granted, one.message) for one in storage.disruptions.recent(job_id)}
    cluster_turn(storage, job_id)
    assert [1, 1, 1] == run_to_the_end(storage, migration, job_id)


def test_a_repeated_step_takes_down_no_more(storage: Storage) -> None:
    """The batch is down until it serves. A repeated step whose answer was lost wakes the job once more."""
    job_id = a_service_in_a(storage, 4)
    migration = migrate(storage, job_id, batch_size=2)

    first, second = [storage.migrations.advance(migration.migration_id) for _ in range(2)]

    assert [2, 2] == [first.moved_count, second.moved_count]
    assert [(job_id,), (job_id,)] == [first.to_wake, second.to_wake]
    assert "train: 2 instances to serve in cluster b" == second.waiting_for
    cluster_turn(storage, job_id, starts=False)
    waiting = storage.migrations.advance(migration.migration_id)
    assert ((), 2, "train: 2 instances to serve in cluster b") == (
        waiting.to_wake,
        waiting.moved_count,
        waiting.waiting_for,
    )


def test_a_paused_migration_takes_no_step(storage: Storage) -> None:
    """A paused migration takes no step until it is resumed."""
    job_id = a_service_in_a(storage, 2)
    migration = migrate(storage, job_id)
    storage.migrations.steer(migration.migration_id, MigrationAct.PAUSE)

    progress = storage.migrations.advance(migration.migration_id)

    assert (MigrationState.PAUSED, 0, "an operator to resume it") == (
        progress.state,
        progress.moved_count,
        progress.waiting_for,
    )
    storage.migrations.steer(migration.migration_id, MigrationAct.RESUME)
    assert [1, 1] == run_to_the_end(storage, migration, job_id)


def test_a_rollback_brings_back_what_was_moved(storage: Storage) -> None:
    """The moved instances return. An instance that was in the target before stays there. The binding is restored."""
    job_id = a_service_in_a(storage, 4)
    storage.pods.want_new_runs(job_id, [(3, 1)])
    for pod_id, *_ in storage.host_pods.mark_killing(job_id, 1_000, cluster=A):
        storage.host_pods.apply_status([PodStatus(pod_id, K, NOW)], A)
    settle_all(storage, job_id)
    admit(storage, job_id)
    launch(storage, job_id, B)
    assert {A: 3, B: 1} == pod_hosts(storage, job_id)
    migration = migrate(storage, job_id, batch_size=2)
    storage.migrations.advance(migration.migration_id)
    cluster_turn(storage, job_id)
    assert {A: 1, B: 3} == pod_hosts(storage, job_id)

    storage.migrations.steer(migration.migration_id, MigrationAct.ROLL_BACK)
    run_to_the_end(storage, migration, job_id)

    assert {A: 3, B: 1} == pod_hosts(storage, job_id)
    assert "" == storage.migrations.binding(job_of(storage, job_id))
    with pytest.raises(Aborted, match="the migration of train to cluster b is ROLLED_BACK: start another one"):
        storage.migrations.steer(migration.migration_id, MigrationAct.PAUSE)


def test_a_migration_waits_for_an_update(storage: Storage) -> None:
    """No instance is taken down by a migration while a rollout is under way."""
    job_id = a_service_in_a(storage, 2)
    migration = migrate(storage, job_id)
    update_id = update(storage, job_id, service_config(2, "v2"), UpdateSpec(batch_size=1, start_paused=True)).update_id

    progress = storage.migrations.advance(migration.migration_id)

    assert (0, f"train: update {update_id} to end (PAUSED)") == (progress.moved_count, progress.waiting_for)


def test_a_pool_moves_service_after_service(storage: Storage) -> None:
    """The number of services that move at once is bounded. Queued batch pods go to the target at once, and running ones
    end where they are."""
    services = [a_service_in_a(storage, 1) for _ in range(3)]
    running, queued = a_job(storage, 1), a_job(storage, 1)
    admit(storage, running)
    launch(storage, running)

    migration = storage.migrations.request(None, POOL, MigrationSpec(B, services_at_once=2))
    first = storage.migrations.advance(migration.migration_id)
    admit(storage, queued)
    launch(storage, queued)

    assert (2, 0, 3) == (len(first.services), first.done_count, first.service_count)
    assert [1, 1] == [len(first.to_wake) - 1, first.moved_count - 1]
    run_to_the_end(storage, migration, *services)
    assert [{B: 1}] * 3 == [pod_hosts(storage, job_id) for job_id in services]
    assert [{A: 1}, {B: 1}] == [pod_hosts(storage, running), pod_hosts(storage, queued)]


def test_batch_pods_may_be_evicted(storage: Storage) -> None:
    """Evicted batch pods are queued again without a failure, a gang as a whole, and the migration waits until they have
    left."""
    job_id, gang = a_job(storage, 2), a_job(storage, 2, minimumRunningInstances=2)
    for one in (job_id, gang):
        admit(storage, one)
    launch(storage, job_id)
    members = storage.pods.ready_gang(gang)
    assert members is not None
    storage.host_pods.mark_launched(gang, [(i, run, "h", "agent", {}) for i, run in members.pods], NOW, A)
    storage.host_pods.apply_status([PodStatus(PodId(gang, 0, 1), R, NOW)], A)
    migration = storage.migrations.request(None, POOL, MigrationSpec(B, evicts_batch=True))

    progress = storage.migrations.advance(migration.migration_id)

    assert (4, "4 batch pods to end", {job_id, gang}) == (
        progress.batch_left_count,
        progress.waiting_for,
        set(progress.to_wake),
    )
    for one in (job_id, gang):
        cluster_turn(storage, one)
    assert MigrationState.SUCCEEDED is storage.migrations.advance(migration.migration_id).state
    assert ({B: 2}, 0) == (pod_hosts(storage, job_id), sum(one.failure_count for one in pods(storage, gang)))
    bound = storage.pods.ready_gang(gang)
    assert bound is not None
    assert bound.shape.constraint is not None
    assert "label peloton/cluster=b" == describe(bound.shape.constraint)


def test_two_migrations_do_not_move_the_same_pods(storage: Storage) -> None:
    """A repeated request is the same migration. A job whose pool moves, and a pool whose job moves, are refused."""
    job_id = a_service_in_a(storage, 2)
    first = migrate(storage, job_id)

    assert first == migrate(storage, job_id)
    under_way = r"the migration of job train to cluster b is under way \(MIGRATING\): wait for its end, or roll it back"
    with pytest.raises(Aborted, match=under_way):
        storage.migrations.request(job_of(storage, job_id), None, MigrationSpec("c"))
    with pytest.raises(Aborted, match=under_way):
        storage.migrations.request(None, POOL, MigrationSpec(B))
    with pytest.raises(Aborted, match="is under way"):
        storage.migrations.release(job_of(storage, job_id), None)
    run_to_the_end(storage, first, job_id)
    with pytest.raises(Aborted, match="job train of pool /maps is bound to another cluster"):
        storage.migrations.request(None, POOL, MigrationSpec(A))
    released = storage.migrations.release(job_of(storage, job_id), None)
    assert (B, "") == (released, storage.migrations.binding(job_of(storage, job_id)))
    back = storage.migrations.request(None, POOL, MigrationSpec(A))
    with pytest.raises(Aborted, match="the migration of pool /maps to cluster a is under way"):
        migrate(storage, job_id)
    assert [back, first.migration_id] == [
        storage.migrations.active()[0],
        storage.migrations.latest(10)[1].migration_id,
    ]
    assert [back] == storage.migrations.latest(10, POOL[0])


def test_services_that_end_hold_no_job_up(storage: Storage) -> None:
    """A service that ends or is deleted does not delay the migration. An unknown migration cannot be steered."""
    job_id = a_service_in_a(storage, 2)
    migration = migrate(storage, job_id)
    storage.migrations.advance(migration.migration_id)
    storage.pods.set_goals(job_id, [(0, 2)], K, NOW, "stop")
    cluster_turn(storage, job_id, starts=False)

    progress = storage.migrations.advance(migration.migration_id)

    assert (MigrationState.SUCCEEDED, 1) == (progress.state, progress.done_count)
    with pytest.raises(NotFound, match="not found"):
        storage.migrations.steer(new_job_id(), MigrationAct.PAUSE)
    assert MigrationProgress(MigrationState.ROLLED_BACK) == storage.migrations.advance(new_job_id())


def test_a_launch_that_was_placed_before_is_refused(storage: Storage) -> None:
    """No pod starts in the old cluster from the request on. Pods that had a host there are placed again."""
    job_id = a_job(storage, 1)
    admit(storage, job_id)
    storage.migrations.request(None, POOL, MigrationSpec(B))

    assert set() == storage.host_pods.mark_launched(job_id, [(0, 1, "host", "agent", {})], NOW, A)
    assert {0} == storage.host_pods.mark_launched(job_id, [(0, 1, "host", "agent", {})], NOW, B)


def test_a_pod_forgets_a_home_where_it_may_not_be(storage: Storage) -> None:
    """A pod that was to return to its host in an update goes to the target, and reserves no host in the old cluster."""
    job_id = a_service_in_a(storage, 1)
    update(storage, job_id, service_config(1, "v2"), UpdateSpec(in_place=True))
    storage.updates.advance(job_id, NOW)
    cluster_turn(storage, job_id, starts=False)
    admit(storage, job_id)
    (before,) = storage.pods.ready_gangs(job_id, 1)

    migrate(storage, job_id)

    (after,) = storage.pods.ready_gangs(job_id, 1)
    assert [("host", A), ("", "")] == [(one.desired_host, one.desired_cluster) for one in (before, after)]
