"""Admission: the selection of waiting gangs that may have their resources now.

Each leaf pool has four queues, visited in the order of ``QueueKind``; in each, higher priority first, then first come
first served. A gang is admitted when it fits all of

* its pool's entitlement: non-slack for ordinary gangs, slack for revocable ones;
* its pool's reservation, if it is non-preemptible: such pods are never evicted, so they never use borrowed resources
  (with preemption switched off this rule does not apply);
* its pool's controller limit, if it is a single controller pod;
* the limit of every pool above, up to the capacity of the cluster.

Where host pools serve some workloads only, entitlement and capacity are those of the gang's compartment; see
``compartments``. All other rules count a pool's pods on all hosts.

Only the resource kinds that a gang requests are compared. The head of a queue that has to wait blocks only its own
queue, and if its compartment lacks the resources only gangs of that compartment. In all queues but the ordinary one,
gangs that fit may pass it for a while first, see ``backfill``. A gang larger than its pool may ever have (limit,
reservation, controller limit, the cluster) is passed over: it could wait for ever.

While evicted pods are leaving, two ledgers are kept: the present usage, and the usage once they have left. In the order
of visits each gang reserves its resources in the second, and is admitted when it fits the first as well. Resources that
become free bit by bit are so kept for the gang that they were freed for, and no other gang waits for it.

Work is proportional to pools with a queue plus runs admitted and passed, whatever the number of pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import sub
from typing import NamedTuple

import numpy as np

from peloton.model.ids import JobId
from peloton.model.reason import NOT_BACKFILLED, Reason, Rule
from peloton.model.resources import UNLIMITED
from peloton.scheduling.backfill import DEFAULT_BACKFILL, Backfill
from peloton.scheduling.entitlement import Entitlement, pair_parts
from peloton.scheduling.gangs import GangRun, Need, QueueKind, Queues, Usage
from peloton.scheduling.tree import CPU, ROOT_PATH, PoolTree

PASSED_OVER_MAX = 100
"""Limit of hopeless runs that one pass skips per queue; the next one blocks its queue."""
NEEDS_MAX = 4_096
"""Size of the cache of resource needs by kind: most runs have the same need as many others."""
ONLY_PART = (0,)


class Admitted(NamedTuple):
    """The admission of the first ``gang_count`` gangs of a run in the queue of pool row ``pool``."""

    pool: int
    run: GangRun
    gang_count: int

    @property
    def is_part(self) -> bool:
        """Return whether gangs of the run are left waiting."""
        return self.gang_count < self.run.gang_count

    @property
    def rest_start(self) -> int:
        """Return the start of the gangs that are left waiting."""
        return self.run.start + self.gang_count * self.run.gang_size


@dataclass(frozen=True, slots=True)
class Admission:
    admitted: tuple[Admitted, ...] = ()
    heads: dict[tuple[int, QueueKind, int], tuple[GangRun, Reason]] = field(default_factory=dict)
    """The run that blocks the rest of its queue and the reason, by pool row, queue and compartment."""
    passed_over: dict[tuple[JobId, int], Reason] = field(default_factory=dict)
    """The reasons of runs that can never fit under the present limits, by (job, start)."""
    passed: dict[tuple[JobId, int], Reason] = field(default_factory=dict)
    """The reasons of runs that wait, in whole or in part, and let gangs behind them go first, by (job, start)."""
    resume_at: int = 0
    """The pool row to begin with in the next pass; other than 0 when ``pod_limit`` ended this one early."""

    def block(self, row: int, kind: QueueKind, parts: Iterable[int], run: GangRun, why: Reason) -> None:
        for part in parts:
            self.heads[row, kind, part] = (run, why)


def admit(
    tree: PoolTree,
    entitlement: Entitlement,
    usage: Usage,
    waiting: Mapping[int, Queues],
    pod_limit: int,
    begin_at: int = 0,
    leaving: Usage | None = None,
    preempts: bool = True,
    backfill: Backfill = DEFAULT_BACKFILL,
) -> Admission:
    """Admit up to about ``pod_limit`` pods (a gang is never cut) from ``waiting``: leaf row -> its queues.

    Pools are visited by row from ``begin_at`` on and round, so that the bound starves no pool. ``leaving`` is the part
    of ``usage`` that evicted pods still hold; with it the visits begin at the first row, as those of preemption do.
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
            for chosen in _admit_queue(
                ledger, later, row, kind, runs=runs, pod_limit=pod_limit, backfill=backfill, notes=admission
            ):
                admitted.append(chosen)
                pod_limit -= chosen.gang_count * chosen.run.gang_size
            if pod_limit <= 0:
                return replace(admission, admitted=tuple(admitted), resume_at=row + 1)
    return replace(admission, admitted=tuple(admitted))


