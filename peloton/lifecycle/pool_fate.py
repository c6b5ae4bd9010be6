"""Fate of pods that the queue of their pool cannot take."""

from __future__ import annotations

from dataclasses import dataclass

from peloton.model.job import JobType


@dataclass(frozen=True, slots=True)
class PoolFate:
    """``is_final``: waiting cannot help, and the pods fail. ``reason``: text for users."""

    is_final: bool
    reason: str


def evaluate_pool(job_type: JobType, pool: str, *, is_known: bool, is_stored: bool, is_leaf: bool) -> PoolFate | None:
    """Decide about the pods of a job; None if the queue of the pool takes them.

    ``pool`` is the path of the pool, or its id. ``is_known``: the resource manager has the pool in memory, which may
    lag behind the rows (``is_stored``). The id of a deleted pool is never reused, so its batch jobs fail. A service
    never ends by itself: an operator has to move or delete it.
    """
    if not is_stored and not is_known:
        reason = f"resource pool {pool} does not exist any more"
        if job_type.runs_to_end:
            return PoolFate(True, reason)
        return PoolFate(False, f"{reason}: delete the job, or create it in another pool")
    if not is_known:
        return PoolFate(False, f"resource pool {pool} is not known to this resource manager yet")
    if not is_leaf:
        return PoolFate(False, f"resource pool {pool} takes no jobs: it is not a leaf")
    return None
