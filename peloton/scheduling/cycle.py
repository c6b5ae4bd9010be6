"""One cycle of the resource manager as a pure function: a snapshot in, a plan out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from peloton.model.reason import Reason
from peloton.scheduling.admission import Admission, admit
from peloton.scheduling.backfill import DEFAULT_BACKFILL, Backfill
from peloton.scheduling.compartments import CompartmentLoad, entitle_each
from peloton.scheduling.entitlement import Entitlement, Load, entitle
from peloton.scheduling.eviction import Eviction, HeldRun, sum_usage
from peloton.scheduling.gangs import GangRun, Queues, Usage
from peloton.scheduling.preemption import preempt
from peloton.scheduling.tree import Ints, PoolTree


@dataclass(frozen=True, eq=False)
class Evictable:
    """The input of a cycle that may evict."""

    held: Sequence[HeldRun]  # without pods that are leaving
    leaving: Usage  # ``Snapshot.leaving`` plus all other pods that will end anyway
    due: Set[int]  # rows that have been over their entitlement for long enough
    pod_limit: int  # about how many pods one cycle evicts


@dataclass(frozen=True, slots=True)
class HeldGang:
    """A gang in a queue that cannot be admitted yet, and the reason; gangs behind it pass it."""

    row: int
    run: GangRun
    reason: Reason


@dataclass(frozen=True, eq=False)
class Snapshot:
    """All input of a cycle. Arrays are ``[P,R]`` by the rows of ``tree``, own amounts of leaves."""

    tree: PoolTree
    capacity: Ints  # [R] the sum of all hosts that take pods, and all licenses
    slack_cpu: int  # revocable cpu of the same hosts
    usage: Usage
    demand: Ints
    slack_demand: Ints
    waiting: Mapping[int, Queues]
    pod_limit: int  # about how many pods one cycle admits
    begin_at: int = 0  # pool row where the last cycle stopped
    leaving: Usage | None = None  # the part of ``usage`` that evicted pods still hold; None: nothing
    evictable: Evictable | None = None  # None: nothing is evicted in this cycle
    preempts: bool = True  # False: preemption is switched off
    held: Sequence[HeldGang] = ()  # in backoff; neither in ``waiting`` nor in ``demand``
    compartments: Sequence[CompartmentLoad] = ()  # each with a part of ``usage``; empty: one for all hosts
    backfill: Backfill = DEFAULT_BACKFILL


@dataclass(frozen=True, eq=False)
class Plan:
    entitlement: Entitlement
    admission: Admission
    evictions: Sequence[Eviction] = ()


def plan_cycle(now: Snapshot) -> Plan:
    # 1. The usage and the demand of each pool.
    load = Load(now.demand, now.slack_demand, now.usage.non_slack, now.usage.slack)

    # 2. The entitlement of each pool.
    if now.compartments:
        entitlement = entitle_each(now.tree, now.compartments, load, now.usage, now.capacity)
    else:
        entitlement = entitle(now.tree, load, now.capacity, now.slack_cpu)

    # 3. The gangs, of pools above their entitlement or of lower priority, that are evicted for waiting gangs.
    evictions: Sequence[Eviction] = ()
    leaving = now.leaving
    if now.evictable is not None:
        may = now.evictable
        left = now.usage.without(may.leaving)
        evictions = preempt(
            now.tree,
            entitlement,
            left,
            now.waiting,
            held=may.held,
            due=may.due,
            pod_limit=may.pod_limit,
            backfill=now.backfill,
        )
        if evictions:
            leaving = sum_usage(evictions, may.leaving)

    # 4. The gangs that are admitted. Resources of the gangs evicted in step 3 become free in a later cycle, for the
    # gangs they were evicted for.
    admission = admit(
        now.tree,
        entitlement,
        now.usage,
        now.waiting,
        pod_limit=now.pod_limit,
        begin_at=now.begin_at,
        leaving=leaving,
        preempts=now.preempts,
        backfill=now.backfill,
    )

    return Plan(entitlement, admission, evictions)
