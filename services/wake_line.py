"""The line of wake-ups: keys of workflows that wait to be signalled, each once, the urgent ones first."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from enum import IntEnum


class Rank(IntEnum):
    """Lower ranks go first."""

    PEOPLE = 0  # a person has changed something, and looks at it
    CHANGE = 1  # pods, hosts or admissions changed
    SWEEP = 2  # a sweep found a change whose wake-up may have been lost


@dataclass(frozen=True, slots=True)
class Due:
    """A key whose workflow is to be signalled now."""

    key: str
    rank: Rank
    causes: frozenset[str]


class WakeLine:
    """Not thread-safe. A key that was taken is busy until it is freed: what is noted of it meanwhile waits for that."""

    def __init__(self) -> None:
        self._lines: dict[Rank, OrderedDict[str, set[str]]] = {rank: OrderedDict() for rank in Rank}
        self._rank_of: dict[str, Rank] = {}
        self._busy: dict[str, tuple[Rank, set[str]] | None] = {}  # with what was noted since

    def __len__(self) -> int:
        return len(self._rank_of) + sum(noted is not None for noted in self._busy.values())

    def __contains__(self, key: str) -> bool:
        """It waits, and will be taken."""
        return key in self._rank_of or self._busy.get(key) is not None

    def counts(self) -> Counter[Rank]:
        """Keys that wait, by rank; those of busy keys too."""
        found = Counter({rank: len(line) for rank, line in self._lines.items()})
        found.update(noted[0] for noted in list(self._busy.values()) if noted is not None)
        return found

    def add(self, key: str, cause: str, rank: Rank) -> None:
        """A key that waits already keeps its place, or gets the better one."""
        if key in self._busy:
            known, causes = self._busy[key] or (rank, set())
            self._busy[key] = min(known, rank), causes | {cause}
            return
        self._put(key, {cause}, rank)

    def take(self, worst: Rank) -> Due | None:
        """The first key, of no rank behind ``worst``; it is busy from now on."""
        for rank in Rank:
            if rank <= worst and self._lines[rank]:
                key, causes = self._lines[rank].popitem(last=False)
                del self._rank_of[key]
                self._busy[key] = None
                return Due(key, rank, frozenset(causes))
        return None

    def free(self, key: str) -> None:
        noted = self._busy.pop(key, None)
        if noted is not None:
            rank, causes = noted
            self._put(key, causes, rank)

    def _put(self, key: str, causes: set[str], rank: Rank) -> None:
        known = self._rank_of.get(key)
        if known is not None:
            if known <= rank:
                self._lines[known][key] |= causes
                return
            causes |= self._lines[known].pop(key)
        self._rank_of[key] = rank
        self._lines[rank][key] = causes
