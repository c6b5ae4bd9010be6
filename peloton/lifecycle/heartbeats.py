"""Workers that are alive, by changes of their heartbeats.

A heartbeat bears the time of its worker, whose clock may differ from that of the reader. Two reads say by the clock of
the reader alone how old it is at least and at most; the time that it bears decides only where one read is all there is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from peloton.model.times import NS_PER_S


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The last one of a worker. ``beat_ns``: the time that it bears; ``limit_s``: the silence after which the worker is
    taken for dead."""

    worker: str
    beat_ns: int
    limit_s: float


class Liveness(StrEnum):
    ALIVE = "alive"
    DEAD = "dead"
    UNSURE = "unsure"  # another read will say


@dataclass(frozen=True, slots=True)
class _Seen:
    """Reads of one heartbeat. ``since_s``: the first one; ``before_s``: the last one before it, of an older heartbeat
    of the same worker, if there was one."""

    beat_ns: int
    since_s: float
    before_s: float | None


class Heartbeats:
    """The last read."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._read_s = 0.0

    def note(self, beats: Iterable[Heartbeat], now_s: float) -> None:
        """Take in a read of all workers."""
        self._seen = {beat.worker: self._note(beat, now_s) for beat in beats}
        self._read_s = now_s

    def _note(self, beat: Heartbeat, now_s: float) -> _Seen:
        known = self._seen.get(beat.worker)
        if known is not None and known.beat_ns == beat.beat_ns:
            return known
        return _Seen(beat.beat_ns, now_s, self._read_s if known is not None else None)

    def evaluate(self, beat: Heartbeat, now_s: float, wall_ns: int) -> Liveness:
        """Judge a worker of the last read. ``wall_ns`` is the time of the reader, which the heartbeat's is compared
        with."""
        seen = self._seen[beat.worker]
        if now_s - seen.since_s >= beat.limit_s:
            return Liveness.DEAD
        is_watched = seen.before_s is not None and seen.since_s - seen.before_s < beat.limit_s
        if seen.before_s is not None and now_s - seen.before_s < beat.limit_s:
            return Liveness.ALIVE
        if (wall_ns - beat.beat_ns) / NS_PER_S < beat.limit_s:
            return Liveness.ALIVE
        return Liveness.DEAD if is_watched else Liveness.UNSURE
