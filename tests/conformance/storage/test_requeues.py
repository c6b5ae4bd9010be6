"""Admitted pods for which no host was found: PENDING in their former place, and in backoff that grows each time,
together with pods of the same shape."""

from __future__ import annotations

import pytest

from peloton.lifecycle.gang import REQUEUE_BACKOFF
from peloton.model.admission import EvictionResult
from peloton.model.job import JobState
from peloton.model.pod import PodState
from peloton.model.reason import Infeasible, RequeueReason, RequeueRule
from services.storage.storage import Storage
from tests.conformance.storage import builders as world
from tests.conformance.storage.builders import NOW, READY, SECOND, Clock, K, P, everywhere

WHY = RequeueReason(RequeueRule.FITS_NO_HOST, infeasible=((Infeasible(host_count=3, constraint="label rack=z"),),))
REPORTED = "queued again, 1 attempt failed, the next in 30 s: 0 of 3 hosts meet the constraint label rack=z"


def read_backoffs(storage: Storage, job_id: str) -> dict[int, int]:
    """Return by instance the end of the backoff of PENDING pods."""
    (found,) = (one for one in storage.admission.snapshot().jobs if one.job.job_id == job_id)
    return {i: span.held_until_ns for span in found.pending for i in range(span.start, span.start + span.count)}


@everywhere
def test_pods_without_a_host_go_back_to_their_place(storage: Storage, clock: Clock) -> None:
    """Named pods that are still READY return. A repeated call changes nothing."""
    job_id = world.a_job(storage, 6, unlike=[2, 5])
    world.queue(storage, job_id, limit=3, queue_seq=7)
    world.queue(storage, job_id, limit=3, queue_seq=8)
    storage.admission.mark_ready([(job_id, 0, 5)])
    until_ns = clock() + REQUEUE_BACKOFF.delay_ns(1)

    gone = storage.admission.requeue_pods(job_id, [(0, 2), (3, 3)], WHY)

    expected = EvictionResult(job_id, [(7, 0, 2), (8, 3, 2)], in_backoff=[(0, 2, until_ns), (3, 2, until_ns)])
    assert expected == gone
    assert [P, P, READY, P, P, P] == world.states(storage, job_id)
    assert (REPORTED, "REASON_POD_REQUEUED") == (
        world.pod(storage, job_id).message,
        world.pod(storage, job_id).reason,
    )
    assert {0: until_ns, 1: until_ns, 3: until_ns, 4: until_ns, 5: 0} == read_backoffs(storage, job_id)
    assert EvictionResult(job_id) == storage.admission.requeue_pods(job_id, [(0, 2), (3, 3)], WHY)
    assert EvictionResult(job_id) == storage.admission.requeue_pods(job_id, [], WHY)


@everywhere
def test_each_pod_is_in_backoff_longer_each_time_in_a_row(storage: Storage, clock: Clock) -> None:
    """Pods with different backoffs separate. A launch resets the backoff."""
    job_id = world.a_job(storage, 2, retries=3, unlike=[1])
    world.admit(storage, job_id)
    storage.admission.requeue_pods(job_id, [(0, 1)], WHY)
    storage.admission.mark_ready([(job_id, 0, 1)])
    assert [(0, 1, clock() + 60 * SECOND), (1, 1, clock() + 30 * SECOND)] == sorted(
        storage.admission.requeue_pods(job_id, [(0, 2)], WHY).in_backoff
    )
    storage.admission.mark_ready([(job_id, 0, 2)])
    assert {} == read_backoffs(storage, job_id)
    world.launch(storage, job_id)
    world.report(storage, job_id, [0, 1], PodState.LOST)
    world.settle_all(storage, job_id)
    world.admit(storage, job_id)

    assert [(0, 2, clock() + 30 * SECOND)] == storage.admission.requeue_pods(job_id, [(0, 2)], WHY).in_backoff


