"""Queue of keys of workflows to signal: each key once, the urgent ones first."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from enum import IntEnum


class Rank(IntEnum):
    """Priority of a signal; lower ranks go first."""

    PEOPLE = 0  # a user has changed something, and waits for the effect
    CHANGE = 1  # pods, hosts or admissions changed
    SWEEP = 2  # a sweep found a change whose wake-up may have been lost


@dataclass(frozen=True, slots=True)
class Due:
    """Key of a workflow to signal now."""

    key: str
    rank: Rank
    causes: frozenset[str]


class WakeLine:
    """Queue of keys, not thread-safe. A key that was taken is busy until it is freed; additions to a busy key wait for
    that.
    """

    def __init__(self) -> None:
        self._lines: dict[Rank, OrderedDict[str, set[str]]] = {rank: OrderedDict() for rank in Rank}
        self._rank_of: dict[str, Rank] = {}
        self._busy: dict[str, tuple[Rank, set[str]] | None] = {}  # with later additions

    def __len__(self) -> int:
        return len(self._rank_of) + sum(noted is not None for noted in self._busy.values())

    def __contains__(self, key: str) -> bool:
        """Return whether the key waits, and will be taken."""
        return key in self._rank_of or self._busy.get(key) is not None

    def counts(self) -> Counter[Rank]:
        """Return the number of waiting keys by rank, including additions to busy keys."""
        found = Counter({rank: len(line) for rank, line in self._lines.items()})
        found.update(noted[0] for noted in list(self._busy.values()) if noted is not None)
        return found

    def add(self, key: str, cause: str, rank: Rank) -> None:
        """Add a key. A key that waits already keeps its place, or moves to the better rank."""
        if key in self._busy:
            known, causes = self._busy[key] or (rank, set())
            self._busy[key] = min(known, rank), causes | {cause}
            return
        self._put(key, {cause}, rank)

    def take(self, worst: Rank) -> Due | None:
        """Return the first key of a rank up to ``worst``, and mark it busy."""
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
