"""Which waiting gangs may have their resources now.

Each leaf pool has four queues, visited in the order of ``QueueKind``; in each, higher priority first, then first come
first served. A gang is admitted when it fits all of

* its pool's entitlement: non-slack for ordinary gangs, slack for revocable ones;
* its pool's reservation, if it is non-preemptible: such pods are never evicted, so they never use what is borrowed
  (with preemption switched off this rule does not apply);
* its pool's controller limit, if it is a single controller pod;
* the limit of every pool above, up to the capacity of the cluster.

Only kinds that a gang asks for are compared. A head that has to wait blocks its own queue only. A gang larger than its
pool may ever have (limit, reservation, controller limit, the cluster) is passed over: it could wait for ever.

While evicted pods are leaving, two ledgers are kept: what is used now, and what will be used once they have left. In
the order of visits each gang reserves its room in the second, and is admitted when it fits the first as well. So room
that becomes free bit by bit is kept for the gang that it was made for, and no other gang waits for it.

Work is proportional to pools with a queue plus runs admitted, whatever the number of pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from peloton.model.ids import JobId
from peloton.model.pod import PodShape
from peloton.model.reason import Reason, Rule
from peloton.model.resources import RESOURCE_KINDS
from peloton.scheduling.entitlement import Entitlement
from peloton.scheduling.tree import CPU, Ints, PoolTree

PASSED_OVER_MAX = 100
"""Hopeless runs that are passed over per queue and pass; the next one blocks its queue."""


class QueueKind(IntEnum):
    """The queues of a pool in the order of visits."""

    NON_PREEMPTIBLE = 0
    CONTROLLER = 1
    REVOCABLE = 2
    ORDINARY = 3

    __hash__ = int.__hash__  # Enum's own is slow, and queues are looked up very often


@dataclass(frozen=True, slots=True)
class GangRun:
    """A run of like gangs of one job: instances ``start .. start + gang_count*gang_size - 1``."""

    job_id: JobId
    start: int
    gang_count: int
    gang_size: int
    need: tuple[int, ...]  # [R] of one whole gang
    priority: int  # higher goes first
    queue_seq: int  # lower goes first among equals
    preemptible: bool = True
    revocable: bool = False
    controller: bool = False

    @property
    def queue(self) -> QueueKind:
        if self.revocable:
            return QueueKind.REVOCABLE
        if not self.preemptible:
            return QueueKind.NON_PREEMPTIBLE
        return QueueKind.CONTROLLER if self.is_lone_controller else QueueKind.ORDINARY

    @property
    def is_lone_controller(self) -> bool:
        """Only a controller of a gang of one counts against the controller limit."""
        return self.controller and self.gang_size == 1

    @property
    def order(self) -> tuple[int, int, int]:
        return (-self.priority, self.queue_seq, self.start)

    @property
    def pod_count(self) -> int:
        return self.gang_count * self.gang_size


@dataclass(frozen=True, slots=True)
class Footprint:
    """What admission needs to know of a pod."""

    need: tuple[int, ...]  # [R]
    preemptible: bool
    revocable: bool
    controller: bool

    @classmethod
    def of(cls, shape: PodShape) -> Footprint:
        return cls(tuple(shape.resources), shape.preemptible, shape.revocable, shape.controller)


@dataclass(frozen=True, eq=False)
class Usage:
    """What admitted pods hold, own amounts ``[P,R]``; total is ``non_slack + slack``."""

    non_slack: Ints
    slack: Ints  # of revocable pods, which count nowhere else
    non_preemptible: Ints
    controller: Ints

    @property
    def columns(self) -> tuple[Ints, ...]:
        return self.non_slack, self.slack, self.non_preemptible, self.controller

    def copy(self) -> Usage:
        return Usage(*(column.copy() for column in self.columns))

    def without(self, part: Usage) -> Usage:
        """What is left when a part is gone."""
        return Usage(*(mine - gone for mine, gone in zip(self.columns, part.columns, strict=True)))

    def charge(self, row: int, holder: Footprint | GangRun, count: int) -> None:
        """Count so many more pods or gangs in pool ``row``; a negative count takes them off."""
        amounts = np.multiply(holder.need, count)
        if holder.revocable:
            self.slack[row] += amounts
            return
        self.non_slack[row] += amounts
        if not holder.preemptible:
            self.non_preemptible[row] += amounts
        if holder.controller:
            self.controller[row] += amounts

    def physical(self, tree: PoolTree) -> Ints:
        """``[P,R]`` that pools and all below them hold of hosts: the cpu of revocable pods is slack."""
        own = self.non_slack + self.slack
        own[:, CPU] = self.non_slack[:, CPU]
        return tree.roll_up(own)


Queues = Mapping[QueueKind, Sequence[GangRun]]
"""Sorted by ``GangRun.order``."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The first ``gang_count`` gangs of a run that stands in the queue of pool row ``pool``."""

    pool: int
    run: GangRun
    gang_count: int