@everywhere
def test_a_pod_that_waits_for_its_reserved_host_stays_while_its_like_are_queued_again(storage: Storage) -> None:
    """The pod is neither named nor requeued with the others."""
    job_id = world.a_job(storage, 5)
    world.queue(storage, job_id, limit=5, queue_seq=7)
    storage.admission.mark_ready([(job_id, 0, 3)])

    gone = storage.admission.requeue_pods(job_id, [(0, 2)], WHY, but=[1])

    assert [(7, 0, 1), (7, 2, 1)] == gone.queued
    assert [P, READY, P, P, P] == world.states(storage, job_id)
    assert {0, 2, 3, 4} == {instance for instance, until_ns in read_backoffs(storage, job_id).items() if until_ns}
    assert EvictionResult(job_id) == storage.admission.requeue_pods(job_id, [(1, 1)], WHY, but=[1])


@everywhere
def test_members_of_a_gang_are_passed_over(storage: Storage) -> None:
    """Members of a gang stay READY, since gangs are requeued by a call of their own."""
    job_id = world.a_job(storage, 4, minimumRunningInstances=3)
    world.admit(storage, job_id)

    assert [(1, 3, 1)] == storage.admission.requeue_pods(job_id, [(0, 4)], WHY).queued
    assert [READY, READY, READY, P] == world.states(storage, job_id)


@everywhere
def test_pods_that_are_to_end_are_passed_over(storage: Storage) -> None:
    """Pods with goal KILLED end in their state, and pods in backoff do, too. A pod that is started again has no
    backoff."""
    job_id = world.a_job(storage, 3, unlike=[1])
    world.admit(storage, job_id)
    storage.admission.requeue_pods(job_id, [(1, 1)], WHY)
    storage.pods.set_goals(job_id, [(0, 2)], K, NOW, "stop")

    assert [(1, 2, 1)] == storage.admission.requeue_pods(job_id, [(0, 3)], WHY).queued
    storage.admission.kill_queued(job_id, NOW)
    assert [K, K, P] == world.states(storage, job_id)
    storage.pods.set_goals(job_id, [(0, 2)], PodState.SUCCEEDED, NOW, "start")
    world.settle_all(storage, job_id)
    world.queue(storage, job_id)
    assert [0, 0] == [read_backoffs(storage, job_id)[i] for i in (0, 1)]
    storage.jobs.set_goal(job_id, JobState.KILLED, NOW)
    storage.admission.kill_queued(job_id, NOW)
    world.settle_all(storage, job_id)
    assert EvictionResult(job_id) == storage.admission.requeue_pods(job_id, [(0, 3)], WHY)


@everywhere
def test_how_long_a_pod_has_been_admitted_and_how_often_without_a_host(storage: Storage, clock: Clock) -> None:
    """Placement reads both numbers for each pod. The time starts again when the pod is requeued."""
    job_id = world.a_job(storage, 2)
    world.queue(storage, job_id)
    storage.admission.mark_ready([(job_id, 0, 1)])
    clock.advance(5)
    storage.admission.mark_ready([(job_id, 1, 1)])
    clock.advance(2)

    assert [(7.0, 0), (2.0, 0)] == [(gang.waited_s, gang.vain_count) for gang in storage.pods.ready_gangs(job_id, 10)]
    storage.admission.requeue_pods(job_id, [(0, 2)], WHY)
    clock.advance(60)
    storage.admission.mark_ready([(job_id, 0, 2)])
    assert [(0.0, 1), (0.0, 1)] == [(gang.waited_s, gang.vain_count) for gang in storage.pods.ready_gangs(job_id, 10)]
    assert 2 == len(world.pods(storage, job_id))


