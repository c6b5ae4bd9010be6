"""The recorder of time series of pools and clusters.

Once a minute it stores allocation, entitlement, demand and the like of all pools, the allocation of each owner in each
pool, and the sums over the hosts of each cluster. The leader runs it, so that each series has one writer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping

import numpy as np

from peloton.errors import Unavailable
from peloton.lifecycle.downsampling import merge_marks
from peloton.model.history import (
    Column,
    Preemption,
    Quantity,
    Sample,
    cluster_series,
    owner_series,
    pool_series,
)
from peloton.model.host import ClusterSums, HostState
from peloton.model.ids import RespoolId
from peloton.model.resources import RESOURCE_KINDS, Resources
from peloton.scheduling.gangs import Footprint
from peloton.scheduling.lending import compute_lending
from peloton.scheduling.tree import Ints, PoolTree
from services.resmgr.metrics import amounts_of
from services.resmgr.rounds import repeat
from services.resmgr.settings import RecorderSettings
from services.resmgr.state import ResmgrState
from services.resmgr.tally import Tally
from services.storage.history.history import History

log = logging.getLogger(__name__)

POOLS_MAX = 5_000
"""Limit of pools with time series: the upper ones, if there are more."""
OWNERS_MAX = 1_000
"""Limit of owners with a time series, each owner counted once for each of its pools."""
HOSTS_IN = {
    HostState.UP: Column(Quantity.HOSTS_UP),
    HostState.DRAINING: Column(Quantity.HOSTS_DRAINING),
    HostState.DRAINED: Column(Quantity.HOSTS_DRAINED),
    HostState.DOWN: Column(Quantity.HOSTS_DOWN),
}
Amounts = dict[Column, int]


class Recorder:
    """The recorder. Its methods are called on one event loop."""

    def __init__(
        self,
        state: Callable[[], ResmgrState],
        tally: Tally,
        sums: Callable[[], Mapping[str, ClusterSums]],
        records: History,
        settings: RecorderSettings,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        """Take ``sums``, which returns the sums of the clusters that answer and is called in a thread."""
        self._state, self._tally, self._sums, self._records = state, tally, sums, records
        self.period_s, self._clock_s = settings.period_s, clock_s
        self._recorded_s: float | None = None  # samples up to then are stored, by this leader or an earlier one
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self.period_s:
            self._recorded_s = self._clock_s()
            period_s = float(self.period_s)
            self._task = asyncio.create_task(repeat(self._recorder_round, period_s, period_s), name="recorder")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def behind_s(self) -> float:
        """Return the seconds for which nothing has been recorded; 0 if recording is off."""
        return 0.0 if self._recorded_s is None else max(self._clock_s() - self._recorded_s, 0.0)

    async def _recorder_round(self) -> None:
        now_s = self._clock_s()
        end_s = int(now_s) - int(now_s) % self.period_s + self.period_s
        await asyncio.sleep(end_s - now_s)
        await self.record(end_s)

    async def record(self, end_s: int) -> None:
        """Store the sample of the period that ends now, at a multiple of it. Raises the errors of storage.

        The counts go into the next sample if another leader has stored this one, or if it could not be stored.
        """
        counted, is_stored = self._tally.take(), False
        try:
            state = self._state()
            amounts, preemptions = pool_amounts(state, counted)
            amounts |= owner_amounts(state)
            is_stored = await asyncio.to_thread(self._store, end_s - self.period_s, amounts, preemptions)
            self._recorded_s = end_s
        finally:
            if not is_stored:
                self._tally.give_back(counted)
        await asyncio.to_thread(self._fold, end_s)

    def _store(
        self, at_s: int, amounts: dict[str, Amounts], preemptions: Mapping[str, tuple[tuple[str, int], ...]]
    ) -> bool:
        try:
            clusters = {cluster_series(name): cluster_amounts(sums) for name, sums in self._sums().items()}
        except Unavailable as error:
            log.info("hosts of this minute not recorded: %s", error)
            clusters = {}
        return self._records.add(Sample(at_s, self.period_s, amounts | clusters, preemptions))

    def _fold(self, now_s: int) -> None:
        while self._records.fold(now_s):
            pass


def pool_amounts(
    state: ResmgrState, counted: Tally
) -> tuple[dict[str, Amounts], dict[str, tuple[tuple[str, int], ...]]]:
    """Return amounts and preemptions of each pool by the name of its series; sums over the pools below it.

    There are none before the capacity of the clusters is known: entitlements are zero then.
    """
    if state.capacity is None:
        return {}, {}
    tree, found = state.tree, dict[str, Amounts]()
    arrays = {Quantity(name): array for name, array in amounts_of(state).items()}
    arrays[Quantity.SLACK_ALLOCATION] = tree.roll_up(state.accounts.slack)
    for quantity in (Quantity.RESERVATION, Quantity.LIMIT):
        arrays[quantity] = arrays[quantity].copy()
        arrays[quantity][0] = tree.compute_capacity(state.capacity)
    lending = compute_lending(tree, arrays[Quantity.RESERVATION], arrays[Quantity.ALLOCATION])
    arrays |= {Quantity.BORROWED: lending.borrowed, Quantity.LENT: lending.lent}
    for quantity, array in arrays.items():
        columns = [Column(quantity, kind) for kind in tree.kinds]
        for pool_id, row in zip(tree.ids[:POOLS_MAX], array.tolist(), strict=False):
            pool = found.setdefault(pool_series(pool_id), {})
            pool.update((column, amount) for column, amount in zip(columns, row, strict=True) if amount)
    admitted = _sum_over_subtrees(tree, {(path, ""): pods for path, pods in counted.admitted.items()})
    for name, by_cause in admitted.items():
        found[name][Column(Quantity.ADMITTED)] = sum(by_cause.values())
    preemptions = dict[str, tuple[tuple[str, int], ...]]()
    for name, by_cause in _sum_over_subtrees(tree, counted.preempted).items():
        found[name][Column(Quantity.PREEMPTED)] = sum(by_cause.values())
        marks = merge_marks(Preemption(0, for_pool, pods) for for_pool, pods in by_cause.items())
        preemptions[name] = tuple((mark.for_pool, mark.pod_count) for mark in marks)
    return found, preemptions


def owner_amounts(state: ResmgrState) -> dict[str, Amounts]:
    """Return allocation and borrowed part of each pool's owners, by the name of the series.

    An owner's pods borrow in proportion to what they hold of the pool. The ``OWNERS_MAX`` with most cpu have a series
    each; the others of a pool share one.
    """
    if state.capacity is None:
        return {}
    tree, pods = state.tree, defaultdict[tuple[RespoolId, str], Counter[Footprint]](Counter)
    for ledger in state.jobs.values():
        if ledger.held:
            pods[ledger.pool_id, ledger.owner].update(ledger.held)
    held = dict[tuple[int, str], Ints]()  # by row of the pool and name of the series
    for (pool_id, owner), footprints in pods.items():
        if (row := tree.row.get(pool_id)) is not None:
            held[row, owner_series(pool_id, owner)] = _sum_needs(tree, footprints)
    for row, name in sorted(held, key=lambda key: -int(held[key][0]))[OWNERS_MAX:]:
        rest = held.setdefault((row, owner_series(tree.ids[row], None)), _sum_needs(tree, {}))
        rest += held.pop((row, name))
    allocation = state.accounts.non_slack + state.accounts.slack
    borrowed = np.maximum(allocation - tree.reservation, 0)
    found = dict[str, Amounts]()
    for (row, name), sums in held.items():
        share = sums * borrowed[row] // np.maximum(allocation[row], 1)
        amounts = {Quantity.ALLOCATION: sums.tolist(), Quantity.BORROWED: share.tolist()}
        found[name] = {
            Column(quantity, kind): amount
            for quantity, of_kinds in amounts.items()
            for kind, amount in zip(tree.kinds, of_kinds, strict=True)
            if amount
        }
    return found


def _sum_needs(tree: PoolTree, footprints: Mapping[Footprint, int]) -> Ints:
    """Return the resources that these pods hold, ``[R]``."""
    sums = np.zeros(len(tree.kinds), np.int64)
    for footprint, count in footprints.items():
        sums += np.multiply(footprint.need, count)
    return sums


def _sum_over_subtrees(tree: PoolTree, pods: Mapping[tuple[str, str], int]) -> dict[str, Counter[str]]:
    """Sum ``(path, cause)`` -> pods for each pool and all pools above it: series -> cause -> pods."""
    rows = {path: row for row, path in enumerate(tree.paths)} if pods else {}
    found: dict[str, Counter[str]] = {}
    for (path, cause), count in pods.items():
        row = rows.get(path)  # None: the pool no longer exists
        for at in () if row is None else (row, *tree.ancestors[row]):
            if at < POOLS_MAX:
                found.setdefault(pool_series(tree.ids[at]), Counter())[cause] += count
    return found


def cluster_amounts(sums: ClusterSums) -> Amounts:
    amounts = {HOSTS_IN[state]: count for state, count in sums.states.items()}
    amounts[Column(Quantity.HOSTS_MEASURED)] = sums.measured_count
    cpu = RESOURCE_KINDS[0]
    amounts[Column(Quantity.SLACK, cpu)] = sums.slack_milli
    amounts[Column(Quantity.SLACK_ALLOCATION, cpu)] = sums.slack_allocation_milli
    by_kind: dict[Quantity, Resources] = {
        Quantity.CAPACITY: sums.capacity,
        Quantity.REGISTERED: sums.registered,
        Quantity.ALLOCATION: sums.allocation,
        Quantity.USE: sums.use,
    }
    for quantity, resources in by_kind.items():
        amounts |= {Column(quantity, kind): amount for kind, amount in resources.items()}
    return amounts
