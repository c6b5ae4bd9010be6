"""A job's progress in words."""

from __future__ import annotations

from peloton.lifecycle.progress import details
from peloton.model.job import JobProgress, JobState


def test_states_are_told_in_the_order_of_a_pods_life() -> None:
    """Only states that have pods are named; the head says how many are done."""
    progress = JobProgress(JobState.RUNNING, {"SUCCEEDED": 3, "RUNNING": 2, "PENDING": 5, "LOST": 0})

    assert "**RUNNING**: 3 of 10 pods succeeded\n- PENDING: 5\n- RUNNING: 2\n- SUCCEEDED: 3" == details(progress)