def test_pods_of_one_shape_are_in_backoff_together(storage: Storage, clock: Clock) -> None:
    """READY pods return with the named ones, and PENDING ones wait as long though they were never tried, without an
    event. Pods of another shape are unaffected."""
    job_id = world.a_job(storage, 8, unlike=[2, 7])
    world.queue(storage, job_id)
    storage.admission.mark_ready([(job_id, 0, 4)])
    events = len(storage.pods.events(job_id, 5, None, 10))

    gone = storage.admission.requeue_pods(job_id, [(0, 1)], WHY)

    until_ns = clock() + 30 * SECOND
    assert [(1, 0, 2), (1, 3, 1)] == gone.queued
    assert [(0, 2, until_ns), (3, 1, until_ns), (4, 3, until_ns)] == gone.in_backoff
    assert {0: until_ns, 1: until_ns, 3: until_ns, 4: until_ns, 5: until_ns, 6: until_ns, 7: 0} == read_backoffs(
        storage, job_id
    )
    assert events == len(storage.pods.events(job_id, 5, None, 10))
    storage.admission.mark_ready([(job_id, 4, 1)])
    again_ns = clock() + 60 * SECOND
    assert [(4, 1, again_ns), (0, 2, again_ns), (3, 1, again_ns), (5, 2, again_ns)] == storage.admission.requeue_pods(
        job_id, [(4, 1)], WHY
    ).in_backoff


@everywhere
def test_a_shape_that_finds_hosts_is_not_in_backoff(storage: Storage, clock: Clock) -> None:
    """Pods that waited for too long return, and no others, while some pods of the shape are launched."""
    job_id = world.a_job(storage, 5)
    world.queue(storage, job_id)
    storage.admission.mark_ready([(job_id, 0, 3)])
    clock.advance(5)
    world.launch(storage, job_id, 1)

    assert [(1, 1, 1)] == storage.admission.requeue_pods(job_id, [(1, 1)], WHY).queued
    assert [READY, P, P] == world.states(storage, job_id)[2:]
    assert [0, 0] == [read_backoffs(storage, job_id)[i] for i in (3, 4)]


@everywhere
def test_a_hold_is_no_shorter_than_the_try_before(storage: Storage, clock: Clock) -> None:
    """The backoff is at least the duration of the attempt and the requested minimum. A very long attempt gives the
    longest backoff."""
    job_id = world.a_job(storage, 1)
    world.queue(storage, job_id)
    for took_s, least_s, expected_s in ((400, 0, 400), (10, 0, 60), (10, 1_800, 1_800), (5_000, 0, 600)):
        storage.admission.mark_ready([(job_id, 0, 1)])
        clock.advance(took_s)
        gone = storage.admission.requeue_pods(job_id, [(0, 1)], WHY, least_s)
        assert [(0, 1, clock() + expected_s * SECOND)] == gone.in_backoff


@pytest.mark.parametrize("gang", [1, 2])
def test_failed_tries_leave_a_bounded_number_of_events(storage: Storage, clock: Clock, gang: int) -> None:
    """The number of events is bounded, and the events of earlier runs are kept."""
    job_id = world.a_job(storage, 2, retries=3, minimumRunningInstances=gang)
    world.admit(storage, job_id)
    world.launch(storage, job_id)
    world.report(storage, job_id, [0, 1], PodState.LOST)
    world.settle_all(storage, job_id)
    world.admit(storage, job_id)
    counts: list[int] = []
    for _ in range(10):
        if gang == 1:
            storage.admission.requeue_pods(job_id, [(0, 2)], WHY)
        else:
            storage.admission.requeue_gang(job_id, WHY)
        counts.append(len(storage.pods.events(job_id, 0, None, 10)))
        clock.advance(600)
        storage.admission.mark_ready([(job_id, 0, 2)])

    assert counts[1:] == counts[:1] * 9
    first, second = ({event.state for event in storage.pods.events(job_id, 0, run, 10)} for run in (1, 2))
    assert {READY, PodState.LAUNCHED, PodState.LOST} <= first
    assert {P, READY} <= second
    if gang == 1:
        assert storage.pods.events(job_id, 0, 2, 10)[1].message.startswith(
            "queued again, 10 attempts failed, the next in"
        )
