"""Gangs in storage: launched, released, run again and ended as a whole."""

from __future__ import annotations

from peloton.lifecycle.discovery import NOWHERE, Peer
from peloton.lifecycle.gang import REQUEUE_BACKOFF
from peloton.lifecycle.retry import REASON_LAUNCH_REFUSED
from peloton.model.admission import EvictionResult
from peloton.model.ids import JobId
from peloton.model.job import GangProgress, JobState
from peloton.model.pod import PodState, TerminationReason
from peloton.model.reason import RequeueReason, RequeueRule
from services.storage.pods.host_pods import LaunchRow
from services.storage.storage import Storage
from tests.conformance.storage import builders as world
from tests.conformance.storage.builders import (
    KILLING,
    LAUNCHED,
    NOW,
    READY,
    SECOND,
    Clock,
    F,
    I,
    K,
    L,
    P,
    R,
    S,
    everywhere,
)

WHY = RequeueReason(RequeueRule.NO_GANG_HOSTS_IN_TIME, 3, 3, 600)
REPORTED = "queued again: no hosts for all 3 members of the gang in 600 s"


def a_gang(storage: Storage, count: int = 4, queue_seq: int = 7, retries: int = 3) -> JobId:
    """Create READY pods, the first three of which are a gang."""
    job_id = world.a_job(storage, count, minimumRunningInstances=3, retries=retries)
    world.queue(storage, job_id, queue_seq=queue_seq)
    storage.admission.mark_ready([(job_id, 0, count)])
    return job_id


def runs(storage: Storage, job_id: JobId) -> list[tuple[PodState, int]]:
    return [(one.state, one.run_id) for one in world.pods(storage, job_id)]


@everywhere
def test_a_gang_is_launched_whole_or_not_at_all(storage: Storage) -> None:
    """A launch that lacks a member launches no member. Pods outside the gang are launched."""
    job_id = a_gang(storage)
    rows: list[LaunchRow] = [(i, 1, "host", "agent", {}) for i in range(4)]

    assert {3} == storage.host_pods.mark_launched(job_id, rows[1:], NOW)
    assert [READY, READY, READY, LAUNCHED] == world.states(storage, job_id)
    assert {0, 1, 2} == storage.host_pods.mark_launched(job_id, rows, NOW)


def test_the_view_of_a_gang(storage: Storage) -> None:
    """The view has all members, extras on hosts alone, and the addresses of their hosts; the lead agrees with it."""
    job_id = a_gang(storage, count=5)
    job = storage.jobs.get(job_id)
    assert job is not None
    storage.hosts.claim("west", ["h0", "h1"])
    storage.hosts.set_addresses("west", {"h0": "10.0.0.1", "gone": "10.0.0.9"})
    storage.hosts.set_addresses("east", {"h1": "10.0.0.9"})
    before = storage.pods.gang_view(job, 10)
    assert (1, NOWHERE) == storage.pods.gang_lead(job)

    rows = [(i, 1, f"h{i % 2}", "agent", {"gang": 31_000 + i}) for i in range(4)]
    assert {0, 1, 2, 3} == storage.host_pods.mark_launched(job_id, rows, NOW)
    world.report(storage, job_id, [0, 1, 3], R)
    seen = storage.pods.gang_view(job, 10)

    assert (1, [0, 1, 2], NOWHERE) == (before.generation, [one.instance_id for one in before.pods], before.coordinator)
    assert before.revision != seen.revision
    assert [
        (0, "10.0.0.1", 31_000, True),
        (1, "", 31_001, True),
        (2, "10.0.0.1", 31_002, False),
        (3, "", 31_003, True),
    ] == [(one.instance_id, one.address, one.port, one.is_live) for one in seen.pods]
    assert (1, Peer("h0", "10.0.0.1", 31_000)) == (seen.generation, seen.coordinator) == storage.pods.gang_lead(job)
    assert {"h0": "10.0.0.1", "h1": ""} == storage.hosts.addresses("west")


def test_members_with_addresses_of_their_own(storage: Storage) -> None:
    """Addresses are made of the job and the instance, in the view and in the lead alike."""
    job_id = a_gang(storage, count=3)
    job = storage.jobs.get(job_id)
    assert job is not None
    storage.hosts.claim("west", ["h0"])
    storage.hosts.set_addresses("west", {"h0": "{instance}.{job}.svc"})

    storage.host_pods.mark_launched(job_id, [(i, 1, "h0", "agent", {"gang": 31_000}) for i in range(3)], NOW)

    names = [f"{instance}.{job_id}.svc" for instance in range(3)]
    assert names == [one.address for one in storage.pods.gang_view(job, 10).pods]
    assert (1, Peer("h0", names[0], 31_000)) == storage.pods.gang_lead(job)


