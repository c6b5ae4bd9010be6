"""Details of a job, an update and a launch in the page of their workflow."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from peloton.lifecycle.gang import Step, Verdict
from peloton.lifecycle.progress import STATES_MAX, add_state, details, gang_details, update_details
from peloton.lifecycle.reason_text import requeue_text
from peloton.model.job import GangProgress, JobProgress, JobState
from peloton.model.pod import PodState
from peloton.model.reason import RequeueReason, RequeueRule
from peloton.model.update import UpdateProgress, UpdateState

NOON = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)


def test_states_are_reported_in_the_order_of_a_pods_life() -> None:
    """States with pods are listed, with the reason of the job's wait and its past states."""
    progress = JobProgress(JobState.RUNNING, {"SUCCEEDED": 3, "RUNNING": 2, "PENDING": 5, "LOST": 0})
    life = add_state(add_state((), NOON, "PENDING"), NOON, "RUNNING")

    assert [
        "The job is **RUNNING** with 10 pods:",
        "",
        "- 5 waiting in the queue of the pool",
        "- 2 running",
        "- 3 succeeded",
        "",
        "It waits for cpu: no host has 4 free.",
        "",
        "Its life (UTC):",
        "",
        "- 2026-11-22 12:00:00 PENDING",
        "- 2026-11-22 12:00:00 RUNNING",
    ] == details(progress, "cpu: no host has 4 free", life).splitlines()


def test_a_job_without_pods_has_none() -> None:
    """A job has no pods before they are created."""
    assert "The job is **INITIALIZED** with 0 pods." == details(JobProgress(JobState.INITIALIZED))


@pytest.mark.parametrize("state", PodState)
def test_every_state_has_words(state: PodState) -> None:
    """Each state has a text of its own."""
    assert f"- 1 {state.value}" != details(JobProgress(JobState.RUNNING, {state.value: 1})).splitlines()[2]


def test_an_update_reports_how_far_it_is() -> None:
    """Details of an update have its progress, and the reason of its wait while it is under way."""
    progress = UpdateProgress(
        "u1", UpdateState.ROLLING_FORWARD, total_count=9, done_count=4, failed_count=1, current_count=2, waiting_for="x"
    )

    assert [
        "The UPDATE `u1` is **ROLLING_FORWARD**:",
        "",
        "- 4 of 9 instances done",
        "- 2 in flight",
        "- 1 failed",
        "",
        "It waits for x.",
    ] == update_details(progress).splitlines()


@pytest.mark.parametrize("step", Step)
def test_every_step_of_a_launch_is_a_sentence(step: Step) -> None:
    """Every step of a launch has a sentence with its reason, and the stages of the members."""
    reason = RequeueReason(RequeueRule.LEFT_BEHIND, 3, 4)
    first, *others = gang_details(GangProgress(4, {"ready": 3}), Verdict(step, reason), "").splitlines()

    assert first.endswith(f" ({requeue_text(reason)}).")
    assert ["", "- ready: 3 of 4"] == others


def test_a_long_life_forgets_its_beginning() -> None:
    """The last twenty states are kept."""
    life: tuple[str, ...] = ()
    for number in range(STATES_MAX + 5):
        life = add_state(life, NOON, f"state{number}")

    assert [f"2026-11-22 12:00:00 state{number}" for number in range(5, STATES_MAX + 5)] == list(life)
