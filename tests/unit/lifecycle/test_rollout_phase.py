"""The phase of a rollout after each kind of step, and the names of its workflow's steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from peloton.lifecycle.rollout import describe_step, next_step, progress_of
from peloton.lifecycle.rollout_phase import (
    Phase,
    batch_text,
    phase_of,
    replace_text,
    roll_back_text,
    wait_text,
    watch_text,
)
from peloton.model.pod import PodState
from peloton.model.update import UpdateProgress, UpdateRecord, UpdateSpec, UpdateState, UpdateType
from tests.unit.lifecycle.pods import JOB, service_pod

TEN = UpdateSpec(batch_size=10)
STRICT = UpdateSpec(10, rollback_on_failure=True, max_instance_attempts=1, max_failure_instances=12)


def update(spec: UpdateSpec = TEN, **changes: Any) -> UpdateRecord:
    sets = {k: frozenset(changes.pop(k, ())) for k in ("added", "removed", "current", "done", "failed")}
    fields: dict[str, Any] = {
        "state": UpdateState.ROLLING_FORWARD,
        "type": UpdateType.UPDATE,
        "updated": range(100),
        **changes,
        **sets,
    }
    fields["updated"] = frozenset(fields["updated"])
    return UpdateRecord("u", JOB, spec=spec, config_version=5, prev_config_version=4, **fields)


def look(one: UpdateRecord, sla_maximum: int = 0) -> UpdateProgress:
    """Progress after a step, when the done instances run the new version, the failed ones have failed, and the others
    run the old one.
    """
    pods = {i: service_pod(i, 5 if i in one.done else 4) for i in one.updated}
    step = next_step(one, pods, sla_maximum)
    return progress_of(step.update, step)


def test_a_batch_that_begins_is_replaced() -> None:
    """A step names its instances and its number."""
    progress = look(update(done=range(20)))

    assert (Phase.REPLACE, "replace instances 20-29, batch 3 of 10") == (phase_of(progress), replace_text(progress))


def test_a_batch_in_flight_is_watched() -> None:
    """The next step names the instances in flight."""
    progress = look(update(done=range(20), current=range(20, 30)))

    assert Phase.WATCH is phase_of(progress)
    assert "watch batch 3 of 10: waits for instances 20-29 to run and be healthy" == watch_text(progress)


@pytest.mark.parametrize(
    ("one", "waits_for"),
    [
        (update(state=UpdateState.PAUSED, done=range(20), current=range(20, 30)), "an operator to resume it"),
        (update(UpdateSpec(10, pulse_s=60)), "its first pulse"),
    ],
)
def test_an_update_that_may_not_continue_waits(one: UpdateRecord, waits_for: str) -> None:
    """A paused update waits although instances are in flight; one without its pulse begins none."""
    progress = look(one)

    assert Phase.WAIT is phase_of(progress)
    assert f"check whether it may continue: waits for {waits_for}" == wait_text(progress)


def test_an_update_that_the_sla_refuses_waits() -> None:
    """One instance is missing, the maximum of the SLA."""
    pods = {i: service_pod(i, 4) for i in range(2)} | {2: replace(service_pod(2, 4), state=PodState.LOST)}
    step = next_step(update(UpdateSpec(1), updated=range(2)), pods, sla_maximum=1)
    progress = progress_of(step.update, step)

    assert Phase.WAIT is phase_of(progress)
    assert wait_text(progress).endswith("waits for the SLA: 1 of at most 1 instances are unavailable already")


def test_too_many_failures_roll_it_back() -> None:
    """The step begins no instance: the roll-back is a step of its own."""
    progress = look(update(STRICT, failed=range(12)))

    assert (Phase.ROLL_BACK, 0, 4) == (phase_of(progress), progress.current_count, progress.rolls_back_to)
    assert "roll back to version 4: 12 of 100 instances failed" == roll_back_text(progress)


@pytest.mark.parametrize("state", [UpdateState.SUCCEEDED, UpdateState.ROLLED_BACK, UpdateState.ABORTED])
def test_an_update_that_has_ended_finishes(state: UpdateState) -> None:
    """A job without an update has no rollout either."""
    assert Phase.FINISH is phase_of(progress_of(update(state=state)))
    assert Phase.FINISH is phase_of(UpdateProgress())


def test_every_sort_of_instance_is_named_with_what_is_done_to_it() -> None:
    """Every instance is named with its change: added, removed, or changed as the type of the update says."""
    one = update(UpdateSpec(), added={100}, updated=range(3), removed={7, 8})
    pods = {i: service_pod(i, 4) for i in (0, 1, 2, 7, 8)}

    assert "add instance 100 and replace instances 0-2 and remove instances 7-8" == describe_step(next_step(one, pods))
    restart = update(UpdateSpec(), type=UpdateType.RESTART, updated=range(3))
    assert "restart instances 0-2" == describe_step(next_step(restart, pods))


def test_names_are_bounded() -> None:
    """A batch of every other instance of a large service is named by its first ones."""
    pods = {i: service_pod(i, 4) for i in range(0, 10_000, 2)}
    step = next_step(update(UpdateSpec(), updated=pods), pods)

    assert "replace instances 0, 2, 4 and 4997 more" == describe_step(step)


@pytest.mark.parametrize(
    ("size", "begun", "total", "expected"),
    [
        (10, 0, 100, "1 of 10"),
        (10, 1, 100, "1 of 10"),
        (10, 11, 95, "2 of 10"),
        (0, 7, 7, "1 of 1"),
        (5, 0, 0, "1 of 1"),
    ],
)
def test_numbers_of_batches(size: int, begun: int, total: int, expected: str) -> None:
    """A batch is filled up as its instances are done, so that each full batch begun counts as one batch."""
    progress = UpdateProgress(batch_size=size, current_count=begun, total_count=total)

    assert f"batch {expected}" == batch_text(progress)
