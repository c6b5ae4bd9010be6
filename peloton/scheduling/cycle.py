"""One cycle of the resource manager as a pure function: a snapshot in, a plan out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from peloton.model.reason import Reason
from peloton.scheduling.admission import Admission, admit
from peloton.scheduling.backfill import DEFAULT_BACKFILL, Backfill
from peloton.scheduling.compartments import CompartmentLoad, entitle_each
from peloton.scheduling.entitlement import Entitlement, Load, entitle
from peloton.scheduling.eviction import Eviction, HeldRun, held_by
from peloton.scheduling.gangs import GangRun, Queues, Usage
from peloton.scheduling.preemption import preempt
from peloton.scheduling.tree import Ints, PoolTree


@dataclass(frozen=True, eq=False)
class Evictable:
    """What a cycle needs in which it may evict."""

    held: Sequence[HeldRun]  # without what is leaving
    leaving: Usage  # as ``Snapshot.leaving``, plus all other pods that will end anyway
    due: Set[int]  # rows that have been over their entitlement for long enough
    pod_limit: int  # pods evicted in one cycle, about


@dataclass(frozen=True, slots=True)
class HeldGang:
    """A gang in a queue that is not admitted yet, and why; the gangs behind it pass it by."""

    row: int
    run: GangRun
    reason: Reason


@dataclass(frozen=True, eq=False)
class Snapshot:
    """All input of a cycle. Arrays are ``[P,R]`` by the rows of ``tree``, own amounts of leaves."""

    tree: PoolTree
    capacity: Ints  # [R] of all hosts that take pods
    slack_cpu: int  # revocable cpu of these hosts
    usage: Usage
    demand: Ints
    slack_demand: Ints
    waiting: Mapping[int, Queues]
    pod_limit: int  # pods admitted in one cycle, about
    begin_at: int = 0  # pool row where the last cycle stopped
    leaving: Usage | None = None  # the part of ``usage`` that evicted pods still hold; None: nothing
    evictable: Evictable | None = None  # None: nothing is evicted in this cycle
    preempts: bool = True  # False: nothing is evicted, ever
    held: Sequence[HeldGang] = ()  # neither in ``waiting`` nor in ``demand``
    compartments: Sequence[CompartmentLoad] = ()  # each with a part of ``usage``; empty: there is one for everything
    backfill: Backfill = DEFAULT_BACKFILL


@dataclass(frozen=True, eq=False)
class Plan:
    entitlement: Entitlement
    admission: Admission
    evictions: Sequence[Eviction] = ()


def plan_cycle(now: Snapshot) -> Plan:
    # 1. What does each pool hold and want?
    load = Load(now.demand, now.slack_demand, now.usage.non_slack, now.usage.slack)

    # 2. What may each pool use?
    if now.compartments:
        entitlement = entitle_each(now.tree, now.compartments, now.usage.parts)
    else:
        entitlement = entitle(now.tree, load, now.capacity, now.slack_cpu)

    # 3. Which gangs, of pools above that or of lower priority, must give back room to waiting gangs?
    evictions: Sequence[Eviction] = ()
    leaving = now.leaving
    if now.evictable is not None:
        may = now.evictable
        left = now.usage.without(may.leaving)
        evictions = preempt(now.tree, entitlement, left, now.waiting, may.held, may.due, may.pod_limit, now.backfill)
        if evictions:
            leaving = held_by(evictions, may.leaving)

    # 4. Which gangs may go ahead? What step 3 evicts becomes free in a later cycle, for the gangs it was evicted for.
    admission = admit(
        now.tree,
        entitlement,
        now.usage,
        now.waiting,
        now.pod_limit,
        now.begin_at,
        leaving,
        now.preempts,
        now.backfill,
    )

    return Plan(entitlement, admission, evictions)
