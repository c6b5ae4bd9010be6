"""A loop is hung when a round exceeds its bound, not counting time in which a dependency does not answer."""

from __future__ import annotations

import pytest

from peloton.lifecycle.liveness import Loop, find_hung

NOW_S = 1_000.0
LATE_EVENTS = "events has not ticked for 61 s (bound 60 s)"


@pytest.mark.parametrize(
    ("loop", "answering_since_s", "fault"),
    [
        (Loop("chores", 300.0, NOW_S - 300.0), 0.0, ""),
        (Loop("chores", 300.0, NOW_S - 301.0), 0.0, "chores has not ticked for 301 s (bound 300 s)"),
        (Loop("chores", 300.0, NOW_S - 900.0), NOW_S, ""),
        (Loop("chores", 300.0, NOW_S - 900.0), NOW_S - 299.0, ""),
        (Loop("chores", 300.0, NOW_S - 900.0), NOW_S - 301.0, "chores has not ticked for 900 s (bound 300 s)"),
        (Loop("events", 60.0, NOW_S - 61.0, has_dependencies=False), NOW_S, LATE_EVENTS),
        (Loop("chores", 300.0, NOW_S - 900.0, is_resting=True), 0.0, ""),
        (Loop("chores", 300.0, NOW_S, error="KeyError(1)"), 0.0, "chores ended: KeyError(1)"),
    ],
)  # fmt: skip
def test_a_loop_is_hung_by_its_own_time(loop: Loop, answering_since_s: float, fault: str) -> None:
    """Time without a dependency, and waits for work, do not make a loop hung; an error that ended it does."""
    assert find_hung([loop], answering_since_s, NOW_S) == fault


def test_all_hung_loops_are_named() -> None:
    """Each hung loop has a sentence, in the order of the names."""
    loops = [Loop("b", 1.0, 0.0), Loop("c", 1.0, NOW_S), Loop("a", 1.0, 0.0)]

    assert find_hung(loops, 0.0, NOW_S) == (
        "a has not ticked for 1000 s (bound 1 s); b has not ticked for 1000 s (bound 1 s)"
    )
