"""Restarts of workflows that failed."""

from __future__ import annotations

import pytest

from peloton.lifecycle.workflow_restarts import RESTARTS, FailedRuns, evaluate_restart
from peloton.model.times import NS_PER_S

ENDED = 1_700_000_000 * NS_PER_S


@pytest.mark.parametrize(("count", "wait_s"), [(1, 30), (2, 60), (3, 120), (5, 480), (6, 600), (70, 600)])
def test_the_wait_doubles_up_to_ten_minutes(count: int, wait_s: int) -> None:
    """A second before its end the backoff still holds, and reports its length; then the workflow is started."""
    early = evaluate_restart(FailedRuns(count, ENDED), ENDED + (wait_s - 1) * NS_PER_S)
    due = evaluate_restart(FailedRuns(count, ENDED), ENDED + wait_s * NS_PER_S)
    times = "once" if count == 1 else f"{count} times"

    assert (False, ENDED + wait_s * NS_PER_S) == (early.is_due, early.due_ns)
    assert f"it failed {times} within 60 min, and is started again in 1 s" == early.reason
    assert (True, f"it failed {times} within 60 min, and has waited for {wait_s} s") == (due.is_due, due.reason)


def test_a_workflow_that_has_not_failed_is_started_at_once() -> None:
    """Temporal has lost the workflow, or a user terminated it."""
    assert evaluate_restart(FailedRuns(0, 0), ENDED).is_due


def test_failures_in_a_row_stay_at_the_longest_wait() -> None:
    """One hour of failures has more runs than the backoff needs to reach its maximum."""
    assert 3_600 // RESTARTS.max_s >= 6
    assert RESTARTS.initial_s * 2**5 > RESTARTS.max_s
