"""Preemption: the choice of admitted gangs that give their resources back, and of the waiting gangs that take them.

Waiting gangs are visited in the order of admission, with the same backfill, and compared with the usage once all
evicted pods have left. A gang that does not fit may evict

* between pools: preemptible gangs of a pool that has held more than its entitlement for several rounds (``due``), as
  long as it still does, and only in the kinds it holds too much of: non-slack for non-slack, slack for slack. The
  waiting gang is within its own pool's entitlement; the cluster, or a limit further up, has no free resources for it;
* inside a pool: preemptible gangs of lower priority, when the pool itself is full (entitlement, limit, controller
  limit). Gangs of a queue that is visited earlier are left out: they would be admitted again first.

Candidates are taken in the order of their pool's policy until the waiting gangs fit; at the end they are given back in
the reverse order as far as the waiting gangs still fit. A gang that cannot be made to fit evicts nothing, and gangs
leave whole. A gang that waits in an earlier queue takes freed resources first if it fits: both are made to fit, or
nothing is evicted.

Preemption comes to rest: admission keeps within entitlements, which depend on the allocation and demand of pools
together, so a pool that was brought down to its entitlement cannot take back what it gave; and in a pool only a higher
priority evicts a lower one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from peloton.model.ids import RespoolId
from peloton.model.reason import Grounds, Rule
from peloton.scheduling.admission import PASSED_OVER_MAX, Bound, Ledger, gangs_that_fit, take
from peloton.scheduling.backfill import DEFAULT_BACKFILL, Backfill
from peloton.scheduling.earlier_queues import EarlierAdmission, EarlierQueues
from peloton.scheduling.entitlement import Entitlement, pair_parts
from peloton.scheduling.eviction import DEFAULT_POLICY, POLICIES, Eviction, HeldRun, PreemptionPolicy
from peloton.scheduling.gangs import GangRun, QueueKind, Queues, Usage
from peloton.scheduling.tree import PoolTree

WAITING_RUNS_MAX = 10_000
"""Limit of waiting runs that one round examines."""


def over_entitled(tree: PoolTree, entitlement: Entitlement, usage: Usage) -> list[int]:
    """Return the rows of leaves that hold more than their entitlement, in any kind."""
    over = np.zeros_like(tree.is_leaf)
    for may, held in pair_parts(entitlement, usage):
        over |= np.any(held.non_slack > may.non_slack, axis=1) | np.any(held.slack > may.slack, axis=1)
    return [int(row) for row in np.flatnonzero(over & tree.is_leaf)]


def count_over(tree: PoolTree, rows: Sequence[int], counts: Mapping[RespoolId, int]) -> dict[RespoolId, int]:
    """Count the rounds in a row for which each pool has been over its entitlement, this one included."""
    return {tree.ids[row]: counts.get(tree.ids[row], 0) + 1 for row in rows}


def preempt(
    tree: PoolTree,
    entitlement: Entitlement,
    usage: Usage,
    waiting: Mapping[int, Queues],
    held: Sequence[HeldRun],
    due: Set[int],
    pod_limit: int,
    backfill: Backfill = DEFAULT_BACKFILL,
) -> list[Eviction]:
    """Choose at most ``pod_limit`` pods to evict; a gang that needs more waits until it lacks less.

    ``usage`` and ``held`` leave out pods that are leaving already. ``due``: rows that have been over their entitlement
    for long enough. ``waiting`` as for ``admit``.
    """
    if not held or not waiting:
        return []
    selection = _Selection(Ledger(tree, entitlement, usage), held, due, pod_limit)
    seen = 0
    for row in sorted(waiting):
        for kind in QueueKind:
            passed_over = passed = 0
            unserved: set[tuple[object, ...]] = set()  # by ``GangRun.sort``
            runs = waiting[row].get(kind, ())
            free = selection.ledger.compartments
            for at, run in enumerate(runs):
                if not free.issuperset(selection.ledger.parts_of(run)):
                    continue
                seen += 1
                if seen > WAITING_RUNS_MAX:
                    return selection.evictions()
                is_hopeless = selection.ledger.is_hopeless(row, run)
                if is_hopeless and passed_over < PASSED_OVER_MAX:
                    passed_over += 1
                    continue
                if is_hopeless:
                    break
                left = run.gang_count - (0 if run.sort in unserved else selection.serve(row, run))
                if left and backfill.lets_pass(run, passed):
                    passed += 1
                    unserved.add(run.sort)
                    selection.earlier.enqueue(row, [run], 0, left)
                elif left:
                    blocked = selection.find_blocked(row, run)
                    selection.enqueue(row, runs, at, left, free & blocked)
                    free -= blocked  # the run blocks its queue
                    if not free:
                        break
    return selection.evictions()


@dataclass(slots=True, eq=False)
class _Candidate:
    held: HeldRun
    left: int  # gangs that are not evicted


@dataclass(slots=True, eq=False)
class _Pick:
    candidate: _Candidate
    bounds: tuple[Bound, ...]  # of its run
    count: int
    grounds: Grounds

    def give_back(self, count: int) -> None:
        take(self.candidate.held.run, self.bounds, count)
        self.candidate.left += count


Shortage = tuple[Bound, int, int]
"""A bound, a kind, and the amount that is lacking."""
Help = tuple[Bound, int, int, int]
"""A shortage, and the amount of it that one gang gives back."""


class _Selection:
    def __init__(self, ledger: Ledger, held: Sequence[HeldRun], due: Set[int], pod_limit: int) -> None:
        self.ledger = ledger
        self.earlier = EarlierQueues(ledger)
        self._pods_left = pod_limit
        self._picks: list[_Pick] = []
        self._kept: dict[int, dict[int, tuple[Bound, set[int]]]] = {}  # bounds to keep until the end, with kinds
        candidates = [_Candidate(one, one.run.gang_count) for one in held if one.run.preemptible]
        candidates.sort(key=lambda one: (_policy(ledger.tree, one).order(one.held), one.held.pool, one.held.run.job_id))
        self._due = [one for one in candidates if one.held.pool in due]
        self._own: dict[int, list[_Candidate]] = {}
        for one in candidates:
            self._own.setdefault(one.held.pool, []).append(one)

    def serve(self, row: int, run: GangRun) -> int:
        """Make as many gangs of the run fit as possible and count them as admitted; return how many."""
        bounds = self.ledger.bounds(row, run)
        count = gangs_that_fit(run, bounds, run.gang_count)
        self._grant(row, run, count, bounds)
        trial = self._servable_max(row, run, run.gang_count - count, bounds)
        while trial > 0:
            picks = self._choose_evictions(row, run, trial, bounds)
            if picks is None:
                trial //= 2
                continue
            self._picks += picks
            self._pods_left -= _pods(picks)
            self._grant(row, run, trial, bounds)
            count += trial
            trial = min(trial, self._servable_max(row, run, run.gang_count - count, bounds))
        return count

    def find_blocked(self, row: int, run: GangRun) -> frozenset[int]:
        """Return the compartments whose gangs wait behind one that cannot be served, as in admission."""
        why = self.ledger.first_refusal(run, self.ledger.bounds(row, run), is_final=False)
        return self.ledger.compartments if why is None else self.ledger.find_blocked(run, why)

    def enqueue(self, row: int, runs: Sequence[GangRun], at: int, left: int, parts: Set[int]) -> None:
        """Add ``left`` gangs of ``runs[at]`` to the earlier queues, and the gangs behind it that go to these
        compartments."""
        if parts != self.ledger.compartments:
            runs, at = [run for run in runs[at:] if not parts.isdisjoint(self.ledger.parts_of(run))], 0
        self.earlier.enqueue(row, runs, at, left)

    def _grant(self, row: int, run: GangRun, count: int, bounds: Sequence[Bound]) -> None:
        if count == 0:
            return
        take(run, bounds, count)
        self._keep(run, bounds)

    def _keep(self, run: GangRun, bounds: Sequence[Bound]) -> None:
        for bound in bounds:
            kinds = self._kept.setdefault(id(bound.used), {}).setdefault(id(bound.allowed), (bound, set()))[1]
            kinds |= {kind for kind, amount in enumerate(bound.count_need(run)) if amount}

    def _servable_max(self, row: int, run: GangRun, rest: int, bounds: Sequence[Bound]) -> int:
        """Return an upper bound of how many of the ``rest`` can be served: as if every candidate of the pool were
        evicted."""
        own = [one for one in self._own.get(row, ()) if one.left and self._may_evict(row, run, one)]
        if self._pods_left <= 0 or rest == 0 or not (own or self._due):
            return 0
        mine = self.ledger.own_columns(row, run)
        for bound in bounds:
            is_reservation = bound.rule is Rule.RESERVATION  # no eviction frees reservations
            if is_reservation or id(bound.used) in mine:
                need = bound.count_need(run)
                for kind, _ in bound.short(run, rest):
                    freed = 0 if is_reservation else sum(one.held.run.need[kind] * one.left for one in own)
                    rest = min(rest, (bound.allowed[kind] - bound.used[kind] + freed) // need[kind])
        return max(rest, 0)

    def _may_evict(self, row: int, waiting: GangRun, one: _Candidate) -> bool:
        """Return whether the candidate, of the same pool, may be evicted for the waiting gang."""
        held = one.held.run
        if held.revocable != waiting.revocable or held.queue < waiting.queue:
            return False
        return _policy(self.ledger.tree, one).may_evict(waiting, held)

    def _choose_evictions(self, row: int, run: GangRun, count: int, bounds: Sequence[Bound]) -> list[_Pick] | None:
        """Evict until ``count`` gangs fit alongside gangs of earlier queues; None, with nothing changed, when they
        cannot."""
        picks: list[_Pick] = []
        earlier: list[EarlierAdmission] = []
        while True:
            self._pick_inside(row, run, count, bounds, picks)
            if _shortages(bounds, run, count):
                self._pick_between(row, run, count, bounds, picks)
            if _shortages(bounds, run, count) or _pods(picks) > self._pods_left:
                self.earlier.undo(earlier)
                self._undo(picks)
                return None
            admitted = self.earlier.admit_fitting()
            if not admitted:
                break
            earlier += admitted
        for one in earlier:
            self._keep(one.run, self.ledger.bounds(one.queue.row, one.run))
        return picks

    def _pick_inside(self, row: int, run: GangRun, count: int, bounds: Sequence[Bound], picks: list[_Pick]) -> None:
        mine = self.ledger.own_columns(row, run) | {id(self.ledger.amounts("physical", row))}
        for one in self._own.get(row, ()):
            if one.left and self._may_evict(row, run, one):
                short = [lack for lack in _shortages(bounds, run, count) if id(lack[0].used) in mine]
                if not short:
                    return
                self._pick(row, run, one, short, True, picks)

    def _pick_between(self, row: int, run: GangRun, count: int, bounds: Sequence[Bound], picks: list[_Pick]) -> None:
        """Pick candidates of other pools.

        It also drops candidates of pools that are no longer over their entitlement: such pools remain within it.
        """
        short = _shortages(bounds, run, count)
        mine = self.ledger.own_columns(row, run)
        if any(id(bound.used) in mine for bound, _, _ in short):
            return  # its own pool lacks the resources, and no other pool can give these
        is_over: dict[tuple[int, bool, tuple[int, ...]], bool] = {}
        useless = 0
        for one in self._due:
            if not short:
                break
            column = (one.held.pool, one.held.run.revocable, self.ledger.parts_of(one.held.run))
            if column not in is_over:
                is_over[column] = self._is_over(one.held)
            if one.left == 0 or not is_over[column]:
                useless += 1
            elif _is_other(row, run, one) and self._pick(row, run, one, short, False, picks):
                is_over.pop(column)
                short = _shortages(bounds, run, count)
        if not short and useless * 2 > len(self._due):
            self._due = [one for one in self._due if one.left and self._is_over(one.held)]

    def _pick(
        self,
        row: int,
        waiting: GangRun,
        one: _Candidate,
        short: Sequence[Shortage],
        is_inside: bool,
        picks: list[_Pick],
    ) -> bool:
        """Pick as many gangs of the candidate as help; return whether any does."""
        held, pool = one.held.run, one.held.pool
        bounds = self.ledger.bounds(pool, held)
        helps = self._find_helps(one, bounds, short, is_inside)
        if not helps:
            return False
        count = max(-(-lacking // gives) for _, _, lacking, gives in helps)
        bound, kind, *_ = helps[0]
        used, may = bound.used[kind], bound.allowed[kind]
        rule = bound.rule
        if not is_inside:
            over = self.ledger.over(pool, held)
            count = min(count, max(-(-over[k] // gives) for _, k, _, gives in helps))
            used, may = self.ledger.compare_usage(pool, held, kind)
            rule = Rule.SLACK_ENTITLEMENT if held.revocable else Rule.ENTITLEMENT
        count = min(count, one.left)
        paths = self.ledger.tree.paths
        grounds = Grounds(
            rule,
            paths[pool],
            paths[row],
            waiting.job_id,
            kind=self.ledger.tree.kinds[kind],
            wanted=waiting.need[kind],
            held=used,
            bound=may,
            priority=waiting.priority,
            own_priority=held.priority,
        )
        take(held, bounds, -count)
        one.left -= count
        picks.append(_Pick(one, bounds, count, grounds))
        return True

    def _find_helps(
        self, one: _Candidate, bounds: Sequence[Bound], short: Sequence[Shortage], is_inside: bool
    ) -> list[Help]:
        """Return the shortages that evicting the candidate is allowed to reduce, and does."""
        held = one.held.run
        counted = {id(bound.used): bound.count_need(held) for bound in bounds}
        over = None if is_inside else self.ledger.over(one.held.pool, held)
        found: list[Help] = []
        for bound, kind, lacking in short:
            need = counted.get(id(bound.used))
            if need and need[kind] and (over is None or over[kind] > 0):
                found.append((bound, kind, lacking, need[kind]))
        return found

    def _is_over(self, held: HeldRun) -> bool:
        """Return whether the pool of a run holds more than its entitlement in the run's compartments."""
        return any(over > 0 for over in self.ledger.over(held.pool, held.run))

    def _undo(self, picks: Sequence[_Pick]) -> None:
        for pick in picks:
            pick.give_back(pick.count)

    def evictions(self) -> list[Eviction]:
        """Return the remaining picks, after unnecessary ones are given back."""
        for pick in reversed(self._picks):
            count = self._count_unneeded(pick)
            pick.give_back(count)
            pick.count -= count
        merged: dict[tuple[int, str], _Pick] = {}
        for pick in self._picks:
            key = (id(pick.candidate), pick.grounds.for_job)
            if key in merged:
                merged[key].count += pick.count
            elif pick.count:
                merged[key] = pick
        kept = {id(pick.candidate): pick.candidate.held.run.gang_count for pick in merged.values()}
        found: list[Eviction] = []
        for pick in merged.values():
            kept[id(pick.candidate)] -= pick.count
            found.append(_eviction(pick, kept[id(pick.candidate)]))
        return found

    def _count_unneeded(self, pick: _Pick) -> int:
        """Return how many of the picked gangs may stay while every gang that was served still fits."""
        run, count = pick.candidate.held.run, pick.count
        for own in pick.bounds:
            need = own.count_need(run)
            for bound, kinds in self._kept.get(id(own.used), {}).values():
                for kind in kinds:
                    if need[kind]:
                        count = min(count, max(bound.allowed[kind] - own.used[kind], 0) // need[kind])
        return count


def _policy(tree: PoolTree, one: _Candidate) -> PreemptionPolicy:
    return POLICIES.get(tree.policies[one.held.pool], POLICIES[DEFAULT_POLICY])


def _is_other(row: int, waiting: GangRun, one: _Candidate) -> bool:
    """Return whether the candidate is of another pool than ``row``, or borrows from the waiting gang's own."""
    return one.held.pool != row or (one.held.run.revocable and not waiting.revocable)


def _pods(picks: Sequence[_Pick]) -> int:
    return sum(pick.count * pick.candidate.held.run.gang_size for pick in picks)


def _shortages(bounds: Sequence[Bound], run: GangRun, count: int) -> list[Shortage]:
    return [(bound, kind, lacking) for bound in bounds for kind, lacking in bound.short(run, count)]


def _eviction(pick: _Pick, kept: int) -> Eviction:
    """Return the picked gangs after the first ``kept`` of the run: the last in the queue leave first."""
    held = pick.candidate.held
    run = replace(held.run, start=held.run.start + kept * held.run.gang_size, gang_count=pick.count)
    return Eviction(held.pool, run, held.is_launched, pick.grounds)
