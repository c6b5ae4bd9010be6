"""Next runs of an instance whose run has ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from peloton.lifecycle.backoff import Backoff
from peloton.lifecycle.endings import RULES, RetryRule
from peloton.lifecycle.goal import default_pod_goal
from peloton.lifecycle.retry import QUICK_FAILURES, REASON_LAUNCH_REFUSED, REST, Ending, after_end, may_retry
from peloton.model.ids import JobId
from peloton.model.job import JobType
from peloton.model.pod import TERMINAL, Cause, NextRun, PodRecord, PodState

SECOND = 1_000_000_000
RETRY = Ending(NextRun.RETRY)
REPLACE = Ending(NextRun.REPLACE)
RELAUNCH = Ending(NextRun.RELAUNCH)


def make_ended_pod(state: PodState, **changes: Any) -> PodRecord:
    pod = PodRecord(
        job_id=JobId("11111111-2222-3333-4444-555555555555"),
        instance_id=0,
        run_id=1,
        state=state,
        goal=PodState.SUCCEEDED,
        config_version=1,
        desired_config_version=1,
        desired_run_id=1,
        updated_ns=100 * SECOND,
    )
    return replace(pod, **changes)


@pytest.mark.parametrize(
    ("state", "changes", "expected"),
    [
        (PodState.SUCCEEDED, {}, REST),
        (PodState.FAILED, {"failure_count": 1}, REST),
        (PodState.FAILED, {"failure_count": 1, "max_failures": 1}, REST),
        (PodState.FAILED, {"failure_count": 1, "max_failures": 2}, RETRY),
        (PodState.KILLED, {"failure_count": 1, "max_failures": 2}, RETRY),
        (PodState.LOST, {}, REST),
        (PodState.LOST, {"max_failures": 1}, RETRY),
        (PodState.LOST, {"reason": REASON_LAUNCH_REFUSED, "failure_count": 100}, RELAUNCH),
        (PodState.SUCCEEDED, {"desired_run_id": 2}, REPLACE),
        (PodState.KILLED, {"desired_run_id": 2, "failure_count": 9}, REPLACE),
        (PodState.FAILED, {"desired_config_version": 2}, REPLACE),
        (PodState.KILLED, {"desired_run_id": 2, "goal": PodState.KILLED}, REST),
        (PodState.FAILED, {"max_failures": 9, "goal": PodState.KILLED}, REST),
        (PodState.LOST, {"reason": REASON_LAUNCH_REFUSED, "goal": PodState.KILLED}, REST),
        (PodState.FAILED, {"max_failures": 9, "goal": PodState.DELETED}, REST),
        (PodState.DELETED, {"max_failures": 9}, REST),
    ],
)
def test_batch_pods_run_again_by_rule(state: PodState, changes: dict[str, object], expected: Ending) -> None:
    """A batch pod runs again at once while attempts are left."""
    assert expected == after_end(make_ended_pod(state, **changes), JobType.BATCH)


@pytest.mark.parametrize("cause", [cause for cause in Cause if RULES[cause].retry is RetryRule.BY_PLATFORM])
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"failure_count": 3}, RETRY),
        ({"failure_count": 4}, REST),
        ({"failure_count": 4, "max_failures": 5}, RETRY),
    ],
)
def test_what_the_platform_broke_runs_four_times_at_least(
    cause: Cause, changes: dict[str, object], expected: Ending
) -> None:
    """A platform failure is retried up to the larger of the job's limit and four."""
    assert expected == after_end(make_ended_pod(PodState.FAILED, **changes), JobType.BATCH, cause=cause)


EVICTED_BY_CLUSTER = [cause for cause in Cause if RULES[cause].retry is RetryRule.ALWAYS]


@pytest.mark.parametrize("job_type", [JobType.BATCH, JobType.SERVICE])
@pytest.mark.parametrize("state", [PodState.KILLED, PodState.LOST])
@pytest.mark.parametrize("cause", EVICTED_BY_CLUSTER)
def test_what_was_evicted_runs_again_at_once(cause: Cause, state: PodState, job_type: JobType) -> None:
    """A run evicted by the cluster runs again at once, however often it failed before, and whatever the job allows: it
    was not at fault.
    """
    pod = make_ended_pod(state, failure_count=50, goal=default_pod_goal(job_type))

    assert REPLACE == after_end(pod, job_type, cause=cause)


def test_what_was_to_end_rests_when_it_is_evicted() -> None:
    """A pod that is stopped or has succeeded before its eviction rests."""
    stopped = make_ended_pod(PodState.KILLED, goal=PodState.KILLED)

    assert REST == after_end(stopped, JobType.BATCH, cause=Cause.HOST_DRAINED)
    assert REST == after_end(make_ended_pod(PodState.SUCCEEDED), JobType.BATCH, cause=Cause.HOST_DRAINED)


def test_a_lost_launch_is_always_repeated() -> None:
    """A launch that never started uses up no attempt, whatever the job allows."""
    assert RELAUNCH == after_end(make_ended_pod(PodState.LOST, failure_count=50), JobType.BATCH, launch_lost=True)


