"""Who will be there first: waiting gangs that are visited before the one that room is made for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from peloton.scheduling.admission import GangRun, Ledger, gangs_that_fit


@dataclass(slots=True, eq=False)
class _Line:
    """What is left of a queue of which some waits."""

    row: int
    runs: Sequence[GangRun]
    at: int  # the first run that waits
    left: int  # gangs of it


@dataclass(frozen=True, slots=True, eq=False)
class Came:
    """Gangs that were let in, and where their line stood before."""

    line: _Line
    at: int
    left: int
    count: int

    @property
    def run(self) -> GangRun:
        return self.line.runs[self.at]


@dataclass(slots=True, eq=False)
class Ahead:
    """The queues visited so far of which some waits, and the ledger that counts who is let in."""

    ledger: Ledger
    _lines: dict[int, list[_Line]] = field(default_factory=dict)  # by pool row, in the order of visits

    def stand(self, row: int, runs: Sequence[GangRun], at: int, left: int) -> None:
        """All from ``left`` gangs of ``runs[at]`` on wait."""
        self._lines.setdefault(row, []).append(_Line(row, runs, at, left))

    def let_in(self, rows: Iterable[int]) -> list[Came]:
        """Count those that stand in these pools and fit now as admitted."""
        came: list[Came] = []
        for line in [line for row in sorted(rows) for line in self._lines.get(row, ())]:
            while line.left:
                run = line.runs[line.at]
                is_hopeless = self.ledger.is_hopeless(line.row, run)
                count = 0 if is_hopeless else gangs_that_fit(run, self.ledger.bounds(line.row, run), line.left)
                if count:
                    self.ledger.take(line.row, run, count)
                    came.append(Came(line, line.at, line.left, count))
                    line.left -= count
                if line.left and not is_hopeless:
                    break
                line.at += 1
                line.left = line.runs[line.at].gang_count if line.at < len(line.runs) else 0
        return came

    def undo(self, came: Sequence[Came]) -> None:
        for one in reversed(came):
            self.ledger.take(one.line.row, one.run, -one.count)
            one.line.at, one.line.left = one.at, one.left