def test_a_lost_member_makes_another_generation(storage: Storage) -> None:
    """The others leave while the lost member waits, so none is live; the next launch is of the next generation."""
    job_id = a_gang(storage, count=3)
    job = storage.jobs.get(job_id)
    assert job is not None
    world.launch(storage, job_id)
    world.report(storage, job_id, range(3), R)
    world.report(storage, job_id, [1], L)
    storage.jobs.settle(job_id, NOW)

    seen = storage.pods.gang_view(job, 10)

    assert (2, [False] * 3) == (seen.generation, [one.is_live for one in seen.pods])


@everywhere
def test_the_stages_of_a_gang(storage: Storage) -> None:
    """The launch reads the members by stage. A job without a gang, and a job that has ended, have none."""
    job_id, other = a_gang(storage), world.a_running_job(storage, 3)
    assert (GangProgress(3, {"ready": 3}), 1, 1) == (
        storage.pods.gang(job_id),
        storage.jobs.settle(job_id, NOW).gang_run,
        storage.jobs.settle(job_id, NOW).ready_count,
    )

    world.launch(storage, job_id)
    world.report(storage, job_id, [0], R)
    assert (GangProgress(3, {"running": 1, "starting": 2}), 1) == (
        storage.pods.gang(job_id),
        storage.jobs.settle(job_id, NOW).gang_run,
    )
    world.report(storage, job_id, [1, 2], R)
    assert (GangProgress(3, {"running": 3}), 0) == (
        storage.pods.gang(job_id),
        storage.jobs.settle(job_id, NOW).gang_run,
    )

    assert GangProgress(0) == storage.pods.gang(other)
    world.report(storage, job_id, range(4), S)
    world.settle_all(storage, job_id)
    assert GangProgress(0) == storage.pods.gang(job_id)


@everywhere
def test_a_gang_without_hosts_goes_back_to_its_place(storage: Storage, clock: Clock) -> None:
    """The members are PENDING in their former place, in backoff that grows each time. Other pods of the job stay."""
    job_id = a_gang(storage)
    held_ns = [REQUEUE_BACKOFF.delay_ns(count) for count in (1, 2)]

    first = storage.admission.requeue_gang(job_id, WHY)
    assert EvictionResult(job_id, [(7, 0, 3)], requeue_count=1, held_until_ns=clock() + held_ns[0]) == first
    assert [P, P, P, READY] == world.states(storage, job_id)
    assert (REPORTED, "REASON_GANG_REQUEUED") == (
        world.pod(storage, job_id).message,
        world.pod(storage, job_id).reason,
    )
    assert EvictionResult(job_id) == storage.admission.requeue_gang(job_id, WHY)

    clock.advance(31)
    storage.admission.mark_ready([(job_id, 0, 3)])
    second = storage.admission.requeue_gang(job_id, WHY)
    assert (2, clock() + held_ns[1]) == (second.requeue_count, second.held_until_ns)
    (snapshot,) = storage.admission.snapshot().jobs
    assert (2, second.held_until_ns) == (snapshot.job.gang_requeue_count, snapshot.job.gang_due_ns)
    assert 30 * SECOND == held_ns[0] == held_ns[1] // 2


@everywhere
def test_a_gang_that_does_not_start_ends_and_comes_back(storage: Storage) -> None:
    """Members on hosts are killed and run again, members that had ended too, all in their former place."""
    job_id = a_gang(storage, 3)
    world.launch(storage, job_id)
    world.report(storage, job_id, [0, 1], R)
    world.report(storage, job_id, [0], S)
    world.settle_all(storage, job_id)

    assert [] == storage.admission.requeue_gang(job_id, WHY).queued
    assert 2 == world.settle_all(storage, job_id).kill_count
    assert [(I, 2), (R, 1), (LAUNCHED, 1)] == runs(storage, job_id)
    storage.host_pods.mark_killing(job_id, 10)
    world.report(storage, job_id, [1, 2], K)
    world.settle_all(storage, job_id)

    assert [(I, 2)] * 3 == runs(storage, job_id)
    assert [0] * 3 == [one.failure_count for one in world.pods(storage, job_id)]
    assert [(7, 0, 3)] == storage.admission.mark_pending(job_id, [(0, 3)], 9)
    assert storage.admission.snapshot().jobs[0].job.gang_due_ns > 0


@everywhere
def test_a_gang_that_runs_is_not_given_up(storage: Storage) -> None:
    """A late release of a running gang changes nothing. The number of consecutive releases is reset."""
    job_id = a_gang(storage, 3)
    storage.admission.requeue_gang(job_id, WHY)
    storage.admission.mark_ready([(job_id, 0, 3)])
    world.launch(storage, job_id)
    world.report(storage, job_id, range(3), R)

    assert EvictionResult(job_id) == storage.admission.requeue_gang(job_id, WHY)

    storage.jobs.settle(job_id, NOW)
    job = storage.jobs.get(job_id)
    assert job is not None
    assert ([R] * 3, 0) == (world.states(storage, job_id), job.gang_requeue_count)


