"""Evictions in storage: pods that return to the queue, pods that end on their host, and the events of both."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peloton.lifecycle.reason_text import eviction_text
from peloton.model.admission import AllocatedRange, EvictionOrder, EvictionResult, HeldRange, RevocableRun
from peloton.model.ids import JobId, PodId
from peloton.model.pod import Cause, PodState, Termination, TerminationReason
from peloton.model.resources import Resources
from services.storage.storage import Storage
from tests.conformance.storage import builders as world
from tests.conformance.storage.builders import NOW, READY, I, K, L, P, R, S, everywhere
from tests.reasons import HOT, PREEMPTED, PREEMPTED_TEXT

PREEMPTING, RUNNING, KILLING = PodState.PREEMPTING, R, PodState.KILLING
MESSAGE, REASON = f"evicting running task: {PREEMPTED_TEXT}", "EvictionReason_PREEMPTION"


@everywhere
def test_admitted_pods_go_back_to_their_place(storage: Storage) -> None:
    """Evicted READY pods are PENDING under their former queue number, with the reason. Others stay READY."""
    job_id = world.a_job(storage, 4)
    world.queue(storage, job_id, queue_seq=7)
    storage.admission.mark_ready([(job_id, 0, 4)])

    results = storage.admission.evict([EvictionOrder(job_id, 2, 2, False, PREEMPTED)])

    assert results == [EvictionResult(job_id, queued=[(7, 2, 2)])]
    assert world.states(storage, job_id) == [READY, READY, P, P]
    assert (world.pod(storage, job_id, 3).message, world.pod(storage, job_id, 3).reason) == (PREEMPTED_TEXT, REASON)
    assert [(7, 2, 2)] == [(p.queue_seq, p.start, p.count) for p in storage.admission.snapshot().jobs[0].pending]


def test_running_pods_end_and_run_again(storage: Storage) -> None:
    """An evicted pod on a host is PREEMPTING, is killed, and has a next run without a failure. Its events name the
    reason."""
    job_id = world.a_running_job(storage, 2)

    results = storage.admission.evict([EvictionOrder(job_id, 1, 1, False, PREEMPTED)])

    assert results == [EvictionResult(job_id, leaving=[(1, 1)])]
    evicted = world.pod(storage, job_id, 1)
    assert (evicted.state, evicted.message, evicted.reason) == (PREEMPTING, MESSAGE, REASON)
    assert storage.jobs.settle(job_id, NOW).kill_count == 1
    assert [row[0].instance_id for row in storage.host_pods.mark_killing(job_id, 10)] == [1]
    world.report(storage, job_id, [1], K)
    ended = world.pod(storage, job_id, 1)
    assert ended.termination is not None
    assert (ended.termination.reason, ended.failure_count) == (TerminationReason.PREEMPTED_RESOURCES, 0)
    world.settle_all(storage, job_id)
    again = world.pod(storage, job_id, 1)
    assert (again.state, again.run_id, again.termination) == (I, 2, None)
    reported = [(event.state, event.message) for event in storage.pods.events(job_id, 1, run_id=1)]
    assert (PREEMPTING, MESSAGE) in reported


def test_an_evicted_pod_always_ends(storage: Storage) -> None:
    """The kill is repeated until the pod is KILLING, whatever its host reports and however often its job settles. A
    KILLING pod is killed again when Mesos is reconciled. No timeout is needed."""
    job_id = world.a_running_job(storage, 1)
    storage.admission.evict([EvictionOrder(job_id, 0, 1, False, PREEMPTED)])

    counts = [storage.jobs.settle(job_id, NOW).kill_count for _ in range(2)]  # the first worker died before its kill
    world.report(storage, job_id, [0], RUNNING)
    counts.append(storage.jobs.settle(job_id, NOW).kill_count)

    assert counts == [1, 1, 1]
    assert [evicted.evicted for evicted in storage.admission.snapshot().jobs[0].allocated] == [True]
    reported = [row[0] for row in storage.host_pods.mark_killing(job_id, 10)]
    assert (storage.jobs.settle(job_id, NOW).kill_count, reported) == (0, [world.pod(storage, job_id, 0).pod_id])
    assert [
        row[0] for row in storage.host_pods.mark_killing(job_id, 10, again=True)
    ] == reported  # the message was lost
    assert [row[3] for page in storage.host_pods.on_hosts() for row in page] == [
        KILLING
    ]  # killed again by reconciliation


@everywhere
def test_an_eviction_is_reported_once(storage: Storage) -> None:
    """Pods that are leaving already, and pods with goal KILLED, are passed over."""
    job_id = world.a_running_job(storage, 3)
    storage.pods.set_goals(job_id, [(0, 1)], K, NOW, "stop")
    storage.admission.evict([EvictionOrder(job_id, 1, 1, False, PREEMPTED)])

    assert [EvictionResult(job_id, leaving=[(2, 1)])] == storage.admission.evict(
        [EvictionOrder(job_id, 0, 3, False, PREEMPTED)]
    )
    assert world.pod(storage, job_id, 1).desired_run_id == 2


def test_kill_on_preempt_is_the_end(storage: Storage) -> None:
    """A pod with kill-on-preempt is not run again after an eviction. An override of one instance counts."""
    config = world.a_config(2, retries=3)
    config.instanceConfig[1].preemptionPolicy.killOnPreempt = True
    job_id = world.create(storage, config)
    storage.pods.create(job_id, lambda _: None)
    world.run(storage, job_id)

    storage.admission.evict([EvictionOrder(job_id, 0, 2, False, PREEMPTED)])
    storage.host_pods.mark_killing(job_id, 10)
    world.report(storage, job_id, [0, 1], K)
    world.settle_all(storage, job_id)

    assert world.states(storage, job_id) == [I, K]
    assert [world.pod(storage, job_id, i).failure_count for i in range(2)] == [0, 0]
    assert (world.pod(storage, job_id, 1).reason, world.pod(storage, job_id, 1).goal) == (REASON, PREEMPTING)
    assert {S, PREEMPTING} == {event.goal for event in storage.pods.events(job_id, 1)}


@everywhere
def test_who_was_killed_by_a_preemption_is_started_again(storage: Storage) -> None:
    """A start runs the pod again, as it does a stopped pod. A restart passes it over, and a stop changes nothing."""
    config = world.a_config(2)
    config.instanceConfig[1].preemptionPolicy.killOnPreempt = True
    job_id = world.create(storage, config)
    storage.pods.create(job_id, lambda _: None)
    world.run(storage, job_id)
    storage.admission.evict([EvictionOrder(job_id, 1, 1, False, PREEMPTED)])
    storage.host_pods.mark_killing(job_id, 10)
    world.report(storage, job_id, [1], K)
    world.settle_all(storage, job_id)

    assert [] == storage.pods.set_goals(job_id, [(1, 1)], K, NOW, "stop")
    assert [] == storage.pods.want_new_runs(job_id, [(1, 1)])
    assert [1] == storage.pods.set_goals(job_id, [(1, 1)], S, NOW, "start")
    again = world.pod(storage, job_id, 1)
    assert (I, S, 2) == (again.state, again.goal, again.run_id)


@everywhere
def test_who_succeeds_while_leaving_has_succeeded(storage: Storage) -> None:
    """A pod that succeeded before its kill arrived is done. A restart gives it a run."""
    job_id = world.a_running_job(storage, 2)
    storage.admission.evict([EvictionOrder(job_id, 0, 2, False, PREEMPTED)])

    world.report(storage, job_id, [0], S)
    world.settle_all(storage, job_id)

    assert world.states(storage, job_id) == [S, PREEMPTING]
    assert storage.pods.want_new_runs(job_id, [(0, 1)]) == [0]
    world.settle_all(storage, job_id)
    assert world.states(storage, job_id) == [I, PREEMPTING]


@everywhere
def test_an_evicted_gang_is_queued_as_a_gang(storage: Storage) -> None:
    """Ended members wait for the remaining ones, and other pods of the job do not. All return to their former place."""
    job_id = world.a_job(storage, 4, minimumRunningInstances=3)
    world.queue(storage, job_id, queue_seq=7)
    storage.admission.mark_ready([(job_id, 0, 4)])
    world.report(storage, job_id, world.launch(storage, job_id), R)
    storage.admission.evict(
        [EvictionOrder(job_id, 0, 3, True, PREEMPTED), EvictionOrder(job_id, 3, 1, False, PREEMPTED)]
    )
    storage.host_pods.mark_killing(job_id, 10)

    world.report(storage, job_id, [0, 3], K)
    assert [] == storage.admission.queueable(job_id, 10)
    world.settle_all(storage, job_id)
    assert [(3, 1)] == storage.admission.queueable(job_id, 10)
    world.report(storage, job_id, [1, 2], K)
    world.settle_all(storage, job_id)
    assert [(0, 3), (3, 1)] == storage.admission.queueable(job_id, 10)
    assert [(7, 0, 4)] == storage.admission.mark_pending(job_id, [(0, 3), (3, 1)], 9)


@everywhere
def test_who_succeeded_before_the_eviction_of_its_gang_runs_again(storage: Storage) -> None:
    """A gang returns whole, whether a member had succeeded before the others were evicted or meanwhile."""
    job_id = world.a_running_job(storage, 3, minimumRunningInstances=3)
    world.report(storage, job_id, [0], S)
    storage.admission.evict([EvictionOrder(job_id, 0, 3, True, PREEMPTED)])
    world.report(storage, job_id, [1], S)
    world.settle_all(storage, job_id)
    assert world.states(storage, job_id) == [I, I, PREEMPTING]

    storage.host_pods.mark_killing(job_id, 10)
    world.report(storage, job_id, [2], K)
    world.settle_all(storage, job_id)

    assert [(p.state, p.run_id, p.failure_count) for p in storage.pods.page(job_id)] == [(I, 2, 0)] * 3
    assert [(0, 3)] == storage.admission.queueable(job_id, 10)


@everywhere
def test_kill_on_preempt_of_one_member_ends_the_gang(storage: Storage) -> None:
    """The setting of one member applies to the whole gang. Pods outside the gang return."""
    config = world.a_config(4, minimumRunningInstances=3)
    config.instanceConfig[1].preemptionPolicy.killOnPreempt = True
    job_id = world.create(storage, config)
    storage.pods.create(job_id, lambda _: None)
    world.run(storage, job_id)

    storage.admission.evict(
        [EvictionOrder(job_id, 0, 3, True, PREEMPTED), EvictionOrder(job_id, 3, 1, False, PREEMPTED)]
    )
    storage.host_pods.mark_killing(job_id, 10)
    world.report(storage, job_id, range(4), K)
    world.settle_all(storage, job_id)

    assert world.states(storage, job_id) == [K, K, K, I]


@pytest.mark.parametrize("state", [K, L])
def test_kill_on_preempt_holds_when_an_operator_empties_the_host(storage: Storage, state: PodState) -> None:
    """The setting applies as after an eviction by Peloton: an override of one instance counts, and the goal of the pod
    shows the end."""
    config = world.a_config(3)
    config.instanceConfig[1].preemptionPolicy.killOnPreempt = True
    job_id = world.create(storage, config)
    storage.pods.create(job_id, lambda _: None)
    world.run(storage, job_id)

    cause = Cause.HOST_DRAINED if state is K else Cause.HOST_GONE
    world.report(storage, job_id, range(2), state, cause=cause)
    world.report(storage, job_id, [2], state, cause=Cause.NOT_STARTED)
    world.settle_all(storage, job_id)

    assert world.states(storage, job_id) == [I, K, I]
    ended = world.pod(storage, job_id, 1)
    assert (ended.goal, ended.failure_count) == (PREEMPTING, 0)
    assert ended.termination == Termination(TerminationReason.KILLED_HOST_MAINTENANCE)
    assert {S, PREEMPTING} == {event.goal for event in storage.pods.events(job_id, 1)}


@everywhere
def test_kill_on_preempt_of_one_member_ends_the_gang_of_an_emptied_host(storage: Storage) -> None:
    """The member on the host does not have the setting, and one elsewhere has it. Pods outside the gang return."""
    config = world.a_config(4, minimumRunningInstances=3)
    config.instanceConfig[1].preemptionPolicy.killOnPreempt = True
    job_id = world.create(storage, config)
    storage.pods.create(job_id, lambda _: None)
    world.run(storage, job_id)

    world.report(storage, job_id, [0, 3], K, cause=Cause.HOST_DRAINED)
    world.settle_all(storage, job_id)
    storage.host_pods.mark_killing(job_id, 10)
    world.report(storage, job_id, [1, 2], K)
    world.settle_all(storage, job_id)

    assert world.states(storage, job_id) == [K, K, K, I]


@everywhere
def test_what_is_held_and_leaving_is_found_again(storage: Storage) -> None:
    """The ranges distinguish launched from leaving pods, and the snapshot contains the evicted ones."""
    job_id = world.a_job(storage, 5)
    world.queue(storage, job_id, queue_seq=3)
    storage.admission.mark_ready([(job_id, 0, 5)])
    world.launch(storage, job_id, limit=3)
    storage.admission.evict([EvictionOrder(job_id, 0, 1, False, PREEMPTED)])
    storage.pods.set_goals(job_id, [(1, 1)], K, NOW, "stop")

    assert storage.admission.list_held([job_id]) == {
        job_id: [
            HeldRange(3, 0, 2, 1, is_launched=True, is_leaving=True),
            HeldRange(3, 2, 1, 1, is_launched=True, is_leaving=False),
            HeldRange(3, 3, 2, 1, is_launched=False, is_leaving=False),
        ]
    }
    assert storage.admission.snapshot().jobs[0].allocated == (
        AllocatedRange(0, 1, 1, True, True),
        AllocatedRange(1, 2, 1, True, False),
        AllocatedRange(3, 2, 1, False, False),
    )
    assert world.states(storage, job_id) == [PREEMPTING, PodState.LAUNCHED, PodState.LAUNCHED, READY, READY]


@everywhere
def test_only_the_named_run_is_evicted(storage: Storage) -> None:
    """An eviction names the measured run, and leaves its successor alone. The reason is the given one."""
    job_id = world.a_running_job(storage, 2)
    order = EvictionOrder(job_id, 1, 1, False, HOT, run_id=2)

    assert storage.admission.evict([order]) == [EvictionResult(job_id)]
    assert storage.admission.evict([replace(order, run_id=1)]) == [EvictionResult(job_id, leaving=[(1, 1)])]

    evicted = world.pod(storage, job_id, 1)
    assert (evicted.state, evicted.reason) == (PREEMPTING, "EvictionReason_QOS")
    assert evicted.message == f"evicting running task: {eviction_text(HOT)}"


def test_revocable_pods_on_hosts_are_found(storage: Storage) -> None:
    """The answer contains the given runs that are on hosts on revocable cpu, with the properties that decide which of
    them leaves."""
    config = world.a_config(4, priority=3, revocable=True)
    config.instanceConfig[2].resource.cpuLimit = 0.25
    config.instanceConfig[2].revocable = True
    slack = world.create(storage, config)
    storage.pods.create(slack, lambda _: None)
    world.run(storage, slack)
    plain = world.a_running_job(storage, 1)
    world.report(storage, slack, [0], S)
    storage.admission.evict([EvictionOrder(slack, 3, 1, False, PREEMPTED)])
    unknown = PodId(JobId("00000000-0000-4000-8000-000000000009"), 0, 1)

    found = storage.host_pods.revocable([*(PodId(slack, i, 1) for i in range(4)), PodId(plain, 0, 1), unknown])

    shape = Resources.of(1.5, 100)
    assert sorted(found, key=lambda row: row.pod_id) == [
        RevocableRun(PodId(slack, 1, 1), 3, NOW, shape, False),
        RevocableRun(PodId(slack, 2, 1), 3, NOW, Resources(cpu_milli=250), False),
        RevocableRun(PodId(slack, 3, 1), 3, NOW, shape, True),
    ]
    assert storage.host_pods.revocable([PodId(slack, 1, 2)]) == storage.host_pods.revocable([]) == []
