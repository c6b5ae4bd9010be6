"""Maintenance in storage: requests, their order, the pods on a host, and their eviction."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from peloton.errors import Aborted, NotFound
from peloton.lifecycle.sla import Grant
from peloton.model.host import HostState
from peloton.model.ids import Hostname, JobId, new_job_id
from peloton.model.job import JobState, JobType
from peloton.model.maintenance import (
    Blocker,
    DrainProgress,
    HostedPod,
    HostMaintenance,
    MaintenanceAct,
    MaintenanceRequest,
)
from peloton.model.pod import PodState, TerminationReason
from peloton.model.resources import Resources
from services.storage.storage import Storage
from tests.conformance.storage import builders as world
from tests.conformance.storage.builders import NOW, SECOND, I, K, R, S
from tests.conformance.storage.services import a_service
from tests.present import require

UP, DRAINING, DRAINED, DOWN = HostState.UP, HostState.DRAINING, HostState.DRAINED, HostState.DOWN
PREEMPTING = PodState.PREEMPTING
COMPLETE, CANCEL, FORCE = MaintenanceAct.COMPLETE, MaintenanceAct.CANCEL, MaintenanceAct.FORCE
C = "cluster"


def make_requests(*names: str, **options: Any) -> list[MaintenanceRequest]:
    return [MaintenanceRequest(Hostname(name), "10.0.0.1", **options) for name in names]


def rows(storage: Storage, cluster: str = C) -> dict[str, tuple[HostState, HostState]]:
    """Return the rows in the order of the requests."""
    return {host.hostname: (host.state, host.goal) for host in storage.maintenance.all(cluster)}


def bring(storage: Storage, name: str, state: HostState) -> None:
    """Bring the only host in maintenance up to ``state``."""
    storage.maintenance.request(C, make_requests(name), 1, NOW)
    for before, after in ((DRAINING, DRAINED), (DRAINED, DOWN)):
        if rows(storage)[name][0] is state:
            return
        assert storage.maintenance.move(C, name, before, after, NOW)


def test_hosts_begin_in_their_order_under_the_bound(storage: Storage) -> None:
    """The first hosts are DRAINING at once. The rest is UP with the goal DOWN, in the order of the calls."""
    first = storage.maintenance.request(C, make_requests("b", "a", deadline_s=60), 1, NOW)
    storage.maintenance.request(C, make_requests("c"), 1, NOW + 1)

    assert rows(storage) == {"b": (DRAINING, DOWN), "a": (UP, DOWN), "c": (UP, DOWN)}
    assert first[0] == HostMaintenance(
        C, Hostname("b"), DRAINING, DOWN, "10.0.0.1", 1, 0, 60, requested_ns=NOW, drained_from_ns=NOW, changed_ns=NOW
    )
    assert first[0].deadline_ns == NOW + 60 * SECOND
    assert [h.hostname for h in storage.maintenance.admit(C, 2, NOW + 2)] == ["a"]
    assert storage.maintenance.admit(C, 2, NOW + 3) == []


def test_what_a_host_has_is_remembered(storage: Storage) -> None:
    """The resources of the host are stored at the request, because no other source knows them while it is DOWN."""
    has = Resources(1_000, 2, 3, 4)
    (host,) = storage.maintenance.request(C, make_requests("a", capacity=has), 1, NOW)
    assert [has, has] == [host.capacity, storage.maintenance.all(C)[0].capacity]


def test_asking_again_changes_nothing(storage: Storage) -> None:
    """A repeated request leaves the first one as it is, in every state."""
    bring(storage, "a", DOWN)
    before = storage.maintenance.all(C)

    assert storage.maintenance.request(C, make_requests("a", deadline_s=9), 1, NOW + 9) == before
    assert storage.maintenance.all(C) == before


def test_who_waits_takes_the_bound_of_a_later_call(storage: Storage) -> None:
    """A call without a bound keeps the bound. A host that has begun keeps its own."""
    storage.maintenance.request(C, make_requests("a", "b", "c"), 1, NOW)
    storage.maintenance.request(C, make_requests("c", at_most=9), 1, NOW)
    assert rows(storage) == {"a": (DRAINING, DOWN), "b": (UP, DOWN), "c": (UP, DOWN)}

    again = storage.maintenance.request(C, make_requests("a", "b", at_most=2), 1, NOW)

    assert [(h.hostname, h.state, h.at_most) for h in again] == [("a", DRAINING, 0), ("b", DRAINING, 2)]
    assert storage.maintenance.all(C)[2].state is DRAINING  # the bound no longer delays it


def test_clusters_do_not_meet(storage: Storage) -> None:
    """A host of the same name in another cluster is another host, under another bound."""
    storage.maintenance.request(C, make_requests("a"), 1, NOW)
    storage.maintenance.request("other", make_requests("a"), 1, NOW)

    assert rows(storage) == rows(storage, "other") == {"a": (DRAINING, DOWN)}


def test_the_whole_way(storage: Storage) -> None:
    """Each step follows only the one before. The last one deletes the row, and the next host begins."""
    storage.maintenance.request(C, make_requests("a", "b"), 1, NOW)
    assert not storage.maintenance.move(C, "a", DRAINED, DOWN, NOW)

    assert storage.maintenance.move(C, "a", DRAINING, DRAINED, NOW)
    assert not storage.maintenance.move(C, "a", DRAINING, DRAINED, NOW)
    assert storage.maintenance.move(C, "a", DRAINED, DOWN, NOW)
    assert storage.maintenance.end(C, "a", 1, NOW) == []
    assert rows(storage) == {"a": (DOWN, DOWN), "b": (UP, DOWN)}
    storage.maintenance.steer(C, ["a"], COMPLETE, 1, NOW)
    assert [h.hostname for h in storage.maintenance.end(C, "a", 1, NOW + 5)] == ["b"]
    assert rows(storage) == {"b": (DRAINING, DOWN)}
    assert storage.maintenance.get(C, "a") is None


def test_cancel(storage: Storage) -> None:
    """A waiting host is forgotten. A draining one has the goal UP, and is not DRAINED any more."""
    storage.maintenance.request(C, make_requests("a", "b"), 1, NOW)

    cancelled = storage.maintenance.steer(C, ["b", "a"], CANCEL, 1, NOW)

    assert [(h.hostname, h.state, h.goal) for h in cancelled] == [("b", UP, UP), ("a", DRAINING, UP)]
    assert rows(storage) == {"a": (DRAINING, UP)}
    assert not storage.maintenance.move(C, "a", DRAINING, DRAINED, NOW)
    assert storage.maintenance.steer(C, ["a"], CANCEL, 1, NOW)
    with pytest.raises(Aborted, match="maintenance of host a is being ended: ask again once it is UP"):
        storage.maintenance.request(C, make_requests("c", "a"), 1, NOW)
    assert rows(storage) == {"a": (DRAINING, UP)}


def test_a_cancelled_wait_lets_others_begin(storage: Storage) -> None:
    """Waiting hosts begin once a host with a tighter bound is cancelled."""
    storage.maintenance.request(C, make_requests("a"), 5, NOW)
    storage.maintenance.request(C, make_requests("tight", at_most=1), 5, NOW)
    storage.maintenance.request(C, make_requests("b"), 5, NOW)

    changed = storage.maintenance.steer(C, ["tight"], CANCEL, 5, NOW)

    assert [h.hostname for h in changed] == ["tight", "b"]
    assert rows(storage) == {"a": (DRAINING, DOWN), "b": (DRAINING, DOWN)}


def test_force(storage: Storage) -> None:
    """The drain is forced from the deadline on, which is stored."""
    storage.maintenance.request(C, make_requests("a", deadline_s=60), 1, NOW)
    with pytest.raises(Aborted, match="host a may be forced 60 s after its drain began: 1 s are left"):
        storage.maintenance.steer(C, ["a"], FORCE, 1, NOW + 59 * SECOND)

    storage.maintenance.steer(C, ["a"], FORCE, 1, NOW + 60 * SECOND)

    assert [h.is_forced for h in storage.maintenance.all(C)] == [True]


def test_all_of_the_hosts_or_none(storage: Storage) -> None:
    """An error about one host leaves the others as they were."""
    bring(storage, "a", DOWN)
    storage.maintenance.request(C, make_requests("b"), 2, NOW)
    before = storage.maintenance.all(C)

    for act, error, text in (
        (COMPLETE, NotFound, "^Host is not DOWN$"),
        (CANCEL, Aborted, "host a is DOWN: complete its maintenance instead"),
    ):
        with pytest.raises(error, match=text):
            storage.maintenance.steer(C, ["b", "a"] if act is CANCEL else ["a", "b"], act, 2, NOW + 1)
        assert storage.maintenance.all(C) == before
    with pytest.raises(NotFound, match="host x is not in maintenance"):
        storage.maintenance.steer(C, ["b", "x"], CANCEL, 2, NOW + 1)
    with pytest.raises(NotFound, match=r"^Host is not DOWN$"):
        storage.maintenance.steer(C, ["x"], COMPLETE, 2, NOW + 1)
    assert storage.maintenance.all(C) == before


def test_the_bound_holds_in_a_race(open_storage: Callable[[], Storage]) -> None:
    """No more hosts begin than the bound allows, however many processes request at once."""
    storages = [open_storage() for _ in range(4)]

    def ask(number: int) -> None:
        storage = storages[number % 4]
        storage.maintenance.request(C, make_requests(f"h{number}"), 3, NOW)
        storage.maintenance.admit(C, 3, NOW)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ask, range(24)))

    hosts = storages[0].maintenance.all(C)
    assert [h.state for h in hosts] == [DRAINING] * 3 + [UP] * 21
    assert [h.seq for h in hosts] == list(range(1, 25))


def test_progress_is_kept(storage: Storage) -> None:
    """The progress is kept as it was noted. A step deletes it."""
    storage.maintenance.request(C, make_requests("a"), 1, NOW)
    progress = DrainProgress(3, 1, (Blocker(new_job_id(), 2, 'wörter "und" zahlen'),), "the end of 1 pod")

    storage.maintenance.note_drain(storage.maintenance.all(C)[0], progress, NOW)

    assert storage.maintenance.all(C)[0].progress == progress
    storage.maintenance.move(C, "a", DRAINING, DRAINED, NOW)
    assert storage.maintenance.all(C)[0].progress == DrainProgress()


# Pods.


def test_residents(storage: Storage) -> None:
    """The answer contains pods that may be on the host, of jobs that have not ended. Pods that have to leave are
    marked."""
    first, second = sorted([world.a_running_job(storage, 6), world.a_running_job(storage, 3, type_=JobType.SERVICE)])
    types = {job: require(storage.jobs.get(job)).type for job in (first, second)}
    world.a_job(storage, 3)
    batch = first if types[first] is JobType.BATCH else second
    storage.pods.set_goals(batch, [(0, 1)], K, NOW, "stop")
    storage.pods.want_new_runs(batch, [(3, 1)])
    world.report(storage, batch, [4], S)

    found = storage.host_pods.hosted_pods(["host0", "host1", "elsewhere"])

    expected: dict[str, list[HostedPod]] = {"host0": [], "host1": [], "elsewhere": []}
    for job in (first, second):
        expected["host0"].append(HostedPod(job, 0, types[job], job == batch))
        expected["host1"].append(HostedPod(job, 1, types[job], False))
        if job == batch:
            expected["host0"].append(HostedPod(job, 3, types[job], True))
    assert found == expected


def test_no_launch_on_a_host_that_goes(storage: Storage) -> None:
    """The transaction of the launch refuses the host. A host that waits for its turn still takes pods."""
    job_id = world.a_job(storage, 6)
    world.admit(storage, job_id)
    storage.maintenance.request(C, make_requests("host1", "host2"), 1, NOW)

    assert world.launch(storage, job_id, cluster=C) == {0, 2, 3, 5}
    assert world.states(storage, job_id)[1] is PodState.READY


def test_batch_pods_leave_a_host(storage: Storage) -> None:
    """The pods are PREEMPTING with the message of maintenance, and have another run without a failure. Others stay."""
    job_id = world.a_running_job(storage, 6)

    assert storage.host_pods.evict_from_host(job_id, "host1", NOW) == [1, 4]
    assert storage.host_pods.evict_from_host(job_id, "host1", NOW) == []

    assert world.states(storage, job_id) == [R, PREEMPTING, R, R, PREEMPTING, R]
    evicted = world.pod(storage, job_id, 4)
    assert evicted.message == "evicting running task: maintenance of host host1"
    assert evicted.reason == "EvictionReason_HOST_MAINTENANCE"
    assert storage.jobs.settle(job_id, NOW).kill_count == 2
    storage.host_pods.mark_killing(job_id, 10)
    world.report(storage, job_id, [1], K)
    ended = world.pod(storage, job_id, 1)
    assert ended.termination is not None
    assert (ended.termination.reason, ended.failure_count) == (TerminationReason.KILLED_HOST_MAINTENANCE, 0)
    world.report(storage, job_id, [4], S)
    world.settle_all(storage, job_id)
    assert world.states(storage, job_id) == [R, I, R, R, S, R]
    assert world.pod(storage, job_id, 1).run_id == 2


def test_a_gang_leaves_whole(storage: Storage) -> None:
    """All members of the gang leave with one member, wherever they are. Other pods of the job stay."""
    job_id = world.a_running_job(storage, 6, minimumRunningInstances=3)

    assert storage.host_pods.evict_from_host(job_id, "host2", NOW) == [0, 1, 2, 5]
    assert world.states(storage, job_id) == [PREEMPTING] * 3 + [R, R, PREEMPTING]


def test_others_of_a_job_with_a_gang_leave_alone(storage: Storage) -> None:
    """A host without a member of the gang does not affect the gang."""
    job_id = world.a_running_job(storage, 6, minimumRunningInstances=2)

    assert storage.host_pods.evict_from_host(job_id, "host2", NOW) == [2, 5]


def test_who_is_not_to_run_again_ends(storage: Storage) -> None:
    """A pod with killOnPreempt ends in maintenance too."""
    config = world.a_config(1)
    config.defaultConfig.preemptionPolicy.killOnPreempt = True
    job_id = world.create(storage, config)
    storage.pods.create(job_id, lambda _: None)
    world.run(storage, job_id)

    storage.host_pods.evict_from_host(job_id, "host0", NOW)
    storage.host_pods.mark_killing(job_id, 10)
    world.report(storage, job_id, [0], K)
    world.settle_all(storage, job_id)

    assert world.states(storage, job_id) == [K]


def test_ended_and_unknown_jobs_have_no_pods_to_send(storage: Storage) -> None:
    """Pods of a deleted, unknown or ended job are not evicted."""
    job_id = world.a_running_job(storage, 3)
    storage.jobs.set_goal(job_id, JobState.KILLED, NOW)

    assert storage.host_pods.evict_from_host(job_id, "host0", NOW) == []
    assert storage.host_pods.evict_from_host(JobId("00000000-0000-4000-8000-000000000009"), "host0", NOW) == []


def test_a_pod_that_has_left_a_host_is_not_asked_to_leave_it(storage: Storage) -> None:
    """A drain evicts the pods that it read a moment ago. A pod that has moved elsewhere stays there, and uses nothing
    of the SLA's allowance."""
    job_id = a_service(storage, 3, maximumUnavailableInstances=1)
    assert ["host0", "host1", "host2"] == [p.host for p in world.pods(storage, job_id)]

    def drain(host: str) -> Grant:
        why = TerminationReason.KILLED_HOST_MAINTENANCE
        return storage.disruptions.disrupt(
            job_id, [0, 1], reason=why, message="", checks_sla=True, now_ns=NOW, host=host
        )

    assert drain("host1") == Grant((1,))
    world.report(storage, job_id, [1], K)
    world.settle_all(storage, job_id)
    assert drain("host1") == Grant(())
    assert replace(drain("host0"), refusal=None) == Grant((), (0,))
    assert [p.desired_run_id for p in world.pods(storage, job_id)] == [1, 2, 1]
