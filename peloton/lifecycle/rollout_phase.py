"""Phases of a rollout, chosen from the progress after each step, and the texts of its workflow.

    begin --> [ WAIT | REPLACE --> WATCH | WATCH | ROLL_BACK ]* --> FINISH

A batch is filled up as its instances finish: a batch has started each time that as many instances as its size have.
"""

from __future__ import annotations

from enum import StrEnum

from peloton.model.update import UpdateProgress, UpdateState

BEGIN = "begin: find what differs"
CONTINUE = "continue the rollout"
NEXT = "find the next update"


class Phase(StrEnum):
    WAIT = "WAIT"  # paused, or nothing in flight and nothing may start: no pulse, or the SLA refuses
    REPLACE = "REPLACE"  # the step put instances in flight, whose pods have to be replaced
    WATCH = "WATCH"  # instances in flight become healthy, or fail
    ROLL_BACK = "ROLL_BACK"  # too many have failed
    FINISH = "FINISH"


def phase_of(progress: UpdateProgress) -> Phase:
    """Return the phase that follows a step; the first rule that applies decides."""
    if progress.is_finished:
        return Phase.FINISH
    if progress.rolls_back_to:
        return Phase.ROLL_BACK
    if progress.kill_count or progress.rest_count:
        return Phase.REPLACE
    is_waiting = progress.state is UpdateState.PAUSED or not progress.current_count
    return Phase.WAIT if is_waiting else Phase.WATCH


def replace_text(progress: UpdateProgress) -> str:
    """Describe the instances that the step put in flight, like "replace instances 20-29, batch 3 of 10"."""
    return f"{progress.begun}, {batch_text(progress)}"


def watch_text(progress: UpdateProgress) -> str:
    return f"watch {batch_text(progress)}{_wait_suffix(progress)}"


def wait_text(progress: UpdateProgress) -> str:
    return f"check whether it may continue{_wait_suffix(progress)}"


def roll_back_text(progress: UpdateProgress) -> str:
    return (
        f"roll back to version {progress.rolls_back_to}: "
        f"{progress.failed_count} of {progress.total_count} instances failed"
    )


def batch_text(progress: UpdateProgress) -> str:
    """Return the number of the batch that started last, and the number of all batches."""
    size = progress.batch_size or max(progress.total_count, 1)
    number, count = (-(-instances // size) for instances in (progress.begun_count, progress.total_count))
    return f"batch {max(number, 1)} of {max(count, 1)}"


def _wait_suffix(progress: UpdateProgress) -> str:
    return f": waits for {progress.waiting_for}" if progress.waiting_for else ""