@dataclass(frozen=True, slots=True)
class Admission:
    admitted: tuple[Admitted, ...] = ()
    heads: dict[tuple[int, QueueKind], tuple[GangRun, Reason]] = field(default_factory=dict)
    """Per pool row and queue: the run that blocks the rest, and why."""
    passed_over: dict[tuple[JobId, int], Reason] = field(default_factory=dict)
    """(job, start) of runs that can never fit as things are."""
    resume_at: int = 0
    """Pool row to begin with next time; other than 0 when the bound ended the pass early."""


def admit(
    tree: PoolTree,
    entitlement: Entitlement,
    usage: Usage,
    waiting: Mapping[int, Queues],
    pod_limit: int,
    begin_at: int = 0,
    leaving: Usage | None = None,
    preempts: bool = True,
) -> Admission:
    """Admit up to about ``pod_limit`` pods (a gang is never cut) from ``waiting``: leaf row -> its queues.

    Pools are visited by row from ``begin_at`` on and round, so that the bound starves no pool. ``leaving``: the part of
    ``usage`` that evicted pods still hold; with it the visits begin at the first row, as those of preemption do.
    """
    ledger = Ledger(tree, entitlement, usage, preempts)
    later = None if leaving is None else Ledger(tree, entitlement, usage.without(leaving), preempts)
    begin_at = 0 if later else begin_at
    admission = Admission()
    admitted: list[Admitted] = []
    rows = sorted(waiting)
    for row in [r for r in rows if r >= begin_at] + [r for r in rows if r < begin_at]:
        for kind in QueueKind:
            runs = waiting[row].get(kind, ())
            for chosen in _admit_queue(ledger, later, row, kind, runs, pod_limit, admission):
                admitted.append(chosen)
                pod_limit -= chosen.gang_count * chosen.run.gang_size
            if pod_limit <= 0:
                return Admission(tuple(admitted), admission.heads, admission.passed_over, row + 1)
    return Admission(tuple(admitted), admission.heads, admission.passed_over)


