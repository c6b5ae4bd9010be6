"""Demand and allocation of all pools, ``[P,R]`` by the rows of the pool tree: own amounts, not subtree sums."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np

from peloton.model.ids import RespoolId
from peloton.scheduling.admission import Footprint, Usage
from peloton.scheduling.tree import Ints, PoolTree


@dataclass(eq=False)
class Accounts:
    """Slack is the revocable part of demand and allocation; the other columns exclude it."""

    tree: PoolTree
    demand: Ints = field(init=False)
    slack_demand: Ints = field(init=False)
    non_slack: Ints = field(init=False)
    slack: Ints = field(init=False)
    non_preemptible: Ints = field(init=False)
    controller: Ints = field(init=False)

    def __post_init__(self) -> None:
        for column in COLUMNS:
            setattr(self, column, np.zeros_like(self.tree.reservation))

    @property
    def usage(self) -> Usage:
        return Usage(self.non_slack, self.slack, self.non_preemptible, self.controller)

    def want(self, pool_id: RespoolId, footprint: Footprint, count: int) -> None:
        """Add ``count`` queued pods to the pool's demand; a negative count takes them off. Unknown pools are
        ignored."""
        row = self.tree.row.get(pool_id)
        if row is not None:
            column = self.slack_demand if footprint.revocable else self.demand
            column[row] += np.multiply(footprint.need, count)

    def hold(self, pool_id: RespoolId, footprint: Footprint, count: int) -> None:
        """Add ``count`` admitted pods to the pool's allocation; a negative count releases them."""
        row = self.tree.row.get(pool_id)
        if row is not None:
            self.usage.charge(row, footprint, count)

    def moved_to(self, tree: PoolTree) -> Accounts:
        """The same accounts under a changed tree, without pools that are gone."""
        moved = Accounts(tree)
        pairs = [(row, self.tree.row[pool]) for pool, row in tree.row.items() if pool in self.tree.row]
        new, old = np.array(pairs, np.int64).T
        for column in COLUMNS:
            getattr(moved, column)[new] = getattr(self, column)[old]
        return moved

    def is_idle(self, row: int) -> bool:
        """Nothing queued and nothing held."""
        columns = (self.demand, self.slack_demand, self.non_slack, self.slack)
        return not any(column[row].any() for column in columns)


COLUMNS = tuple(spec.name for spec in fields(Accounts) if not spec.init)
