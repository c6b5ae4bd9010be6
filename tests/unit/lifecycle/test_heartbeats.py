"""Detection of live workers, independent of their clocks."""

from __future__ import annotations

import pytest

from peloton.lifecycle.heartbeats import Heartbeat, Heartbeats, Liveness
from peloton.model.times import NS_PER_S

LIMIT_S = 6.0
WALL_NS = 1_700_000_000 * NS_PER_S
SKEWS_S = [-3_600.0, -30.0, 0.0, 30.0, 3_600.0]


def beat(at_s: float, skew_s: float) -> Heartbeat:
    """A heartbeat of a worker whose clock is ahead by ``skew_s``."""
    return Heartbeat("w", WALL_NS + int((at_s + skew_s) * NS_PER_S), LIMIT_S)


def evaluate(heartbeats: Heartbeats, now_s: float, beat_s: float, skew_s: float) -> Liveness:
    """Read the heartbeat of ``beat_s`` at ``now_s``."""
    found = beat(beat_s, skew_s)
    heartbeats.note([found], now_s)
    return heartbeats.evaluate(found, now_s, WALL_NS + int(now_s * NS_PER_S))


@pytest.mark.parametrize("skew_s", SKEWS_S)
def test_a_worker_that_is_watched_is_alive_until_it_is_silent(skew_s: float) -> None:
    """Read every two seconds find another heartbeat each time, and then always the same."""
    heartbeats = Heartbeats()
    evaluate(heartbeats, 0.0, -1.0, skew_s)
    lives = [evaluate(heartbeats, now_s, now_s - 1, skew_s) for now_s in (2.0, 4.0, 6.0)]
    silent = [evaluate(heartbeats, now_s, 5.0, skew_s) for now_s in (8.0, 12.0, 14.0)]

    assert [Liveness.ALIVE] * 3 == lives
    assert (Liveness.ALIVE, Liveness.DEAD) == (silent[0], silent[-1])


@pytest.mark.parametrize(
    ("skew_s", "first"), [(skew_s, Liveness.UNSURE if skew_s < 0 else Liveness.ALIVE) for skew_s in SKEWS_S]
)
def test_one_read_says_nothing_of_a_heartbeat_that_seems_old(skew_s: float, first: Liveness) -> None:
    """A second read, a heartbeat later, identifies a live worker."""
    heartbeats = Heartbeats()

    assert first is evaluate(heartbeats, 0.0, -1.0, skew_s)
    assert Liveness.ALIVE is evaluate(heartbeats, 2.5, 1.0, skew_s)


def test_a_change_between_reads_that_are_far_apart_says_nothing() -> None:
    """A change between distant reads does not prove that a worker lives: it may have died soon after the first one."""
    heartbeats = Heartbeats()
    evaluate(heartbeats, 0.0, -1.0, -30.0)

    assert Liveness.UNSURE is evaluate(heartbeats, 600.0, 599.0, -30.0)
