"""The queues that a round of preemption has visited: their waiting gangs take freed resources first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from peloton.scheduling.admission import Bound, Ledger, gangs_that_fit, take
from peloton.scheduling.gangs import GangRun


@dataclass(slots=True, eq=False)
class _EarlierQueue:
    """The part of a queue that still waits."""

    row: int
    runs: Sequence[GangRun]
    at: int  # the first run that waits
    left: int  # gangs of that run that wait
    lack: tuple[Bound, int] | None = None  # the first bound and kind that the head failed last

    def still_lacks(self) -> bool:
        """Return whether the bound that its head failed last still refuses it: a cheap test, for many queues are tried
        often."""
        if self.lack is None:
            return False
        bound, kind = self.lack
        return bound.count_need(self.runs[self.at])[kind] > bound.allowed[kind] - bound.used[kind]


@dataclass(frozen=True, slots=True, eq=False)
class EarlierAdmission:
    """Gangs counted as admitted, and the earlier position of their queue, for ``undo``."""

    queue: _EarlierQueue
    at: int
    left: int
    count: int

    @property
    def run(self) -> GangRun:
        return self.queue.runs[self.at]


@dataclass(slots=True, eq=False)
class EarlierQueues:
    """The visited queues in which gangs wait, and the ledger that counts the ones admitted since."""

    ledger: Ledger
    _queues: list[_EarlierQueue] = field(default_factory=list)  # in the order of visits

    def enqueue(self, row: int, runs: Sequence[GangRun], at: int, left: int) -> None:
        """Add a queue that waits from the last ``left`` gangs of ``runs[at]`` on."""
        self._queues.append(_EarlierQueue(row, runs, at, left))

    def admit_fitting(self) -> list[EarlierAdmission]:
        """Count as admitted, and return, all waiting gangs that fit now."""
        admitted: list[EarlierAdmission] = []
        for queue in self._queues:
            while queue.left and not queue.still_lacks():
                run = queue.runs[queue.at]
                is_hopeless = self.ledger.is_hopeless(queue.row, run)
                bounds = self.ledger.bounds(queue.row, run)
                count = 0 if is_hopeless else gangs_that_fit(run, bounds, queue.left)
                if count:
                    take(run, bounds, count)
                    admitted.append(EarlierAdmission(queue, queue.at, queue.left, count))
                    queue.left -= count
                if queue.left and not is_hopeless:
                    queue.lack = next((bound, kind) for bound in bounds for kind, _ in bound.short(run, 1))
                    break
                queue.at += 1
                queue.left, queue.lack = queue.runs[queue.at].gang_count if queue.at < len(queue.runs) else 0, None
        return admitted

    def undo(self, admitted: Sequence[EarlierAdmission]) -> None:
        for one in reversed(admitted):
            take(one.run, self.ledger.bounds(one.queue.row, one.run), -one.count)
            one.queue.at, one.queue.left, one.queue.lack = one.at, one.left, None