@everywhere
def test_a_refused_member_takes_the_others_back(storage: Storage) -> None:
    """A host refuses one member. All members end and return to their place, and no failure counts."""
    job_id = a_gang(storage, 3, retries=0)
    world.launch(storage, job_id)
    world.report(storage, job_id, [1], L, reason=REASON_LAUNCH_REFUSED)

    assert GangProgress(3, {"refused": 1, "starting": 2}) == storage.pods.gang(job_id)
    storage.admission.requeue_gang(job_id, WHY)
    world.settle_all(storage, job_id)
    storage.host_pods.mark_killing(job_id, 10)
    world.report(storage, job_id, [0, 2], K)
    world.settle_all(storage, job_id)

    assert [(I, 2)] * 3 == runs(storage, job_id)
    assert [(7, 0, 3)] == storage.admission.mark_pending(job_id, [(0, 3)], 9)


@everywhere
def test_a_gang_is_retried_as_one(storage: Storage) -> None:
    """A member fails and may be retried. All members run again, also the ones that succeeded, and only its failure
    counts. The gang has a new place, and pods outside it continue."""
    job_id = a_gang(storage)
    world.launch(storage, job_id)
    world.report(storage, job_id, range(4), R)
    world.report(storage, job_id, [0], S)
    world.report(storage, job_id, [1], F, message="Command exited with status 3")

    assert 1 == world.settle_all(storage, job_id).kill_count
    assert [(I, 2), (I, 2), (R, 1), (R, 1)] == runs(storage, job_id)
    reported = "Gang restarted: instance 1 is FAILED, Command exited with status 3"
    assert [reported] * 2 == [world.pod(storage, job_id, i).message.strip() for i in (0, 2)]
    storage.host_pods.mark_killing(job_id, 10)
    world.report(storage, job_id, [2], K)
    world.settle_all(storage, job_id)

    assert [(I, 2), (I, 2), (I, 2), (R, 1)] == runs(storage, job_id)
    assert [0, 1, 0, 0] == [one.failure_count for one in world.pods(storage, job_id)]
    assert [(9, 0, 3)] == storage.admission.mark_pending(job_id, storage.admission.queueable(job_id, 10), 9)


def test_a_gang_fails_as_one(storage: Storage) -> None:
    """A failed member without attempts left ends the others, with a message that names it. The job has failed."""
    job_id = a_gang(storage, 3, retries=0)
    world.launch(storage, job_id)
    world.report(storage, job_id, range(3), R)
    world.report(storage, job_id, [2], F, message="Command exited with status 3")

    assert 2 == world.settle_all(storage, job_id).kill_count
    storage.host_pods.mark_killing(job_id, 10)
    world.report(storage, job_id, [0, 1], K)
    progress = world.settle_all(storage, job_id)

    assert ([K, K, F], JobState.FAILED) == (world.states(storage, job_id), progress.state)
    first = world.pod(storage, job_id)
    assert first.termination is not None
    assert ("Gang ends: instance 2 is FAILED", TerminationReason.FAILED) == (first.reason, first.termination.reason)
    assert any("status 3" in event.message for event in storage.pods.events(job_id, 0))


@everywhere
def test_a_gang_past_its_time_ends_as_one(storage: Storage) -> None:
    """The others end when the first member exceeds its running time."""
    job_id = world.a_job(storage, 3, minimumRunningInstances=3, maxRunningTime=10)
    world.queue(storage, job_id)
    storage.admission.mark_ready([(job_id, 0, 3)])
    world.launch(storage, job_id)
    world.report(storage, job_id, [0], R, NOW)
    world.report(storage, job_id, [1, 2], R, NOW + 5 * SECOND)

    progress = world.settle_all(storage, job_id, NOW + 12 * SECOND)

    assert 3 == progress.kill_count
    assert {K} == {one.goal for one in world.pods(storage, job_id)}


@everywhere
def test_who_stops_a_member_stops_the_gang(storage: Storage) -> None:
    """Stop, start and restart of one member apply to the whole gang. Pods outside the gang stay as they are."""
    job_id = a_gang(storage, 5)
    world.launch(storage, job_id)
    world.report(storage, job_id, range(5), R)

    assert [0, 1, 2] == storage.pods.want_new_runs(job_id, [(1, 1)])
    assert [0, 1, 2, 4] == storage.pods.set_goals(job_id, [(2, 1), (4, 1)], K, NOW, "stop")
    assert [3] == [one.instance_id for one in world.pods(storage, job_id) if one.goal is not K]
    storage.host_pods.mark_killing(job_id, 10)
    assert [KILLING, KILLING, KILLING, R, KILLING] == world.states(storage, job_id)
    assert [0, 1, 2] == storage.pods.set_goals(job_id, [(0, 1)], S, NOW, "start")
    assert [] == storage.pods.set_goals(job_id, [(3, 1)], S, NOW, "start")
