"""Phases of a rollout, and the texts that its workflow shows. The progress after each step decides the phase.

    begin --> [ WAIT | REPLACE --> WATCH | WATCH | ROLL_BACK ]* --> FINISH

A rollout keeps as many instances in flight as a batch has. Batches are counted by started instances: the second batch
begins when as many instances as one batch has, plus one, have started.
"""

from __future__ import annotations

from enum import StrEnum

from peloton.model.update import UpdateProgress, UpdateState

BEGIN = "begin: find the instances that differ"
CONTINUE = "continue the rollout"
NEXT = "find the next update"


class Phase(StrEnum):
    WAIT = "WAIT"  # paused, or nothing is in flight and nothing may start: a pulse is missing, or the SLA refuses
    REPLACE = "REPLACE"  # the pods of instances that the step put in flight have to be replaced
    WATCH = "WATCH"  # waits until instances in flight are healthy or have failed
    ROLL_BACK = "ROLL_BACK"  # too many instances have failed
    FINISH = "FINISH"


def phase_of(progress: UpdateProgress) -> Phase:
    """Return the phase that follows a step."""
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
    """Format the number of the batch that started last, and the number of all batches."""
    size = progress.batch_size or max(progress.total_count, 1)
    number, count = (-(-instances // size) for instances in (progress.begun_count, progress.total_count))
    return f"batch {max(number, 1)} of {max(count, 1)}"


def _wait_suffix(progress: UpdateProgress) -> str:
    return f": waits for {progress.waiting_for}" if progress.waiting_for else ""
