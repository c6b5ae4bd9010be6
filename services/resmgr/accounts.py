"""Demand and allocation of all pools, ``[P,R]`` by the rows of the pool tree: own amounts, not subtree sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

import numpy as np

from peloton.model.host_pool import Workload
from peloton.model.ids import JobId, RespoolId
from peloton.model.resources import Resources
from peloton.model.volume import RetainedVolume
from peloton.scheduling.gangs import Footprint, Usage
from peloton.scheduling.tree import Ints, PoolTree
from services.resmgr.ledger import IS_ALLOCATED, PENDING, JobLedger


def volume_footprint(kinds: tuple[str, ...]) -> Footprint:
    """Return the footprint of one MiB of a volume."""
    return Footprint(Resources(disk_mib=1).row(kinds), False, False, False, Workload.STATEFUL)


@dataclass(eq=False)
class Accounts:
    """Demand and allocation, by column. Slack is the revocable part; the other columns exclude it.

    Volumes that no run holds are a part of the allocation that is never preempted.
    """

    tree: PoolTree
    # MiB of such volumes by pool and job, also in unknown pools
    volumes: Counter[tuple[RespoolId, JobId]] = field(default_factory=Counter)
    part_of: Mapping[Workload, int] = field(default_factory=dict)  # compartments; empty: there are none
    parts: tuple[Accounts, ...] = field(init=False)  # one per compartment; together they are the whole
    demand: Ints = field(init=False)
    slack_demand: Ints = field(init=False)
    non_slack: Ints = field(init=False)
    slack: Ints = field(init=False)
    non_preemptible: Ints = field(init=False)
    controller: Ints = field(init=False)
    usage: Usage = field(init=False)  # the last four columns, and the usage of the parts

    def __post_init__(self) -> None:
        self.parts = tuple(Accounts(self.tree) for _ in set(self.part_of.values()))
        for column in COLUMNS:
            setattr(self, column, np.zeros_like(self.tree.reservation))
        parts = tuple(part.usage for part in self.parts)
        self.usage = Usage(
            self.non_slack, self.slack, self.non_preemptible, self.controller, parts=parts, part_of=self.part_of
        )
        for (pool_id, _), size_mib in self.volumes.items():
            self.hold(pool_id, volume_footprint(self.tree.kinds), size_mib)

    def want(self, pool_id: RespoolId, footprint: Footprint, count: int) -> None:
        """Add ``count`` queued pods to the pool's demand; a negative count takes them off. Unknown pools are
        ignored."""
        row = self.tree.row.get(pool_id)
        if row is not None:
            column = self.slack_demand if footprint.revocable else self.demand
            column[row] += np.multiply(footprint.need, count)
            if self.parts:
                self.parts[self.part_of[footprint.workload]].want(pool_id, footprint, count)

    def hold(self, pool_id: RespoolId, footprint: Footprint, count: int) -> None:
        """Add ``count`` admitted pods to the pool's allocation; a negative count releases them."""
        row = self.tree.row.get(pool_id)
        if row is not None:
            self.usage.charge(row, footprint, count)

    def set_volumes(self, retained: Iterable[RetainedVolume]) -> None:
        """Replace the volumes that no run holds by exactly these."""
        volumes = Counter[tuple[RespoolId, JobId]]()
        for volume in retained:
            volumes[RespoolId(volume.respool_id), volume.job_id] += volume.size_mib
        if volumes != self.volumes:
            for key in volumes.keys() | self.volumes.keys():
                self.hold(key[0], volume_footprint(self.tree.kinds), volumes[key] - self.volumes[key])
            self.volumes = volumes

    def move_to(self, tree: PoolTree) -> Accounts:
        """Return the same accounts under a changed tree, without pools that are gone; it may have more kinds."""
        moved = Accounts(tree, self.volumes.copy(), self.part_of)
        pairs = [(row, self.tree.row[pool]) for pool, row in tree.row.items() if pool in self.tree.row]
        new, old = np.array(pairs, np.int64).T
        known = slice(len(self.tree.kinds))
        for mine, theirs in zip((moved, *moved.parts), (self, *self.parts), strict=True):
            for column in COLUMNS:
                getattr(mine, column)[new, known] = getattr(theirs, column)[old]
        return moved

    def of_all(self, ledgers: Iterable[JobLedger], part_of: Mapping[Workload, int]) -> Accounts:
        """Return the same pools and volumes with the pods of these jobs, all counted again."""
        accounts = Accounts(self.tree, self.volumes, part_of)
        for ledger in ledgers:
            accounts.count(ledger)
        return accounts

    def count(self, ledger: JobLedger) -> None:
        """Add all pods of a job."""
        for count, footprint in ledger.footprints.tally(np.flatnonzero(ledger.states == PENDING)):
            self.want(ledger.pool_id, footprint, count)
        for count, footprint in ledger.footprints.tally(np.flatnonzero(IS_ALLOCATED[ledger.states])):
            self.hold(ledger.pool_id, footprint, count)

    def is_idle(self, row: int) -> bool:
        """Return whether the pool has no demand and no allocation."""
        columns = (self.demand, self.slack_demand, self.non_slack, self.slack)
        return not any(column[row].any() for column in columns)


COLUMNS = tuple(spec.name for spec in fields(Accounts) if not spec.init and spec.name not in ("parts", "usage"))
