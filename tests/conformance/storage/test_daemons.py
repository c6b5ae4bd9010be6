"""Daemons, which have one instance for each matching host."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from peloton.lifecycle.daemon import KEPT_S, FollowPlan
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.job import JobState, JobType
from peloton.model.pod import PodState
from peloton.model.resources import Resources
from peloton.model.update import UpdateSpec, UpdateState, UpdateType
from services.storage.pods.host_pods import LaunchRow
from services.storage.storage import Storage
from tests.conformance.storage import builders as world
from tests.conformance.storage.builders import NOW, SECOND, I, K, R
from tests.present import require

HERE, THERE = "cluster", "other"
HOUR = 3_600 * SECOND


def a_daemon(storage: Storage) -> JobId:
    return world.create(storage, world.a_config(0, type_=JobType.DAEMON))


def hosts(*names: str) -> list[Hostname]:
    return [Hostname(name) for name in names]


def follow(storage: Storage, job: JobId, *names: str, cluster: str = HERE, now_ns: int = NOW) -> FollowPlan:
    return storage.daemons.follow(job, cluster, hosts(*names), now_ns)


def run(storage: Storage, job: JobId, cluster: str = HERE, but: Collection[str] = ()) -> list[Hostname]:
    """Run all waiting instances except the ones of these hosts. Returns the hosts on which they run."""
    waiting = [pod for pod in storage.daemons.waiting(job, cluster, -1, 100) if pod.hostname not in but]
    storage.daemons.skip_queue(job, [pod.instance_id for pod in waiting], NOW)
    rows: list[LaunchRow] = [(pod.instance_id, pod.run_id, pod.hostname, "agent", {}) for pod in waiting]
    assert {row[0] for row in rows} == storage.host_pods.mark_launched(job, rows, NOW, cluster)
    world.report(storage, job, [pod.instance_id for pod in waiting], R)
    return [pod.hostname for pod in waiting]


def waiting(storage: Storage, job: JobId, cluster: str = HERE, after: int = -1) -> Sequence[tuple[int, str]]:
    return [(pod.instance_id, pod.hostname) for pod in storage.daemons.waiting(job, cluster, after, 100)]


def test_hosts_that_join_get_instances(storage: Storage) -> None:
    """Each new host has an instance, which the job counts. A repetition changes nothing."""
    job = a_daemon(storage)
    assert FollowPlan(fresh=tuple(hosts("a", "b"))) == follow(storage, job, "b", "a")
    assert FollowPlan() == follow(storage, job, "b", "a")
    assert FollowPlan(fresh=tuple(hosts("s"))) == follow(storage, job, "s", cluster=THERE)
    assert [(0, "a"), (1, "b")] == waiting(storage, job)
    assert [(1, "b")] == waiting(storage, job, after=0)
    assert [(2, "s")] == waiting(storage, job, THERE)
    record = storage.jobs.get(job)
    assert record is not None
    assert (3, JobState.PENDING) == (record.instance_count, world.settle_all(storage, job).state)


def test_pods_are_launched_without_a_queue(storage: Storage) -> None:
    """The resource manager neither queues the pods nor counts their resources."""
    job = a_daemon(storage)
    follow(storage, job, "a", "b")
    assert hosts("a", "b") == run(storage, job)
    assert ([R, R], []) == (world.states(storage, job), waiting(storage, job))
    assert {(PodId(job, 0, 1), "a"), (PodId(job, 1, 1), "b")} == set(storage.daemons.on_hosts(HERE))
    assert [] == storage.daemons.on_hosts(THERE)
    assert (0, 0) == (world.settle_all(storage, job).admit_count, world.settle_all(storage, job).ready_count)
    assert () == storage.admission.snapshot().jobs


def test_an_instance_ends_with_its_host_and_comes_back_with_it(storage: Storage) -> None:
    """The instance ends with its host, and starts as its next run under the same number when the host returns."""
    job = a_daemon(storage)
    follow(storage, job, "a", "b")
    run(storage, job)
    assert FollowPlan(gone=(1,)) == follow(storage, job, "a")
    assert 1 == world.settle_all(storage, job).kill_count
    world.report(storage, job, [1], PodState.LOST)
    world.settle_all(storage, job)
    assert ([R, K], []) == (world.states(storage, job), waiting(storage, job))
    assert FollowPlan(back=(1,)) == follow(storage, job, "a", "b")
    assert ([R, I], [(1, "b")]) == (world.states(storage, job), waiting(storage, job))
    assert 2 == world.pod(storage, job, 1).run_id


def test_a_host_that_never_came_back_leaves_its_instance_to_another(storage: Storage) -> None:
    """Another host takes over the instance, so that numbers stay bounded."""
    job = a_daemon(storage)
    follow(storage, job, "a", "b")
    follow(storage, job, "a")
    later_ns = NOW + KEPT_S * SECOND
    assert FollowPlan(taken=((1, Hostname("c")),)) == follow(storage, job, "a", "c", now_ns=later_ns)
    assert [(0, "a"), (1, "c")] == waiting(storage, job)


def test_a_stopped_daemon_follows_no_hosts(storage: Storage) -> None:
    """A stopped daemon ends, also when no host ever matched it."""
    job, idle = a_daemon(storage), a_daemon(storage)
    follow(storage, job, "a")
    assert [idle, job] == sorted((each.job_id for each in storage.daemons.list_wanted()), key=[idle, job].index)
    for each in (job, idle):
        storage.jobs.set_goal(each, JobState.KILLED, NOW)
        assert FollowPlan() == follow(storage, each, "a", "b")
        assert JobState.KILLED is world.settle_all(storage, each).state
    assert [] == storage.daemons.list_wanted()


def test_a_started_daemon_does_not_wait_for_hosts_that_are_gone(storage: Storage) -> None:
    """A start applies to all instances. The ones without a host end again."""
    job = a_daemon(storage)
    follow(storage, job, "a", "b")
    follow(storage, job, "a")
    storage.jobs.set_goal(job, JobState.KILLED, NOW)
    world.settle_all(storage, job)
    storage.jobs.set_goal(job, JobState.RUNNING, NOW)
    world.settle_all(storage, job)
    assert FollowPlan(gone=(1,)) == follow(storage, job, "a")
    world.settle_all(storage, job)
    assert ([I, K], [(0, "a")]) == (world.states(storage, job), waiting(storage, job))


def test_a_deleted_daemon_leaves_nothing(storage: Storage) -> None:
    """Another job with the same id begins without hosts."""
    job = a_daemon(storage)
    follow(storage, job, "a")
    storage.jobs.set_goal(job, JobState.KILLED, NOW)
    world.settle_all(storage, job)
    storage.jobs.delete(job)
    world.create(storage, world.a_config(0, type_=JobType.DAEMON), job)
    assert FollowPlan(fresh=tuple(hosts("a"))) == follow(storage, job, "a")


def update(storage: Storage, job: JobId, cpu: float, batch_size: int, **spec: Any) -> str:
    config = world.a_config(0, type_=JobType.DAEMON)
    config.defaultConfig.resource.cpuLimit = cpu
    asked = UpdateSpec(batch_size=batch_size, **spec)
    return storage.updates.create(job, None, UpdateType.UPDATE, asked, config, b"", (), "", NOW).update_id


def test_an_update_keeps_the_hosts_and_goes_by_batches(storage: Storage) -> None:
    """No more hosts lack their pod than the batch allows. A host that joins has the new configuration, and hosts that
    have left are not waited for."""
    job = a_daemon(storage)
    follow(storage, job, "a", "b", "c", "gone")
    run(storage, job)
    follow(storage, job, "a", "b", "c")
    storage.host_pods.mark_killing(job, 10, cluster=HERE)
    world.report(storage, job, [3], K)
    world.settle_all(storage, job)
    update(storage, job, 3.0, 2)
    follow(storage, job, "a", "b", "c", "new")
    seen: list[int] = []
    for _ in range(20):
        progress = storage.updates.advance(job, NOW)
        if progress.is_finished:
            break
        world.settle_all(storage, job)
        killed = [pod_id.instance_id for pod_id, *_ in storage.host_pods.mark_killing(job, 10, cluster=HERE)]
        seen.append(len(killed))
        world.report(storage, job, killed, K)
        world.settle_all(storage, job)
        run(storage, job)
    assert (True, 2) == (progress.is_finished, max(seen))
    record = storage.jobs.get(job)
    assert record is not None
    assert 5 == record.instance_count
    alive = [one for one in (world.pod(storage, job, i) for i in range(5)) if one.state is R]
    assert ({2}, {"a", "b", "c", "new"}) == ({one.config_version for one in alive}, {one.host for one in alive})
    shapes = {daemon.shape.resources.cpu_milli for daemon in storage.daemons.list_wanted()}
    assert {3000} == shapes


def test_a_rollback_takes_hosts_along_that_joined_meanwhile(storage: Storage) -> None:
    """Hosts that joined with the new configuration go back with the others, and hosts that join during the rollback
    begin with the old one."""
    job = a_daemon(storage)
    follow(storage, job, "a", "b")
    run(storage, job)
    failing = {"rollback_on_failure": True, "max_instance_attempts": 1, "max_failure_instances": 1}
    update_id = update(storage, job, 3.0, 1, **failing)
    follow(storage, job, "a", "b", "full", "joined")
    storage.updates.advance(job, NOW)
    world.settle_all(storage, job)
    world.report(
        storage, job, [pod_id.instance_id for pod_id, *_ in storage.host_pods.mark_killing(job, 9, cluster=HERE)], K
    )
    world.settle_all(storage, job)
    run(storage, job, but=("full",))
    assert [2, 1, 2, 2] == [world.pod(storage, job, i).config_version for i in range(4)]
    world.report(storage, job, [0], PodState.FAILED)
    assert 1 == storage.updates.advance(job, NOW).rolls_back_to
    storage.updates.roll_back_failed(job, NOW)
    storage.updates.advance(job, NOW)
    assert UpdateState.ROLLING_BACKWARD is require(storage.updates.get(update_id)).state
    follow(storage, job, "a", "b", "full", "joined", "late")
    for _ in range(20):
        if storage.updates.advance(job, NOW).is_finished:
            break
        killed = [pod_id.instance_id for pod_id, *_ in storage.host_pods.mark_killing(job, 9, cluster=HERE)]
        assert len(killed) <= 1
        world.report(storage, job, killed, K)
        storage.jobs.settle(job, NOW + HOUR)  # after the pause that follows a failure
        run(storage, job)
    assert UpdateState.ROLLED_BACK is require(storage.updates.get(update_id)).state
    found = [world.pod(storage, job, i) for i in range(5)]
    assert [(R, 3, name) for name in ("a", "b", "full", "joined", "late")] == [
        (one.state, one.config_version, one.host) for one in found
    ]
    assert [1500] == [daemon.shape.resources.cpu_milli for daemon in storage.daemons.list_wanted()]


def test_neighbours_are_reported_with_what_matters_for_an_eviction(storage: Storage) -> None:
    """The answer contains pods of any job on the given hosts, with the properties that decide an eviction."""
    daemon, batch = a_daemon(storage), world.a_job(storage, 3, preemptible=True, priority=4)
    world.admit(storage, batch)
    world.launch(storage, batch, cluster=HERE)
    follow(storage, daemon, "host0")
    run(storage, daemon)
    storage.pods.set_goals(batch, [(1, 1)], K, NOW, "stop")
    found = storage.daemons.neighbours(HERE, hosts("host0", "host1", "nowhere"))
    one = Resources.of(1.5, 100)
    reported = {
        (
            str(name),
            pod.pod_id.job_id,
            pod.priority,
            pod.may_leave,
            pod.is_leaving,
            pod.ends_itself,
            pod.holds.cpu_milli,
        )
        for name, pods in found.items()
        for pod in pods
    }
    assert {
        ("host0", daemon, 0, False, False, False, one.cpu_milli),
        ("host0", batch, 4, True, False, True, one.cpu_milli),
        ("host1", batch, 4, True, True, True, one.cpu_milli),
    } == reported
    assert [] == found[Hostname("nowhere")]