def _admit_queue(
    ledger: Ledger,
    later: Ledger | None,
    row: int,
    kind: QueueKind,
    runs: Sequence[GangRun],
    pod_limit: int,
    notes: Admission,
) -> Iterator[Admitted]:
    """Take from the front of one queue until its head has to wait. ``later``: the ledger once evicted pods have
    left."""
    passed_over = 0
    for run in runs:
        if pod_limit <= 0:
            notes.heads[row, kind] = (run, Reason(Rule.BATCH_BOUND, ledger.tree.paths[row]))
            return
        bounds = ledger.bounds(row, run)
        bounded = min(run.gang_count, -(-pod_limit // run.gang_size))
        count = gangs_that_fit(run, bounds, bounded)
        if later is not None:
            promises = later.bounds(row, run)
            promised = gangs_that_fit(run, promises, run.gang_count)
            later.take(row, run, promised)
            count = min(count, promised)
            bounds += promises
        if count == 0 and passed_over < PASSED_OVER_MAX and ledger.is_hopeless(row, run):
            never = first_refusal(run, bounds, is_final=True)
            if never is not None:
                passed_over += 1
                notes.passed_over[run.job_id, run.start] = never
                continue
        if count > 0:
            ledger.take(row, run, count)
            pod_limit -= count * run.gang_size
            yield Admitted(row, run, count)
        if count < run.gang_count:
            refusal = first_refusal(run, bounds, is_final=False) or Reason(Rule.BATCH_BOUND, ledger.tree.paths[row])
            notes.heads[row, kind] = (run, refusal)
            return


class Bound(NamedTuple):
    """One rule on one pool: how much it allows, how much is used, how much it may ever allow. ``[R]`` each."""

    rule: Rule
    pool_path: str
    allowed: list[int]
    used: list[int]
    ever: list[int] | None = None  # None: ``allowed`` may grow
    skip_cpu: bool = False  # the cpu of revocable pods is not physical

    def short(self, need: tuple[int, ...], count: int) -> Iterator[tuple[int, int]]:
        """``(kind, amount)`` that ``count`` gangs lack."""
        for kind, amount in enumerate(need):
            if amount > 0 and not (self.skip_cpu and kind == CPU):
                lacking = amount * count - (self.allowed[kind] - self.used[kind])
                if lacking > 0:
                    yield kind, lacking


def gangs_that_fit(run: GangRun, bounds: Iterable[Bound], at_most: int) -> int:
    count = at_most
    for _, _, allowed, used, _, skip_cpu in bounds:
        for kind, amount in enumerate(run.need):
            if amount > 0 and amount * count > allowed[kind] - used[kind] and not (skip_cpu and kind == CPU):
                count = max((allowed[kind] - used[kind]) // amount, 0)
        if count == 0:
            return 0
    return count


def first_refusal(run: GangRun, bounds: Iterable[Bound], is_final: bool) -> Reason | None:
    """The first rule that one gang of the run fails: now, or whatever becomes free."""
    for rule, path, allowed, used, ever, skip_cpu in bounds:
        for kind, amount in enumerate(run.need):
            if is_final:
                fails = ever is not None and amount > ever[kind]
            else:
                fails = amount > 0 and amount > allowed[kind] - used[kind]
            if fails and not (skip_cpu and kind == CPU):
                bound = ever[kind] if is_final and ever is not None else allowed[kind]
                left, name = max(allowed[kind] - used[kind], 0), RESOURCE_KINDS[kind]
                return Reason(rule, path, name, amount, left, bound, run.gang_size, is_final=is_final)
    return None


class Ledger:
    """Usage as it changes during one pass. Lists of amounts stay the same objects, so bounds are built once."""

    def __init__(self, tree: PoolTree, entitlement: Entitlement, usage: Usage, preempts: bool = True) -> None:
        self.tree = tree
        self._preempts = preempts
        arrays = {
            "non_slack": usage.non_slack,
            "slack": usage.slack,
            "non_preemptible": usage.non_preemptible,
            "controller": usage.controller,
            "physical": usage.physical(tree),
            "may_non_slack": entitlement.non_slack,
            "may_slack": entitlement.slack,
            "limit": tree.limit,
            "reservation": tree.reservation,
            "controller_limit": tree.controller_limit,
            "capacity": entitlement.total,
            "ever": np.minimum(tree.limit_above, entitlement.total[0]),
        }
        # Lists of Python integers: much quicker to read one by one.
        self._rows: dict[str, list[list[int]]] = {name: array.tolist() for name, array in arrays.items()}
        self._above: dict[tuple[int, bool], tuple[Bound, ...]] = {}

    def amounts(self, name: str, row: int) -> list[int]:
        return self._rows[name][row]

    def bounds(self, row: int, run: GangRun) -> tuple[Bound, ...]:
        """The rules for this run, the pool's own first."""
        rows, path = self._rows, self.tree.paths[row]
        limit = rows["limit"][row]
        bounds = [Bound(Rule.POOL_LIMIT, path, limit, rows["physical"][row], limit, run.revocable)]
        if run.revocable:
            bounds.append(Bound(Rule.SLACK_ENTITLEMENT, path, rows["may_slack"][row], rows["slack"][row]))
        else:
            if self._preempts and not run.preemptible:
                may = rows["reservation"][row]
                bounds.append(Bound(Rule.RESERVATION, path, may, rows["non_preemptible"][row], may))
            if run.is_lone_controller:
                may = rows["controller_limit"][row]
                bounds.append(Bound(Rule.CONTROLLER_LIMIT, path, may, rows["controller"][row], may))
            bounds.append(Bound(Rule.ENTITLEMENT, path, rows["may_non_slack"][row], rows["non_slack"][row]))
        return (*bounds, *self._bounds_above(self.tree.ancestors[row], run.revocable))

    def _bounds_above(self, rows: Sequence[int], revocable: bool) -> tuple[Bound, ...]:
        """The bounds of these rows, which all pools below ``rows[0]``, the lowest of them, share."""
        key = (rows[0], revocable)
        if key not in self._above:
            found: list[Bound] = []
            for row in rows:
                rule, allowed = (Rule.POOL_LIMIT, "limit") if row else (Rule.CLUSTER_CAPACITY, "capacity")
                may, used = self.amounts(allowed, row), self.amounts("physical", row)
                found.append(Bound(rule, self.tree.paths[row], may, used, may, revocable))
            self._above[key] = tuple(found)
        return self._above[key]

    def is_hopeless(self, row: int, run: GangRun) -> bool:
        """Whether a gang of the run is larger than some rule may ever allow."""
        names = ["ever"]
        if self._preempts and not run.preemptible and not run.revocable:
            names.append("reservation")
        if run.is_lone_controller and not run.revocable:
            names.append("controller_limit")
        for name in names:
            most = self._rows[name][row]
            for kind, amount in enumerate(run.need):
                if amount > most[kind] and not (run.revocable and kind == CPU):
                    return True
        return False

    def columns(self, row: int, run: GangRun) -> list[tuple[list[int], bool]]:
        """Everything that counts a gang of this run: the amounts used ``[R]``, and whether its cpu is left out."""
        rows, physical = self._rows, self._rows["physical"]
        if run.revocable:
            found = [(rows["slack"][row], False)]
        else:
            found = [(rows["non_slack"][row], False)]
            if not run.preemptible:
                found.append((rows["non_preemptible"][row], False))
            if run.controller:
                found.append((rows["controller"][row], False))
        found.append((physical[row], run.revocable))
        found += [(physical[above], run.revocable) for above in self.tree.ancestors[row]]
        return found

    def take(self, row: int, run: GangRun, count: int) -> None:
        """Count ``count`` gangs as admitted; a negative count releases them."""
        amounts = [(kind, amount * count) for kind, amount in enumerate(run.need) if amount]
        for used, skips_cpu in self.columns(row, run):
            for kind, amount in amounts:
                if not (skips_cpu and kind == CPU):
                    used[kind] += amount