def _admit_queue(
    ledger: Ledger,
    later: Ledger | None,
    row: int,
    kind: QueueKind,
    runs: Sequence[GangRun],
    pod_limit: int,
    backfill: Backfill,
    notes: Admission,
) -> Iterator[Admitted]:
    """Take gangs from the front of one queue up to the first run that has to wait and that no other may pass.

    ``later`` is the ledger once evicted pods have left.
    """
    passed_over = passed = 0
    refused: dict[tuple[object, ...], Reason] = {}  # by ``GangRun.sort``; a pass frees nothing
    free = ledger.compartments  # compartments in which no gang of the queue waits yet
    for run in runs:
        if free is not ledger.compartments and not free.issuperset(ledger.parts_of(run)):
            continue
        if pod_limit <= 0:
            notes.block(row, kind, free, run, Reason(Rule.BATCH_BOUND, ledger.tree.paths[row]))
            return
        if refused and (again := refused.get(run.sort)) and backfill.lets_pass(run, passed):
            passed += 1
            left_s = backfill.time_left_s(run)
            notes.passed[run.job_id, run.start] = again._replace(gang_size=run.gang_size, backfill_s=left_s)
            continue
        rules = bounds = ledger.bounds(row, run)
        bounded = min(run.gang_count, -(-pod_limit // run.gang_size))
        count = gangs_that_fit(run, bounds, bounded)
        if later is not None:
            promises = later.bounds(row, run)
            promised = gangs_that_fit(run, promises, run.gang_count)
            take(run, promises, promised)
            count = min(count, promised)
            rules += promises
        if count == 0 and passed_over < PASSED_OVER_MAX and ledger.is_hopeless(row, run):
            never = ledger.first_refusal(run, rules, is_final=True)
            if never is not None:
                passed_over += 1
                notes.passed_over[run.job_id, run.start] = never
                continue
        if count > 0:
            take(run, bounds, count)
            pod_limit -= count * run.gang_size
            yield Admitted(row, run, count)
        if count < run.gang_count:
            left_s = backfill.time_left_s(run)
            refusal = ledger.first_refusal(run, rules, is_final=False, backfill_s=left_s)
            if refusal and backfill.lets_pass(run, passed):
                passed += 1
                notes.passed[run.job_id, run.start] = refusal
                if later is None:  # otherwise each of the like runs also reserves in ``later``
                    refused[run.sort] = refusal
                continue
            refusal = refusal or Reason(Rule.BATCH_BOUND, ledger.tree.paths[row])
            if not refusal.host_pools:
                notes.block(row, kind, free, run, refusal)
                return
            blocked = ledger.find_blocked(run, refusal)
            notes.block(row, kind, free & blocked, run, refusal)
            free -= blocked
            if not free:
                return


class Bound(NamedTuple):
    """One rule on one pool: the amounts that it allows now, that are used, and that it may ever allow; ``[R]`` each."""

    rule: Rule
    pool_path: str
    allowed: list[int]
    used: list[int]
    ever: list[int] | None = None  # None: ``allowed`` may grow
    skip_cpu: bool = False  # the cpu of revocable pods is not physical
    host_pools: str = ""  # the one compartment that the rule counts; empty: it counts pods on all hosts
    apart: Need | None = None  # the part of a gang's need that counts here; None: the whole need

    def count_need(self, run: GangRun) -> Need:
        """Return the amounts ``[R]`` that one gang of the run counts under this rule."""
        need = self.apart or run.need
        return (*need[:CPU], 0, *need[CPU + 1 :]) if self.skip_cpu else need

    def short(self, run: GangRun, count: int) -> Iterator[tuple[int, int]]:
        """Yield ``(kind, amount)`` for each kind of which ``count`` gangs lack an amount."""
        for kind, amount in enumerate(self.count_need(run)):
            lacking = amount * count - (self.allowed[kind] - self.used[kind])
            if amount and lacking > 0:
                yield kind, lacking


def gangs_that_fit(run: GangRun, bounds: Iterable[Bound], at_most: int) -> int:
    count, whole = at_most, _amounts(run.need)
    for _, _, allowed, used, _, skip_cpu, _, apart in bounds:
        for kind, amount in whole if apart is None else _amounts(apart):
            left = allowed[kind] - used[kind]
            if amount * count > left and not (skip_cpu and kind == CPU):
                if left < amount:
                    return 0
                count = left // amount
    return count


def take(run: GangRun, bounds: Iterable[Bound], count: int) -> None:
    """Count ``count`` gangs as admitted under all their bounds in a ledger; a negative count releases them."""
    whole = _amounts(run.need)
    for _, _, _, used, _, skip_cpu, _, apart in bounds:
        for kind, amount in whole if apart is None else _amounts(apart):
            if not (skip_cpu and kind == CPU):
                used[kind] += amount * count


@lru_cache(maxsize=NEEDS_MAX)
def _amounts(need: Need) -> tuple[tuple[int, int], ...]:
    """Return ``(kind, amount)`` for each kind of which the need is not zero."""
    return tuple((kind, amount) for kind, amount in enumerate(need) if amount)


class _Compartment:
    """The amounts held and allowed in one compartment, or in a whole cluster without compartments. ``[P][R]`` and
    ``[R]``."""

    def __init__(self, tree: PoolTree, entitlement: Entitlement, usage: Usage) -> None:
        self.host_pools = entitlement.host_pools
        self.used = {True: usage.slack.tolist(), False: usage.non_slack.tolist()}  # by whether pods are revocable
        self.may_use = {True: entitlement.slack.tolist(), False: entitlement.non_slack.tolist()}
        self.held: list[int] = usage.held.tolist()
        self.capacity: list[int] = entitlement.total[0].tolist()
        self.ever: list[list[int]] = np.minimum(tree.limit_above, entitlement.total[0]).tolist()


def _whole(_run: GangRun) -> tuple[int, ...]:
    """Return the one part of a cluster without compartments."""
    return ONLY_PART


class Ledger:
    """The usage as it changes during one pass. Its lists of amounts are changed in place, so bounds are built once."""

    def __init__(self, tree: PoolTree, entitlement: Entitlement, usage: Usage, preempts: bool = True) -> None:
        self.tree = tree
        self.parts_of = usage.parts_of if usage.parts else _whole
        self._part_of = usage.part_of
        arrays = {
            "physical": usage.physical(tree),
            "non_preemptible": usage.non_preemptible,
            "controller": usage.controller,
            "limit": tree.limit,
            "reservation": tree.reservation if preempts else np.full_like(tree.reservation, UNLIMITED),
            "controller_limit": tree.controller_limit,
        }
        # Lists of Python integers are much quicker to read one by one than arrays.
        self._rows: dict[str, list[list[int]]] = {name: array.tolist() for name, array in arrays.items()}
        self._parts = [_Compartment(tree, *pair) for pair in pair_parts(entitlement, usage)]
        self.compartments = frozenset(range(len(usage.parts) or 1))
        self._licenses = tuple(range(len(self.compartments), len(self._parts)))  # the part that counts in all of them
        self._no_limit = [UNLIMITED] * len(tree.kinds)  # never refuses: a gang is only counted against it
        self._usual: dict[tuple[int, bool, int], tuple[Bound, ...]] = {}
        self._above: dict[tuple[int, bool, int], tuple[Bound, ...]] = {}

    def amounts(self, name: str, row: int) -> list[int]:
        return self._rows[name][row]

    def find_blocked(self, run: GangRun, why: Reason) -> frozenset[int]:
        """Return the compartments whose gangs wait behind this run, refused for reason ``why``."""
        return frozenset(self.parts_of(run)) if why.host_pools else self.compartments

    def own_columns(self, row: int, run: GangRun) -> set[int]:
        """Return the ids of the amounts that count only the pool's own pods on all hosts, except the amounts held of
        hosts."""
        found = {id(self.amounts("controller", row))}
        parts = (*self.parts_of(run), *self._licenses)
        return found | {id(used[row]) for part in parts for used in self._parts[part].used.values()}

    def first_refusal(
        self, run: GangRun, bounds: Iterable[Bound], is_final: bool, backfill_s: int = NOT_BACKFILLED
    ) -> Reason | None:
        """Return the first rule that one gang of the run fails; with ``is_final``, fails whatever becomes free."""
        whole = _amounts(run.need)
        for rule, path, allowed, used, ever, skip_cpu, host_pools, apart in bounds:
            if is_final and ever is None:
                continue
            for kind, amount in whole if apart is None else _amounts(apart):
                left = allowed[kind] - used[kind]
                if amount <= (ever[kind] if is_final and ever else left) or (skip_cpu and kind == CPU):
                    continue
                bound = ever[kind] if is_final and ever else allowed[kind]
                name, free, size = self.tree.kinds[kind], max(left, 0), run.gang_size
                return Reason(
                    rule,
                    path,
                    name,
                    amount,
                    left=free,
                    bound=bound,
                    gang_size=size,
                    job_id="",
                    is_final=is_final,
                    host_pools=host_pools,
                    backfill_s=backfill_s,
                )
        return None

    def bounds(self, row: int, run: GangRun) -> tuple[Bound, ...]:
        """Return all bounds that count a gang of this run, the pool's own first."""
        parts = self.parts_of(run)
        usual = self._usual_bounds(row, run.revocable, parts[0])
        own = () if run.revocable or (run.preemptible and not run.controller) else self._own_bounds(row, run)
        if len(parts) == 1 and not self._licenses:
            return (usual[0], *own, *usual[1:]) if own else usual
        shares: list[tuple[tuple[Bound, ...], Need | None]] = [
            (self._usual_bounds(row, run.revocable, part), self._share(run, part) if len(parts) > 1 else None)
            for part in parts
        ]
        shares += [(self._usual_bounds(row, run.revocable, part), None) for part in self._licenses]
        entitlements = [one[1]._replace(apart=need) for one, need in shares]
        capacities = [one[-1]._replace(apart=need) for one, need in shares]
        return (usual[0], *own, *entitlements, *usual[2:-1], *capacities)

    def _own_bounds(self, row: int, run: GangRun) -> tuple[Bound, ...]:
        """Return the pool's bounds for non-preemptible gangs and for controllers."""
        rows, path, found = self._rows, self.tree.paths[row], []
        if not run.preemptible:
            may = rows["reservation"][row]
            found.append(Bound(Rule.RESERVATION, path, may, rows["non_preemptible"][row], may))
        if run.controller:
            may = rows["controller_limit"][row] if run.gang_size == 1 else self._no_limit
            found.append(Bound(Rule.CONTROLLER_LIMIT, path, may, rows["controller"][row], may))
        return tuple(found)

    def _usual_bounds(self, row: int, revocable: bool, part: int) -> tuple[Bound, ...]:
        """Return the limit of a pool, its entitlement, the limits above and the capacity."""
        key = (row, revocable, part)
        found = self._usual.get(key)
        if found is None:
            path, limit, mine = self.tree.paths[row], self._rows["limit"][row], self._parts[part]
            first = Bound(Rule.POOL_LIMIT, path, limit, self._rows["physical"][row], limit, revocable)
            rule = Rule.SLACK_ENTITLEMENT if revocable else Rule.ENTITLEMENT
            may, used = mine.may_use[revocable][row], mine.used[revocable][row]
            entitled = Bound(rule, path, may, used, ever=None, skip_cpu=False, host_pools=mine.host_pools)
            found = first, entitled, *self._bounds_above(self.tree.ancestors[row], revocable, part)
            self._usual[key] = found
        return found

    def _share(self, run: GangRun, part: int) -> Need:
        """Return the part of a gang's need that falls to one compartment, for a gang with pods of several workloads."""
        needs = (need for workload, need in run.apart if self._part_of[workload] == part)
        return tuple(map(sum, zip(*needs, strict=True)))

    def _bounds_above(self, rows: Sequence[int], revocable: bool, part: int) -> tuple[Bound, ...]:
        """Return the limits of these rows, shared by all pools below ``rows[0]``, the lowest; the root's is the
        capacity."""
        key = (rows[0], revocable, part)
        if key not in self._above:
            found: list[Bound] = []
            for row in rows[:-1]:
                may, used = self.amounts("limit", row), self.amounts("physical", row)
                found.append(Bound(Rule.POOL_LIMIT, self.tree.paths[row], may, used, may, revocable))
            mine = self._parts[part]
            may, used, where = mine.capacity, mine.held, mine.host_pools
            found.append(
                Bound(Rule.CLUSTER_CAPACITY, ROOT_PATH, may, used, ever=may, skip_cpu=revocable, host_pools=where)
            )
            self._above[key] = tuple(found)
        return self._above[key]

    def is_hopeless(self, row: int, run: GangRun) -> bool:
        """Return whether a gang of the run is larger than some rule may ever allow; a quick form of
        ``first_refusal``."""
        parts = self.parts_of(run)
        if len(parts) > 1:
            return self.first_refusal(run, self.bounds(row, run), is_final=True) is not None
        amounts, ever, revocable = _amounts(run.need), self._parts[parts[0]].ever[row], run.revocable
        for kind, amount in amounts:
            if amount > ever[kind] and not (revocable and kind == CPU):
                return True
        if revocable or (run.preemptible and not run.controller):
            return False
        reservation = self._no_limit if run.preemptible else self._rows["reservation"][row]
        controllers = self._rows["controller_limit"][row] if run.is_lone_controller else self._no_limit
        return any(amount > reservation[kind] or amount > controllers[kind] for kind, amount in amounts)

    def over(self, row: int, run: GangRun) -> list[int]:
        """Return by kind ``[R]`` the amount that the run's pool holds above its entitlement; it is negative below
        it."""
        found = [map(sub, used, may) for used, may in self._usage_and_entitlement(row, run)]
        return [max(amounts) for amounts in zip(*found, strict=True)]

    def compare_usage(self, row: int, run: GangRun, kind: int) -> tuple[int, int]:
        """Return the pool's usage and entitlement of one kind, in the run's compartment that is most above its
        entitlement."""
        pairs = [(used[kind], may[kind]) for used, may in self._usage_and_entitlement(row, run)]
        return max(pairs, key=lambda pair: pair[0] - pair[1])

    def _usage_and_entitlement(self, row: int, run: GangRun) -> Iterator[tuple[list[int], list[int]]]:
        for mine in (self._parts[part] for part in (*self.parts_of(run), *self._licenses)):
            yield mine.used[run.revocable][row], mine.may_use[run.revocable][row]
