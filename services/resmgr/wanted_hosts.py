"""Queued pods that wait for hosts: where host pools divide the hosts, pods beyond their host pools are not admitted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from peloton.model.host_pool import Workload
from peloton.model.resources import Resources, without_licenses
from peloton.scheduling.gangs import GangRun, Need
from services.resmgr.state import ResmgrState

RUNS_MAX = 1_000
"""Limit of the runs of one queue that are counted."""


def find_wanted_hosts(state: ResmgrState) -> list[tuple[Workload, Resources, int]]:
    """Return workload, request and count of the pods that wait for resources on their hosts by the last cycle.

    It counts pods only as far as they fit below the limits of their pool. A member of a gang counts as the mean one.
    """
    if state.entitlement is None or not state.accounts.parts:
        return []
    found: Counter[tuple[Workload, Resources]] = Counter()
    headroom = state.tree.limit_above - state.accounts.usage.physical(state.tree)  # by pool
    capacity = [part.total[0] for part in state.entitlement.parts]
    free = [
        have - part.usage.physical(state.tree)[0] for have, part in zip(capacity, state.accounts.parts, strict=True)
    ]
    for row, run in _waiting(state):
        count = min(run.gang_count, _count_fitting(run.need, headroom[row]))
        headroom[row] -= np.multiply(run.need, count)
        for workload, need in run.needs:
            if _count_fitting(need, free[state.accounts.part_of[workload]]) == 0:
                of_one = [-(-amount // run.gang_size) for amount in need]
                asked = without_licenses(Resources.from_row(state.tree.kinds, of_one))
                found[workload, asked] += count * run.gang_size
    return [(workload, asked, count) for (workload, asked), count in found.items() if count]


def _waiting(state: ResmgrState) -> Iterator[tuple[int, GangRun]]:
    """Yield runs, with the row of their pool, that wait by a rule of a compartment: their own or of one in front of
    them."""
    notes, usage = state.admission, state.accounts.usage
    for pool_id in (pool_id for pool_id in state.waiting.pools if pool_id in state.tree.row):
        row = state.tree.row[pool_id]
        for kind, queue in state.waiting.of_pool(pool_id):
            for run in islice(queue, RUNS_MAX):
                heads = (notes.heads.get((row, kind, part)) for part in usage.parts_of(run))
                whys = [why for head, why in filter(None, heads) if head.order <= run.order]
                key = (run.job_id, run.start)
                whys += filter(None, [notes.passed_over.get(key), notes.passed.get(key)])
                if any(why.host_pools for why in whys):
                    yield row, run


def _count_fitting(need: Need, headroom: Iterable[int]) -> int:
    return max(min((have // amount for amount, have in zip(need, headroom, strict=True) if amount), default=0), 0)