@pytest.mark.parametrize("state", sorted(TERMINAL - {PodState.DELETED}))
def test_services_always_run_again(state: PodState) -> None:
    """A service ends only when it is stopped: it runs again at once the first time, later after failures."""
    pod = make_ended_pod(state, goal=PodState.RUNNING)

    assert RETRY == after_end(pod, JobType.SERVICE)
    assert Ending(NextRun.RETRY, 130 * SECOND) == after_end(replace(pod, failure_count=1), JobType.SERVICE)


@pytest.mark.parametrize(
    ("started_s", "ended_s", "failures", "due_s"),
    [
        (99, 100, 1, 110),
        (99, 100, 2, 120),
        (99, 100, 3, 140),
        (99, 100, 50, 700),
        (0, 100, 1, 110),
        (95, 100, 1, 105),
        (91, 100, 1, 105),
        (90, 100, 1, 0),
        (50, 100, 1, 0),
        (50, 100, 4, 130),
    ],
)
def test_a_batch_pod_waits_before_it_returns_to_its_host(
    started_s: int, ended_s: int, failures: int, due_s: int
) -> None:
    """The wait is 10 s, 20 s, 40 s ... 10 m from the start of its run, up to the next multiple of 5 s; from its end if
    it never started. A run that was longer than its wait is repeated at once.
    """
    pod = make_failed_run(started_s, ended_s, failures)

    assert Ending(NextRun.RETRY, due_s * SECOND) == after_end(
        pod, JobType.BATCH, batch_backoff=Backoff(10, 600), has_other_host=False
    )


@pytest.mark.parametrize(
    ("started_s", "failures", "due_s"),
    [
        (99, 1, 0),
        (99, 2, 0),
        (99, QUICK_FAILURES, 110),
        (99, QUICK_FAILURES + 1, 120),
        (99, 50, 700),
        (0, QUICK_FAILURES, 110),
        (90, QUICK_FAILURES + 1, 110),
        (89, QUICK_FAILURES + 1, 0),
        (10, 50, 0),
    ],
)
def test_a_batch_pod_that_may_go_elsewhere_waits_from_its_third_quick_failure(
    started_s: int, failures: int, due_s: int
) -> None:
    """The first two retries start at once, and so does every later one of a run that was longer than seconds."""
    pod = make_failed_run(started_s, 100, failures)

    assert Ending(NextRun.RETRY, due_s * SECOND) == after_end(pod, JobType.BATCH, batch_backoff=Backoff(10, 600))


def make_failed_run(started_s: int, ended_s: int, failures: int) -> PodRecord:
    times = {"started_ns": started_s * SECOND, "updated_ns": ended_s * SECOND}
    return make_ended_pod(PodState.FAILED, failure_count=failures, max_failures=100, **times)


@pytest.mark.parametrize("cause", EVICTED_BY_CLUSTER)
def test_no_pod_waits_that_did_not_fail(cause: Cause) -> None:
    """Pods that were evicted by the cluster or lost run again at once, however often they failed before."""
    lost = make_ended_pod(PodState.LOST, failure_count=3, max_failures=5)

    assert RETRY == after_end(lost, JobType.BATCH, batch_backoff=Backoff(10, 600))
    assert RELAUNCH == after_end(lost, JobType.BATCH, launch_lost=True, batch_backoff=Backoff(10, 600))
    assert REPLACE == after_end(lost, JobType.BATCH, cause=cause, batch_backoff=Backoff(10, 600))


@pytest.mark.parametrize(
    ("changes", "cause", "expected"),
    [
        ({}, Cause.PROGRAM, False),
        ({"max_failures": 1}, Cause.PROGRAM, False),
        ({"max_failures": 2}, Cause.PROGRAM, True),
        ({"max_failures": 2, "failure_count": 1}, Cause.PROGRAM, False),
        ({"failure_count": 2}, Cause.CONTAINER, True),
        ({"failure_count": 3}, Cause.CONTAINER, False),
        ({"max_failures": 2, "goal": PodState.KILLED}, Cause.PROGRAM, False),
    ],
)
def test_attempts_that_are_left_to_a_run_that_fails(changes: dict[str, object], cause: Cause, expected: bool) -> None:
    """The failure counts before the next run is decided."""
    assert expected is may_retry(make_ended_pod(PodState.RUNNING, **changes), cause)


def test_a_pod_that_has_not_ended_is_no_question() -> None:
    """The rule is for ended pods only."""
    with pytest.raises(AssertionError, match="has not ended"):
        after_end(make_ended_pod(PodState.RUNNING), JobType.BATCH)


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [(0, 0), (1, 30), (2, 60), (3, 120), (4, 240), (5, 480), (6, 960), (7, 1920), (8, 3600), (9, 3600), (10**9, 3600)],
)
def test_backoff_doubles_up_to_an_hour(failures: int, seconds: int) -> None:
    """30 s, 1 m, 2 m ... 32 m, then always an hour; no wait before the first failure."""
    assert seconds * SECOND == Backoff().delay_ns(failures)
