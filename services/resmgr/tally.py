"""Counts of admitted and preempted pods since the last sample of the time series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from peloton.scheduling.admission import Admitted
from peloton.scheduling.eviction import Eviction
from peloton.scheduling.tree import PoolTree


@dataclass(slots=True)
class Tally:
    """The counts, in pods, for one event loop."""

    admitted: Counter[str] = field(default_factory=Counter)  # by the pool's path
    preempted: Counter[tuple[str, str]] = field(default_factory=Counter)  # by pool, and the pool of the waiting gang

    def count_admitted(self, tree: PoolTree, chosen: Iterable[Admitted]) -> None:
        for one in chosen:
            self.admitted[tree.paths[one.pool]] += one.gang_count * one.run.gang_size

    def count_evicted(self, evictions: Iterable[Eviction]) -> None:
        for one in evictions:
            self.preempted[one.grounds.pool_path, one.grounds.for_pool] += one.run.pod_count

    def take(self) -> Tally:
        """Return all counts, and start again from zero."""
        taken = Tally(self.admitted, self.preempted)
        self.admitted, self.preempted = Counter(), Counter()
        return taken

    def give_back(self, taken: Tally) -> None:
        """Add counts that could not be stored, for the next sample."""
        self.admitted += taken.admitted
        self.preempted += taken.preempted
