"""Admitted pods for which no host was found: PENDING again in their old place, and held back, longer each time."""

from __future__ import annotations

from peloton.lifecycle.gang import HOLD
from peloton.model.job import JobState
from peloton.model.pod import PodState
from services.storage.gateway import EvictionResult, Gateway
from tests.conformance.storage.builders import (
    NOW,
    READY,
    SECOND,
    Clock,
    K,
    P,
    a_job,
    admit,
    launch,
    pod,
    pods,
    queue,
    report,
    settle_all,
    states,
)

WHY = "0 of 3 hosts meet the constraint label rack=z"


def held_until(gateway: Gateway, job_id: str) -> dict[int, int]:
    """Instance -> not admitted before, of those that are PENDING."""
    (found,) = (one for one in gateway.snapshot().jobs if one.job.job_id == job_id)
    return {i: span.held_until_ns for span in found.pending for i in range(span.start, span.start + span.count)}


def test_pods_without_a_host_go_back_to_their_place(gateway: Gateway, clock: Clock) -> None:
    """Only those that are named and still READY; a repeated call finds nothing to do."""
    job_id = a_job(gateway, 6)
    queue(gateway, job_id, limit=3, queue_seq=7)
    queue(gateway, job_id, limit=3, queue_seq=8)
    gateway.mark_ready([(job_id, 0, 5)])
    until_ns = clock() + HOLD.delay_ns(1)

    gone = gateway.requeue_pods(job_id, [(0, 2), (3, 3)], WHY)

    expected = EvictionResult(job_id, [(7, 0, 2), (8, 3, 2)], held_back=[(0, 2, until_ns), (3, 2, until_ns)])
    assert expected == gone
    assert [P, P, READY, P, P, P] == states(gateway, job_id)
    assert (f"queued again: {WHY}", "REASON_POD_REQUEUED") == (
        pod(gateway, job_id).message,
        pod(gateway, job_id).reason,
    )
    assert {0: until_ns, 1: until_ns, 3: until_ns, 4: until_ns, 5: 0} == held_until(gateway, job_id)
    assert EvictionResult(job_id) == gateway.requeue_pods(job_id, [(0, 2), (3, 3)], WHY)
    assert EvictionResult(job_id) == gateway.requeue_pods(job_id, [], WHY)


def test_each_pod_is_held_back_longer_each_time_in_a_row(gateway: Gateway, clock: Clock) -> None:
    """Pods that were held back differently part; one that was launched begins anew."""
    job_id = a_job(gateway, 2, retries=3)
    admit(gateway, job_id)
    gateway.requeue_pods(job_id, [(0, 1)], WHY)
    gateway.mark_ready([(job_id, 0, 1)])
    assert [(0, 1, clock() + 60 * SECOND), (1, 1, clock() + 30 * SECOND)] == sorted(
        gateway.requeue_pods(job_id, [(0, 2)], WHY).held_back
    )
    gateway.mark_ready([(job_id, 0, 2)])
    assert {} == held_until(gateway, job_id)
    launch(gateway, job_id)
    report(gateway, job_id, [0, 1], PodState.LOST)
    settle_all(gateway, job_id)
    admit(gateway, job_id)

    assert [(0, 2, clock() + 30 * SECOND)] == gateway.requeue_pods(job_id, [(0, 2)], WHY).held_back


def test_members_of_a_gang_are_passed_over(gateway: Gateway) -> None:
    """They have a way of their own."""
    job_id = a_job(gateway, 4, minimumRunningInstances=3)
    admit(gateway, job_id)

    assert [(1, 3, 1)] == gateway.requeue_pods(job_id, [(0, 4)], WHY).queued
    assert [READY, READY, READY, P] == states(gateway, job_id)


def test_pods_that_are_to_end_are_passed_over(gateway: Gateway) -> None:
    """They end where they are, and so do those that are held back; started again they are not held back."""
    job_id = a_job(gateway, 3)
    admit(gateway, job_id)
    gateway.requeue_pods(job_id, [(1, 1)], WHY)
    gateway.set_pod_goals(job_id, [(0, 2)], K, NOW, "stop")

    assert [(1, 2, 1)] == gateway.requeue_pods(job_id, [(0, 3)], WHY).queued
    gateway.kill_queued(job_id, NOW)
    assert [K, K, P] == states(gateway, job_id)
    gateway.set_pod_goals(job_id, [(0, 2)], PodState.SUCCEEDED, NOW, "start")
    settle_all(gateway, job_id)
    queue(gateway, job_id)
    assert [0, 0] == [held_until(gateway, job_id)[i] for i in (0, 1)]
    gateway.set_job_goal(job_id, JobState.KILLED, NOW)
    gateway.kill_queued(job_id, NOW)
    settle_all(gateway, job_id)
    assert EvictionResult(job_id) == gateway.requeue_pods(job_id, [(0, 3)], WHY)


def test_how_long_a_pod_has_been_admitted(gateway: Gateway, clock: Clock) -> None:
    """Is told to placement, of each pod; being queued again it begins anew."""
    job_id = a_job(gateway, 2)
    queue(gateway, job_id)
    gateway.mark_ready([(job_id, 0, 1)])
    clock.advance(5)
    gateway.mark_ready([(job_id, 1, 1)])
    clock.advance(2)

    assert [7.0, 2.0] == [gang.waited_s for gang in gateway.ready_gangs(job_id, 10)]
    gateway.requeue_pods(job_id, [(0, 2)], WHY)
    clock.advance(60)
    gateway.mark_ready([(job_id, 0, 2)])
    assert [0.0, 0.0] == [gang.waited_s for gang in gateway.ready_gangs(job_id, 10)]
    assert 2 == len(pods(gateway, job_id))
