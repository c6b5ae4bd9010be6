"""Maintenance in storage: what is wanted, whose turn it is, who is on a host, and how pods are sent away."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from peloton.errors import Aborted, NotFound
from peloton.lifecycle.sla import Grant
from peloton.model.host import HostState
from peloton.model.ids import Hostname, JobId
from peloton.model.job import JobState, JobType
from peloton.model.maintenance import (
    Blocker,
    DrainProgress,
    HostMaintenance,
    MaintenanceAct,
    MaintenanceRequest,
    Resident,
)
from peloton.model.pod import PodState, TerminationReason
from peloton.model.resources import Resources
from services.storage.gateway import Gateway
from tests.conformance.storage.builders import (
    NOW,
    SECOND,
    I,
    K,
    R,
    S,
    a_config,
    a_job,
    a_running_job,
    admit,
    create,
    launch,
    pod,
    pods,
    report,
    run,
    settle_all,
    states,
)
from tests.conformance.storage.services import a_service

UP, DRAINING, DRAINED, DOWN = HostState.UP, HostState.DRAINING, HostState.DRAINED, HostState.DOWN
PREEMPTING = PodState.PREEMPTING
COMPLETE, CANCEL, FORCE = MaintenanceAct.COMPLETE, MaintenanceAct.CANCEL, MaintenanceAct.FORCE
C = "cluster"


def asked(*names: str, **options: int) -> list[MaintenanceRequest]:
    return [MaintenanceRequest(Hostname(name), "10.0.0.1", **options) for name in names]  # type: ignore[arg-type]


def rows(gateway: Gateway, cluster: str = C) -> dict[str, tuple[HostState, HostState]]:
    """In the order of the requests."""
    return {host.hostname: (host.state, host.goal) for host in gateway.maintained_hosts(cluster)}


def bring(gateway: Gateway, name: str, state: HostState) -> None:
    """The only host in maintenance, as far as ``state``."""
    gateway.request_maintenance(C, asked(name), 1, NOW)
    for before, after in ((DRAINING, DRAINED), (DRAINED, DOWN)):
        if rows(gateway)[name][0] is state:
            return
        assert gateway.move_host(C, name, before, after, NOW)


def test_hosts_begin_in_their_order_under_the_bound(gateway: Gateway) -> None:
    """Those whose turn it is are DRAINING at once; the rest is UP with the goal DOWN, in the order of the calls."""
    first = gateway.request_maintenance(C, asked("b", "a", deadline_s=60), 1, NOW)
    gateway.request_maintenance(C, asked("c"), 1, NOW + 1)

    assert rows(gateway) == {"b": (DRAINING, DOWN), "a": (UP, DOWN), "c": (UP, DOWN)}
    assert first[0] == HostMaintenance(
        C, Hostname("b"), DRAINING, DOWN, "10.0.0.1", 1, 0, 60, requested_ns=NOW, drained_from_ns=NOW, changed_ns=NOW
    )
    assert first[0].deadline_ns == NOW + 60 * SECOND
    assert [h.hostname for h in gateway.admit_maintenance(C, 2, NOW + 2)] == ["a"]
    assert gateway.admit_maintenance(C, 2, NOW + 3) == []


def test_what_a_host_has_is_remembered(gateway: Gateway) -> None:
    """As it was when it was asked for: nobody else knows it while the host is down."""
    has = Resources(1_000, 2, 3, 4)
    (host,) = gateway.request_maintenance(C, asked("a", capacity=has), 1, NOW)
    assert [has, has] == [host.capacity, gateway.maintained_hosts(C)[0].capacity]


def test_asking_again_changes_nothing(gateway: Gateway) -> None:
    """A host stays as it was asked for first, wherever it is."""
    bring(gateway, "a", DOWN)
    before = gateway.maintained_hosts(C)

    assert gateway.request_maintenance(C, asked("a", deadline_s=9), 1, NOW + 9) == before
    assert gateway.maintained_hosts(C) == before


def test_who_waits_takes_the_bound_of_a_later_call(gateway: Gateway) -> None:
    """A call without a bound keeps it; one that has begun keeps its own."""
    gateway.request_maintenance(C, asked("a", "b", "c"), 1, NOW)
    gateway.request_maintenance(C, asked("c", at_most=9), 1, NOW)
    assert rows(gateway) == {"a": (DRAINING, DOWN), "b": (UP, DOWN), "c": (UP, DOWN)}

    again = gateway.request_maintenance(C, asked("a", "b", at_most=2), 1, NOW)

    assert [(h.hostname, h.state, h.at_most) for h in again] == [("a", DRAINING, 0), ("b", DRAINING, 2)]
    assert gateway.maintained_hosts(C)[2].state is DRAINING  # nobody holds it back any more


def test_clusters_do_not_meet(gateway: Gateway) -> None:
    """A host of the same name in another cluster is another host, under another bound."""
    gateway.request_maintenance(C, asked("a"), 1, NOW)
    gateway.request_maintenance("other", asked("a"), 1, NOW)

    assert rows(gateway) == rows(gateway, "other") == {"a": (DRAINING, DOWN)}


def test_the_whole_way(gateway: Gateway) -> None:
    """Each step is taken from the one before only; at the end the row is gone and the next host begins."""
    gateway.request_maintenance(C, asked("a", "b"), 1, NOW)
    assert not gateway.move_host(C, "a", DRAINED, DOWN, NOW)

    assert gateway.move_host(C, "a", DRAINING, DRAINED, NOW)
    assert not gateway.move_host(C, "a", DRAINING, DRAINED, NOW)
    assert gateway.move_host(C, "a", DRAINED, DOWN, NOW)
    assert gateway.end_maintenance(C, "a", 1, NOW) == []
    assert rows(gateway) == {"a": (DOWN, DOWN), "b": (UP, DOWN)}
    gateway.steer_maintenance(C, ["a"], COMPLETE, 1, NOW)
    assert [h.hostname for h in gateway.end_maintenance(C, "a", 1, NOW + 5)] == ["b"]
    assert rows(gateway) == {"b": (DRAINING, DOWN)}
    assert gateway.maintained_host(C, "a") is None


def test_cancel(gateway: Gateway) -> None:
    """A host that waits is forgotten; one that is drained is to be UP, and is not DRAINED any more."""
    gateway.request_maintenance(C, asked("a", "b"), 1, NOW)

    cancelled = gateway.steer_maintenance(C, ["b", "a"], CANCEL, 1, NOW)

    assert [(h.hostname, h.state, h.goal) for h in cancelled] == [("b", UP, UP), ("a", DRAINING, UP)]
    assert rows(gateway) == {"a": (DRAINING, UP)}
    assert not gateway.move_host(C, "a", DRAINING, DRAINED, NOW)
    assert gateway.steer_maintenance(C, ["a"], CANCEL, 1, NOW)
    with pytest.raises(Aborted, match="maintenance of host a is being ended: ask again once it is UP"):
        gateway.request_maintenance(C, asked("c", "a"), 1, NOW)
    assert rows(gateway) == {"a": (DRAINING, UP)}


def test_a_cancelled_wait_lets_others_begin(gateway: Gateway) -> None:
    """One that held back others by a tighter bound is cancelled: they begin."""
    gateway.request_maintenance(C, asked("a"), 5, NOW)
    gateway.request_maintenance(C, asked("tight", at_most=1), 5, NOW)
    gateway.request_maintenance(C, asked("b"), 5, NOW)

    changed = gateway.steer_maintenance(C, ["tight"], CANCEL, 5, NOW)

    assert [h.hostname for h in changed] == ["tight", "b"]
    assert rows(gateway) == {"a": (DRAINING, DOWN), "b": (DRAINING, DOWN)}


def test_force(gateway: Gateway) -> None:
    """Only from the deadline on; it is remembered."""
    gateway.request_maintenance(C, asked("a", deadline_s=60), 1, NOW)
    with pytest.raises(Aborted, match="host a may be forced 60 s after its drain began: 1 s are left"):
        gateway.steer_maintenance(C, ["a"], FORCE, 1, NOW + 59 * SECOND)

    gateway.steer_maintenance(C, ["a"], FORCE, 1, NOW + 60 * SECOND)

    assert [h.is_forced for h in gateway.maintained_hosts(C)] == [True]


def test_all_of_the_hosts_or_none(gateway: Gateway) -> None:
    """An error about one host leaves the others as they were."""
    bring(gateway, "a", DOWN)
    gateway.request_maintenance(C, asked("b"), 2, NOW)
    before = gateway.maintained_hosts(C)

    for act, error, text in (
        (COMPLETE, NotFound, "^Host is not DOWN$"),
        (CANCEL, Aborted, "host a is DOWN: complete its maintenance instead"),
    ):
        with pytest.raises(error, match=text):
            gateway.steer_maintenance(C, ["b", "a"] if act is CANCEL else ["a", "b"], act, 2, NOW + 1)
        assert gateway.maintained_hosts(C) == before
    with pytest.raises(NotFound, match="host x is not in maintenance"):
        gateway.steer_maintenance(C, ["b", "x"], CANCEL, 2, NOW + 1)
    with pytest.raises(NotFound, match=r"^Host is not DOWN$"):
        gateway.steer_maintenance(C, ["x"], COMPLETE, 2, NOW + 1)
    assert gateway.maintained_hosts(C) == before


def test_the_bound_holds_in_a_race(open_gateway: Callable[[], Gateway]) -> None:
    """However many processes ask at once, no more hosts begin than may be away."""
    gateways = [open_gateway() for _ in range(4)]

    def ask(number: int) -> None:
        gateway = gateways[number % 4]
        gateway.request_maintenance(C, asked(f"h{number}"), 3, NOW)
        gateway.admit_maintenance(C, 3, NOW)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ask, range(24)))

    hosts = gateways[0].maintained_hosts(C)
    assert [h.state for h in hosts] == [DRAINING] * 3 + [UP] * 21
    assert [h.seq for h in hosts] == list(range(1, 25))


def test_progress_is_kept(gateway: Gateway) -> None:
    """As it was noted; a step forgets it."""
    gateway.request_maintenance(C, asked("a"), 1, NOW)
    progress = DrainProgress(3, 1, (Blocker("job", 2, 'wörter "und" zahlen'),), "the end of 1 pod")

    gateway.note_drain(C, "a", progress)

    assert gateway.maintained_hosts(C)[0].progress == progress
    gateway.move_host(C, "a", DRAINING, DRAINED, NOW)
    assert gateway.maintained_hosts(C)[0].progress == DrainProgress()


# Pods.


def test_residents(gateway: Gateway) -> None:
    """Pods that a host may know, of jobs that have not ended; who is told to leave is marked."""
    first, second = sorted([a_running_job(gateway, 6), a_running_job(gateway, 3, type_=JobType.SERVICE)])
    types = {job: gateway.job(job).type for job in (first, second)}  # type: ignore[union-attr]
    a_job(gateway, 3)
    batch = first if types[first] is JobType.BATCH else second
    gateway.set_pod_goals(batch, [(0, 1)], K, NOW, "stop")
    gateway.want_new_runs(batch, [(3, 1)])
    report(gateway, batch, [4], S)

    found = gateway.residents(["host0", "host1", "elsewhere"])

    expected: dict[str, list[Resident]] = {"host0": [], "host1": [], "elsewhere": []}
    for job in (first, second):
        expected["host0"].append(Resident(job, 0, types[job], job == batch))
        expected["host1"].append(Resident(job, 1, types[job], False))
        if job == batch:
            expected["host0"].append(Resident(job, 3, types[job], True))
    assert found == expected


def test_no_launch_on_a_host_that_goes(gateway: Gateway) -> None:
    """Refused in the transaction itself; a host that waits for its turn still takes pods."""
    job_id = a_job(gateway, 6)
    admit(gateway, job_id)
    gateway.request_maintenance(C, asked("host1", "host2"), 1, NOW)

    assert launch(gateway, job_id, cluster=C) == {0, 2, 3, 5}
    assert states(gateway, job_id)[1] is PodState.READY


def test_batch_pods_leave_a_host(gateway: Gateway) -> None:
    """They are PREEMPTING with the words of maintenance, get another run, and have not failed; others stay."""
    job_id = a_running_job(gateway, 6)

    assert gateway.evict_from_host(job_id, "host1", NOW) == [1, 4]
    assert gateway.evict_from_host(job_id, "host1", NOW) == []

    assert states(gateway, job_id) == [R, PREEMPTING, R, R, PREEMPTING, R]
    evicted = pod(gateway, job_id, 4)
    assert evicted.message == "evicting running task: maintenance of host host1"
    assert evicted.reason == "EvictionReason_HOST_MAINTENANCE"
    assert gateway.settle(job_id, NOW).kill_count == 2
    gateway.mark_killing(job_id, 10)
    report(gateway, job_id, [1], K)
    ended = pod(gateway, job_id, 1)
    assert ended.termination is not None
    assert (ended.termination.reason, ended.failure_count) == (TerminationReason.KILLED_HOST_MAINTENANCE, 0)
    report(gateway, job_id, [4], S)
    settle_all(gateway, job_id)
    assert states(gateway, job_id) == [R, I, R, R, S, R]
    assert pod(gateway, job_id, 1).run_id == 2


def test_a_gang_leaves_whole(gateway: Gateway) -> None:
    """With one member all of the gang leave, wherever they are; other pods of the job do not."""
    job_id = a_running_job(gateway, 6, minimumRunningInstances=3)

    assert gateway.evict_from_host(job_id, "host2", NOW) == [0, 1, 2, 5]
    assert states(gateway, job_id) == [PREEMPTING] * 3 + [R, R, PREEMPTING]


def test_others_of_a_job_with_a_gang_leave_alone(gateway: Gateway) -> None:
    """A host that has no member of the gang does not disturb it."""
    job_id = a_running_job(gateway, 6, minimumRunningInstances=2)

    assert gateway.evict_from_host(job_id, "host2", NOW) == [2, 5]


def test_who_is_not_to_run_again_ends(gateway: Gateway) -> None:
    """killOnPreempt holds for maintenance too."""
    config = a_config(1)
    config.defaultConfig.preemptionPolicy.killOnPreempt = True
    job_id = create(gateway, config)
    gateway.create_pods(job_id, lambda _: None)
    run(gateway, job_id)

    gateway.evict_from_host(job_id, "host0", NOW)
    gateway.mark_killing(job_id, 10)
    report(gateway, job_id, [0], K)
    settle_all(gateway, job_id)

    assert states(gateway, job_id) == [K]


def test_ended_and_unknown_jobs_have_nobody_to_send(gateway: Gateway) -> None:
    """Nothing is evicted of a job that is gone or has ended."""
    job_id = a_running_job(gateway, 3)
    gateway.set_job_goal(job_id, JobState.KILLED, NOW)

    assert gateway.evict_from_host(job_id, "host0", NOW) == []
    assert gateway.evict_from_host(JobId("00000000-0000-4000-8000-000000000009"), "host0", NOW) == []


def test_a_pod_that_has_left_a_host_is_not_asked_to_leave_it(gateway: Gateway) -> None:
    """A drain asks those that it saw on the host a moment ago: one that is elsewhere by now stays there, and takes
    nothing of what the SLA allows."""
    job_id = a_service(gateway, 3, maximumUnavailableInstances=1)
    assert ["host0", "host1", "host2"] == [p.host for p in pods(gateway, job_id)]

    def drain(host: str) -> Grant:
        why = TerminationReason.KILLED_HOST_MAINTENANCE
        return gateway.disrupt(job_id, [0, 1], reason=why, message="", checks_sla=True, now_ns=NOW, host=host)

    assert drain("host1") == Grant((1,))
    report(gateway, job_id, [1], K)
    settle_all(gateway, job_id)
    assert drain("host1") == Grant(())
    assert replace(drain("host0"), refusal=None) == Grant((), (0,))
    assert [p.desired_run_id for p in pods(gateway, job_id)] == [1, 2, 1]
