"""Who will be there first: waiting gangs that are visited before the one that room is made for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from peloton.scheduling.admission import Bound, GangRun, Ledger, gangs_that_fit


@dataclass(slots=True, eq=False)
class _EarlierQueue:
    """What is left of a queue of which some waits."""

    row: int
    runs: Sequence[GangRun]
    at: int  # the first run that waits
    left: int  # gangs of it
    lack: tuple[Bound, int] | None = None  # when it was last looked at, the first bound and kind that it failed

    def still_lacks(self) -> bool:
        """A quick look, so that many lines may be looked at often."""
        if self.lack is None:
            return False
        bound, kind = self.lack
        return self.runs[self.at].need[kind] > bound.allowed[kind] - bound.used[kind]


@dataclass(frozen=True, slots=True, eq=False)
class EarlierAdmission:
    """Gangs that were let in, and where their line stood before."""

    line: _EarlierQueue
    at: int
    left: int
    count: int

    @property
    def run(self) -> GangRun:
        return self.line.runs[self.at]


@dataclass(slots=True, eq=False)
class EarlierQueues:
    """The queues visited so far of which some waits, and the ledger that counts who is let in."""

    ledger: Ledger
    _lines: list[_EarlierQueue] = field(default_factory=list)  # in the order of visits

    def enqueue(self, row: int, runs: Sequence[GangRun], at: int, left: int) -> None:
        """All from ``left`` gangs of ``runs[at]`` on wait."""
        self._lines.append(_EarlierQueue(row, runs, at, left))

    def admit_fitting(self) -> list[EarlierAdmission]:
        """Count those that fit now as admitted."""
        came: list[EarlierAdmission] = []
        for line in self._lines:
            while line.left and not line.still_lacks():
                run = line.runs[line.at]
                is_hopeless = self.ledger.is_hopeless(line.row, run)
                bounds = self.ledger.bounds(line.row, run)
                count = 0 if is_hopeless else gangs_that_fit(run, bounds, line.left)
                if count:
                    self.ledger.take(line.row, run, count)
                    came.append(EarlierAdmission(line, line.at, line.left, count))
                    line.left -= count
                if line.left and not is_hopeless:
                    line.lack = next((bound, kind) for bound in bounds for kind, _ in bound.short(run.need, 1))
                    break
                line.at += 1
                line.left, line.lack = line.runs[line.at].gang_count if line.at < len(line.runs) else 0, None
        return came

    def undo(self, came: Sequence[EarlierAdmission]) -> None:
        for one in reversed(came):
            self.ledger.take(one.line.row, one.run, -one.count)
            one.line.at, one.line.left, one.line.lack = one.at, one.left, None
