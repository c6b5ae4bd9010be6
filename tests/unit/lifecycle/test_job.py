"""A job's state from the states of its pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.lifecycle import deadline
from peloton.lifecycle.job import admit_count, count_scheduled, has_started, roll_up
from peloton.model.ids import JobId, RespoolId
from peloton.model.job import JOB_TERMINAL, JobRecord, JobState, JobType, SlaSpec
from peloton.model.pod import TERMINAL, PodState

SECOND = 1_000_000_000
I, P, R, S, F, L, K = (  # noqa: E741
    PodState.INITIALIZED,
    PodState.PENDING,
    PodState.RUNNING,
    PodState.SUCCEEDED,
    PodState.FAILED,
    PodState.LOST,
    PodState.KILLED,
)


def a_job(instance_count: int = 4, sla: SlaSpec | None = None, **changes: Any) -> JobRecord:
    job = JobRecord(
        job_id=JobId("11111111-2222-3333-4444-555555555555"),
        name="job",
        type=JobType.BATCH,
        owning_team="team",
        respool_id=RespoolId("pool"),
        instance_count=instance_count,
        sla=sla or SlaSpec(),
        state=JobState.PENDING,
        goal=JobState.SUCCEEDED,
    )
    return replace(job, **changes)


STOPPED: dict[str, Any] = {"goal": JobState.KILLED, "state": JobState.KILLING}
SERVICE = {"type": JobType.SERVICE, "goal": JobState.RUNNING}
STOPPED_SERVICE = {"type": JobType.SERVICE, **STOPPED}


@pytest.mark.parametrize(
    ("counts", "changes", "expected"),
    [
        ({I: 4}, {}, JobState.PENDING),
        ({P: 3, R: 1}, {}, JobState.RUNNING),
        ({S: 3, R: 1}, {}, JobState.RUNNING),
        ({S: 4}, {}, JobState.SUCCEEDED),
        ({S: 3, F: 1}, {}, JobState.FAILED),
        ({S: 3, L: 1}, {}, JobState.FAILED),
        ({S: 2, F: 1, K: 1}, {}, JobState.KILLED),
        ({S: 3, K: 1}, {}, JobState.KILLED),
        ({S: 3, PodState.KILLING: 1}, STOPPED, JobState.KILLING),
        ({R: 4}, STOPPED, JobState.KILLING),
        ({S: 4}, STOPPED, JobState.SUCCEEDED),
        ({K: 4}, STOPPED, JobState.KILLED),
        ({S: 5}, {}, JobState.PENDING),
        ({I: 2}, {}, JobState.INITIALIZED),
        ({}, {}, JobState.INITIALIZED),
        ({S: 2}, {}, JobState.INITIALIZED),
        ({K: 2}, STOPPED, JobState.KILLING),
        ({K: 4, R: 1}, STOPPED_SERVICE, JobState.KILLING),
        ({K: 5}, STOPPED_SERVICE, JobState.KILLED),
        ({R: 4}, SERVICE, JobState.RUNNING),
        ({S: 4}, SERVICE, JobState.PENDING),
        ({F: 4}, SERVICE, JobState.PENDING),
        ({I: 2}, SERVICE, JobState.PENDING),
        ({K: 2}, STOPPED_SERVICE, JobState.KILLED),
        ({}, STOPPED_SERVICE, JobState.KILLED),
        ({F: 2}, STOPPED_SERVICE, JobState.FAILED),
        ({R: 1, K: 1}, STOPPED_SERVICE, JobState.KILLING),
        ({K: 4}, STOPPED_SERVICE, JobState.KILLED),
        ({S: 5}, STOPPED_SERVICE, JobState.SUCCEEDED),
    ],
)
def test_the_first_rule_that_holds_decides(
    counts: dict[PodState, int], changes: dict[str, Any], expected: JobState
) -> None:
    """The rules are evaluated top-down over the counts of pod states."""
    assert expected == roll_up(a_job(**changes), counts)


@pytest.mark.parametrize(
    ("controller", "expected"),
    [(S, JobState.SUCCEEDED), (F, JobState.FAILED), (L, JobState.FAILED), (K, JobState.KILLED)],
)
def test_the_controller_decides_how_its_job_ended(controller: PodState, expected: JobState) -> None:
    """Instance 0 of a controller job decides the end of the job when all pods have ended, and not before."""
    job = a_job(has_controller=True)

    assert expected == roll_up(job, {S: 1, F: 1, K: 2}, controller)
    assert JobState.RUNNING == roll_up(job, {S: 3, R: 1}, controller)


@given(st.dictionaries(st.sampled_from(list(PodState)), st.integers(0, 5)), st.sampled_from(list(JobType)))
def test_a_job_with_a_living_pod_has_not_ended(counts: dict[PodState, int], job_type: JobType) -> None:
    """A job with a live pod does not end, whatever the counts."""
    total = sum(counts.values())
    state = roll_up(a_job(total, type=job_type), counts)

    if any(count for pod, count in counts.items() if pod not in TERMINAL):
        assert state not in JOB_TERMINAL


def test_a_job_starts_with_its_first_pod_on_a_host() -> None:
    """Queueing is no start."""
    assert not has_started({I: 1, P: 2, PodState.READY: 1, PodState.LAUNCHED: 1})
    assert has_started({I: 9, PodState.STARTING: 1})


def test_scheduled_pods_are_those_between_queue_and_end() -> None:
    """Pods that wait to be queued, and ended ones, do not count against the maximum."""
    every = dict.fromkeys(PodState, 1)  # states that only clients use count nowhere

    assert 7 == count_scheduled(every)


GANG = SlaSpec(maximum_running_instances=4, minimum_running_instances=3)


@pytest.mark.parametrize(
    ("sla", "counts", "waiting", "gang_waiting", "expected"),
    [
        (SlaSpec(), {I: 10}, 10, 0, 10),
        (SlaSpec(maximum_running_instances=4), {I: 10}, 10, 0, 4),
        (SlaSpec(maximum_running_instances=4), {I: 7, R: 3}, 7, 0, 1),
        (SlaSpec(maximum_running_instances=4), {I: 6, R: 4}, 6, 0, 0),
        (SlaSpec(maximum_running_instances=4), {I: 5, R: 5}, 5, 0, 0),
        (SlaSpec(maximum_running_instances=4), {I: 6, S: 4}, 6, 0, 4),
        (GANG, {I: 10}, 10, 3, 4),
        (GANG, {I: 8, R: 2}, 8, 3, 0),
        (GANG, {I: 8, R: 2}, 8, 1, 2),
    ],
)
def test_admission_keeps_the_maximum_of_running_instances(
    sla: SlaSpec, counts: dict[PodState, int], waiting: int, gang_waiting: int, expected: int
) -> None:
    """The maximum of running instances limits the queued ones; a waiting gang that does not fit blocks the others."""
    assert expected == admit_count(a_job(10, sla), counts, waiting, gang_waiting)


def test_a_job_that_is_to_end_admits_nothing() -> None:
    """A job with goal KILLED queues no more pods."""
    assert 0 == admit_count(a_job(**STOPPED), {I: 4}, 4, 0)


def test_deadlines_hold_for_batch_jobs_that_set_one() -> None:
    """A cutoff is the start time before which a pod has run too long."""
    job = a_job(sla=SlaSpec(max_running_time_s=30))

    assert 70 * SECOND == deadline.cutoff_ns(job, 100 * SECOND)
    assert deadline.cutoff_ns(a_job(), 100 * SECOND) is None
    assert deadline.cutoff_ns(replace(job, type=JobType.SERVICE), 100 * SECOND) is None


def test_the_wait_for_a_deadline_ends_when_it_has_passed() -> None:
    """The start of a pod lies before the cutoff after the wait."""
    job = a_job(sla=SlaSpec(max_running_time_s=30))
    start_ns = 90 * SECOND

    wait_ns = int(deadline.wait_s(job, start_ns, 100 * SECOND) * SECOND)
    cutoff = deadline.cutoff_ns(job, 100 * SECOND + wait_ns + 1)

    assert 20 * SECOND <= wait_ns <= 20 * SECOND + 1000
    assert cutoff is not None
    assert start_ns < cutoff
    assert 0.0 == deadline.wait_s(job, 0, 100 * SECOND)
