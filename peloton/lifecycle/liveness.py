"""Liveness of a process, evaluated by the last tick of each of its loops.

A loop is hung when a round takes longer than its bound. A round that waits for a dependency is slow and not hung, so
the time in which a dependency did not answer does not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LOOP_BOUND_S = 60.0
"""Bound of the event loop of a process, which waits for nothing else than events."""
ROUND_BOUND_S = 300.0
"""Bound of a round of a periodic loop: the longest calls to storage, a cluster and other roles take half a minute."""
ENGINE_BOUND_S = 1_800.0
"""Bound of a round that reads many pages of Temporal, each of which may take until its timeout."""


@dataclass(slots=True, eq=False)
class Loop:
    """A periodic loop. ``bound_s``: the longest time between two ticks. Times are those of a monotonic clock."""

    name: str
    bound_s: float
    ticked_s: float
    has_dependencies: bool = True
    is_resting: bool = False  # it waits for work, however long
    error: str = ""  # an error ended it


def find_hung(loops: Iterable[Loop], answering_since_s: float, now_s: float) -> str:
    """Return a sentence for each hung loop; empty when the process is live. ``answering_since_s``: since when all
    dependencies have answered without a break, the present while one does not.
    """
    faults = []
    for loop in sorted(loops, key=lambda one: one.name):
        begin_s = max(loop.ticked_s, answering_since_s) if loop.has_dependencies else loop.ticked_s
        if loop.error:
            faults.append(f"{loop.name} ended: {loop.error}")
        elif not loop.is_resting and now_s - begin_s > loop.bound_s:
            faults.append(f"{loop.name} has not ticked for {now_s - loop.ticked_s:.0f} s (bound {loop.bound_s:.0f} s)")
    return "; ".join(faults)
