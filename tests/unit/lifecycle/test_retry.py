"""What becomes of an instance whose run has ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peloton.lifecycle.backoff import Backoff
from peloton.lifecycle.retry import REASON_HOST_REJECT_OFFER, REST, Ending, NextRun, after_end, attempts_max
from peloton.model.ids import JobId
from peloton.model.job import JobType
from peloton.model.pod import TERMINAL, PodRecord, PodState

SECOND = 1_000_000_000
RETRY = Ending(NextRun.RETRY)
REPLACE = Ending(NextRun.REPLACE)
RELAUNCH = Ending(NextRun.RELAUNCH)
BROKEN_PIPE = {"reason": "REASON_COMMAND_EXECUTOR_FAILED", "message": "Container terminated with signal Broken pipe"}


def ended(state: PodState, **changes: object) -> PodRecord:
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
    return replace(pod, **changes)  # type: ignore[arg-type]


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
        (PodState.LOST, {"reason": REASON_HOST_REJECT_OFFER, "failure_count": 100}, RELAUNCH),
        (PodState.FAILED, {"failure_count": 3, **BROKEN_PIPE}, RETRY),
        (PodState.FAILED, {"failure_count": 4, **BROKEN_PIPE}, REST),
        (PodState.FAILED, {"failure_count": 4, "max_failures": 5, **BROKEN_PIPE}, RETRY),
        (PodState.FAILED, {"failure_count": 1, **BROKEN_PIPE, "message": "exited"}, REST),
        (PodState.FAILED, {"failure_count": 3, "reason": "REASON_CONTAINER_LAUNCH_FAILED"}, RETRY),
        (PodState.FAILED, {"failure_count": 3, "reason": "REASON_INVALID_OFFERS"}, RETRY),
        (PodState.SUCCEEDED, {"desired_run_id": 2}, REPLACE),
        (PodState.KILLED, {"desired_run_id": 2, "failure_count": 9}, REPLACE),
        (PodState.FAILED, {"desired_config_version": 2}, REPLACE),
        (PodState.KILLED, {"desired_run_id": 2, "goal": PodState.KILLED}, REST),
        (PodState.FAILED, {"max_failures": 9, "goal": PodState.KILLED}, REST),
        (PodState.LOST, {"reason": REASON_HOST_REJECT_OFFER, "goal": PodState.KILLED}, REST),
        (PodState.FAILED, {"max_failures": 9, "goal": PodState.DELETED}, REST),
        (PodState.DELETED, {"max_failures": 9}, REST),
    ],
)
def test_batch_pods_run_again_by_rule(state: PodState, changes: dict[str, object], expected: Ending) -> None:
    """A batch pod runs again at once while attempts are left; what the platform broke has at least four."""
    assert expected == after_end(ended(state, **changes), JobType.BATCH)


def test_a_lost_launch_is_always_repeated() -> None:
    """A launch that never took effect costs no attempt, whatever the job allows."""
    assert RELAUNCH == after_end(ended(PodState.LOST, failure_count=50), JobType.BATCH, launch_lost=True)


@pytest.mark.parametrize("state", sorted(TERMINAL - {PodState.DELETED}))
def test_services_always_run_again(state: PodState) -> None:
    """A service ends only when it is told to: at once the first time, later after failures."""
    pod = ended(state, goal=PodState.RUNNING)

    assert RETRY == after_end(pod, JobType.SERVICE)
    assert Ending(NextRun.RETRY, 130 * SECOND) == after_end(replace(pod, failure_count=1), JobType.SERVICE)


def test_a_pod_that_has_not_ended_is_no_question() -> None:
    """The rule is for ended pods only."""
    with pytest.raises(AssertionError, match="has not ended"):
        after_end(ended(PodState.RUNNING), JobType.BATCH)


def test_system_failures_have_four_attempts_at_least() -> None:
    """The larger of the job's limit and four counts."""
    assert 4 == attempts_max(ended(PodState.FAILED, max_failures=1, **BROKEN_PIPE))
    assert 7 == attempts_max(ended(PodState.FAILED, max_failures=7, **BROKEN_PIPE))
    assert 1 == attempts_max(ended(PodState.FAILED, max_failures=1))


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [(0, 0), (1, 30), (2, 60), (3, 120), (4, 240), (5, 480), (6, 960), (7, 1920), (8, 3600), (9, 3600), (10**9, 3600)],
)
def test_backoff_doubles_up_to_an_hour(failures: int, seconds: int) -> None:
    """30 s, 1 m, 2 m ... 32 m, then always an hour; no wait before the first failure."""
    assert seconds * SECOND == Backoff().delay_ns(failures)


@pytest.mark.parametrize(
    ("next_run", "message"),
    [
        (NextRun.NONE, ""),
        (NextRun.REPLACE, "Initialize task"),
        (NextRun.RETRY, "Rescheduled after task terminated"),
        (NextRun.RELAUNCH, "Regenerate placement"),
    ],
)
def test_each_cause_has_its_message(next_run: NextRun, message: str) -> None:
    """Clients see why a run was made."""
    assert message == next_run.message
