"""Which admitted gangs must give their resources back, and for whom.

Waiting gangs are gone through as admission does it, on what will be used when those that are leaving already have
left. One that does not fit may evict

* between pools: preemptible gangs of a pool that has held more than its entitlement for some time (``due``), as long
  as it still does, and only in kinds of which it does: non-slack against non-slack, slack against slack. The waiting
  gang is within its own pool's entitlement; what it lacks is room in the cluster, or below a limit further up;
* inside a pool: preemptible gangs of lower priority, when the pool itself has no room (entitlement, limit,
  controller limit). Only gangs whose queue is not visited earlier: those would be back before it.

Candidates are taken in the order of their pool's policy until the waiting gangs fit; in the end they are given back in
the reverse order as far as these still fit. A gang that would not fit anyway evicts nobody, so that without anybody
waiting for just these resources nothing is evicted. Gangs leave whole.

It does not go back and forth: admission keeps within entitlements, which depend on what pools hold and want together,
so a pool that was brought down to its entitlement cannot take back what it gave; and in a pool only a higher priority
evicts a lower one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from peloton.model.ids import RespoolId
from peloton.model.resources import RESOURCE_KINDS
from peloton.scheduling.admission import (
    PASSED_OVER_MAX,
    Bound,
    GangRun,
    Ledger,
    QueueKind,
    Queues,
    Rule,
    Usage,
    first_refusal,
    shown_amount,
)
from peloton.scheduling.entitlement import Entitlement
from peloton.scheduling.tree import CPU, Ints, PoolTree

WAITING_RUNS_MAX = 10_000
"""Waiting runs looked at in one round."""


@dataclass(frozen=True, slots=True)
class HeldRun:
    """Admitted gangs of pool row ``pool``. Of a gang some members of which have ended, ``run.need`` is of the rest.

    ``is_launched``: a host knows them; else they are READY.
    """

    pool: int
    run: GangRun
    is_launched: bool


class PreemptionPolicy(Protocol):
    """What a pool decides by; see POLICIES."""

    def order(self, held: HeldRun) -> tuple[int, ...]:
        """Sort key: who goes first."""
        ...

    def may_evict(self, waiting: GangRun, held: GangRun) -> bool:
        """Whether one gang may evict another of the same pool; must be a strict order, else they would take turns."""
        ...


class PriorityFifo:
    """Revocable first, READY before launched, the lowest priority first, and of equals who came last."""

    def order(self, held: HeldRun) -> tuple[int, ...]:
        run = held.run
        return (not run.revocable, held.is_launched, run.priority, -run.queue_seq, -run.start)

    def may_evict(self, waiting: GangRun, held: GangRun) -> bool:
        return held.priority < waiting.priority


DEFAULT_POLICY = "PriorityFIFO"
POLICIES: dict[str, PreemptionPolicy] = {DEFAULT_POLICY: PriorityFifo()}
"""By the name that a pool's configuration gives its ``policy``. A new one goes here, and into the .proto's enum."""


@dataclass(frozen=True, slots=True)
class Grounds:
    """Why gangs are evicted and for whom. Amounts are in the small units of ``Resources``.

    Between pools ``held`` is what the victim's pool holds and ``bound`` its entitlement; inside a pool ``held`` is what
    is used of the rule's ``bound``.
    """

    rule: Rule
    pool_path: str  # of the victim
    for_pool: str
    for_job: str
    kind: str
    wanted: int
    held: int
    bound: int
    priority: int = 0  # of the waiting gang
    own_priority: int = 0

    @property
    def is_inside(self) -> bool:
        return self.pool_path == self.for_pool

    def __str__(self) -> str:
        wanted, held, bound = (shown_amount(self.kind, amount) for amount in (self.wanted, self.held, self.bound))
        asked = f"preempted for job {self.for_job} of {self.for_pool}, which wants {self.kind} {wanted}: "
        if self.is_inside and self.priority > self.own_priority:
            return (
                f"{asked}its priority is {self.priority}, this one's {self.own_priority}, "
                f"and {held} of the {self.rule} {bound} is used"
            )
        return f"{asked}{self.pool_path} holds {held} and is entitled to {bound}"


@dataclass(frozen=True, slots=True)
class Eviction:
    """All gangs of ``run`` in pool row ``pool`` give their resources back."""

    pool: int
    run: GangRun
    is_launched: bool
    grounds: Grounds


def over_entitled(tree: PoolTree, entitlement: Entitlement, usage: Usage) -> list[int]:
    """Rows of leaves that hold more than they may, in any kind."""
    over = tree.is_leaf & (
        np.any(usage.non_slack > entitlement.non_slack, axis=1) | np.any(usage.slack > entitlement.slack, axis=1)
    )
    return [int(row) for row in np.flatnonzero(over)]


def count_over(tree: PoolTree, rows: Sequence[int], counts: Mapping[RespoolId, int]) -> dict[RespoolId, int]:
    """Rounds in a row for which each pool has been over its entitlement, this one included."""
    return {tree.ids[row]: counts.get(tree.ids[row], 0) + 1 for row in rows}


def preempt(
    tree: PoolTree,
    entitlement: Entitlement,
    usage: Usage,
    waiting: Mapping[int, Queues],
    held: Sequence[HeldRun],
    due: Set[int],
    pod_limit: int,
) -> list[Eviction]:
    """At most about ``pod_limit`` pods (a gang is never cut) to be evicted.

    ``usage`` and ``held`` are without what is leaving already. ``due``: rows that have been over their entitlement for
    long enough. ``waiting`` as for ``admit``.
    """
    if not held or not waiting:
        return []
    selection = _Selection(Ledger(tree, entitlement, usage), held, due, pod_limit)
    seen = 0
    for row in sorted(waiting):
        for kind in QueueKind:
            passed_over = 0
            for run in waiting[row].get(kind, ()):
                seen += 1
                if seen > WAITING_RUNS_MAX:
                    return selection.evictions()
                is_hopeless = first_refusal(run, selection.ledger.bounds(row, run), is_final=True) is not None
                if is_hopeless and passed_over < PASSED_OVER_MAX:
                    passed_over += 1
                elif is_hopeless or selection.serve(row, run) < run.gang_count:
                    break  # it waits, and blocks its queue
    return selection.evictions()


@dataclass(slots=True, eq=False)
class _Candidate:
    held: HeldRun
    left: int  # gangs that are not evicted


@dataclass(slots=True, eq=False)
class _Pick:
    candidate: _Candidate
    count: int
    grounds: Grounds


Shortage = tuple[Bound, int, int]
"""Bound, kind, and how much of it is lacking."""


class _Selection:
    def __init__(self, ledger: Ledger, held: Sequence[HeldRun], due: Set[int], pod_limit: int) -> None:
        self.ledger = ledger
        self._pods_left = pod_limit
        self._picks: list[_Pick] = []
        self._kept: dict[tuple[int, int], tuple[Bound, set[int]]] = {}  # what must hold in the end, and in which kinds
        candidates = [_Candidate(one, one.run.gang_count) for one in held if one.run.preemptible]
        candidates.sort(key=lambda one: (_policy(ledger.tree, one).order(one.held), one.held.pool, one.held.run.job_id))
        self._due = [one for one in candidates if one.held.pool in due]
        self._own: dict[int, list[_Candidate]] = {}
        for one in candidates:
            self._own.setdefault(one.held.pool, []).append(one)

    def serve(self, row: int, run: GangRun) -> int:
        """Make room for as many gangs of the run as possible, and count them as admitted; returns how many."""
        bounds = self.ledger.bounds(row, run)
        count = min(run.gang_count, *(bound.gangs_that_fit(run.need) for bound in bounds))
        self._grant(row, run, count, bounds)
        trial = run.gang_count - count if self._may_help(row, run) else 0
        while trial > 0:
            picks = self._make_room(row, run, trial, bounds)
            if picks is None:
                trial //= 2
                continue
            self._picks += picks
            self._pods_left -= sum(pick.count * pick.candidate.held.run.gang_size for pick in picks)
            self._grant(row, run, trial, bounds)
            count += trial
            trial = min(trial, run.gang_count - count)
        return count

    def _grant(self, row: int, run: GangRun, count: int, bounds: Sequence[Bound]) -> None:
        if count == 0:
            return
        self.ledger.take(row, run, count)
        for bound in bounds:
            kinds = self._kept.setdefault((id(bound.used), id(bound.allowed)), (bound, set()))[1]
            kinds |= {k for k, amount in enumerate(run.need) if amount and not (bound.skip_cpu and k == CPU)}

    def _may_help(self, row: int, run: GangRun) -> bool:
        own = (self._yields(row, run, one) for one in self._own.get(row, ()) if one.left)
        return any(own) or any(_is_other(row, run, one) for one in self._due if one.left)

    def _yields(self, row: int, waiting: GangRun, one: _Candidate) -> bool:
        """Whether the candidate, of the same pool, may be evicted for the waiting gang."""
        held = one.held.run
        if held.revocable != waiting.revocable or held.queue < waiting.queue:
            return False
        return _policy(self.ledger.tree, one).may_evict(waiting, held)

    def _make_room(self, row: int, run: GangRun, count: int, bounds: Sequence[Bound]) -> list[_Pick] | None:
        """Evict until ``count`` gangs fit; None, and nothing changed, when they cannot."""
        picks: list[_Pick] = []
        pods_left = self._pods_left
        own = {id(self.ledger.amounts(name, row)) for name in ("non_slack", "slack", "controller", "physical")}
        chain = [(one, True) for one in self._own.get(row, ()) if self._yields(row, run, one)]
        chain += [(one, False) for one in self._due if _is_other(row, run, one)]
        for one, is_inside in chain:
            short = _shortages(bounds, run, count)
            if not short:
                break
            if is_inside:
                short = [lack for lack in short if id(lack[0].used) in own]
            pick = self._pick(row, run, one, short, is_inside, pods_left)
            if pick is not None:
                picks.append(pick)
                pods_left -= pick.count * one.held.run.gang_size
        if _shortages(bounds, run, count):
            self._undo(picks)
            return None
        return picks

    def _pick(
        self, row: int, waiting: GangRun, one: _Candidate, short: Sequence[Shortage], is_inside: bool, pods_left: int
    ) -> _Pick | None:
        """As many gangs of the candidate as help, and the grounds; None when none does."""
        held, pool = one.held.run, one.held.pool
        helps = self._what_helps(one, short, is_inside)
        if not helps or one.left == 0 or pods_left <= 0:
            return None
        count = max(-(-lacking // held.need[kind]) for _, kind, lacking in helps)
        bound, kind, _ = helps[0]
        used, may = bound.used[kind], bound.allowed[kind]
        rule = bound.rule
        if not is_inside:
            over = self._over(one.held)
            count = min(count, max(-(-over[k] // held.need[k]) for k in {k for _, k, _ in helps}))
            name, entitled = _columns(held)
            used, may = self.ledger.amounts(name, pool)[kind], self.ledger.amounts(entitled, pool)[kind]
            rule = Rule.SLACK_ENTITLEMENT if held.revocable else Rule.ENTITLEMENT
        count = min(count, one.left, -(-pods_left // held.gang_size))
        paths = self.ledger.tree.paths
        grounds = Grounds(
            rule,
            paths[pool],
            paths[row],
            waiting.job_id,
            RESOURCE_KINDS[kind],
            waiting.need[kind],
            used,
            may,
            waiting.priority,
            held.priority,
        )
        self.ledger.take(pool, held, -count)
        one.left -= count
        return _Pick(one, count, grounds)

    def _what_helps(self, one: _Candidate, short: Sequence[Shortage], is_inside: bool) -> list[Shortage]:
        """The shortages that an eviction of the candidate makes smaller, and may."""
        held = one.held.run
        counted = {id(used): skips_cpu for used, skips_cpu in self.ledger.columns(one.held.pool, held)}
        over = None if is_inside else self._over(one.held)
        found: list[Shortage] = []
        for bound, kind, lacking in short:
            skips_cpu = counted.get(id(bound.used))
            if skips_cpu is None or (skips_cpu and kind == CPU) or held.need[kind] == 0:
                continue
            if over is None or over[kind] > 0:
                found.append((bound, kind, lacking))
        return found

    def _over(self, held: HeldRun) -> list[int]:
        """[R] how much the pool of a run holds above its entitlement."""
        name, entitled = _columns(held.run)
        pairs = zip(self.ledger.amounts(name, held.pool), self.ledger.amounts(entitled, held.pool), strict=True)
        return [used - may for used, may in pairs]

    def _undo(self, picks: Sequence[_Pick]) -> None:
        for pick in picks:
            self.ledger.take(pick.candidate.held.pool, pick.candidate.held.run, pick.count)
            pick.candidate.left += pick.count

    def evictions(self) -> list[Eviction]:
        """What is left to evict when everything that can be has been given back."""
        for pick in reversed(self._picks):
            count = self._room_for(pick)
            self.ledger.take(pick.candidate.held.pool, pick.candidate.held.run, count)
            pick.count -= count
            pick.candidate.left += count
        grounds: dict[int, tuple[_Candidate, Grounds]] = {}
        for pick in self._picks:
            if pick.count:
                grounds.setdefault(id(pick.candidate), (pick.candidate, pick.grounds))
        return [_eviction(one, why) for one, why in grounds.values()]

    def _room_for(self, pick: _Pick) -> int:
        """How many of the picked gangs may stay although all that were served fit."""
        run, count = pick.candidate.held.run, pick.count
        counted = {id(used): skips_cpu for used, skips_cpu in self.ledger.columns(pick.candidate.held.pool, run)}
        for bound, kinds in self._kept.values():
            skips_cpu = counted.get(id(bound.used))
            if skips_cpu is None:
                continue
            for kind in kinds:
                if run.need[kind] and not (skips_cpu and kind == CPU):
                    count = min(count, max(bound.allowed[kind] - bound.used[kind], 0) // run.need[kind])
        return count


def _policy(tree: PoolTree, one: _Candidate) -> PreemptionPolicy:
    return POLICIES.get(tree.policies[one.held.pool], POLICIES[DEFAULT_POLICY])


def _is_other(row: int, waiting: GangRun, one: _Candidate) -> bool:
    """Whether the candidate is of another pool than ``row``, or borrows from the waiting gang's own."""
    return one.held.pool != row or (one.held.run.revocable and not waiting.revocable)


def _columns(run: GangRun) -> tuple[str, str]:
    """Names of what a run is counted in, and of what its pool may hold of that."""
    return ("slack", "may_slack") if run.revocable else ("non_slack", "may_non_slack")


def _shortages(bounds: Sequence[Bound], run: GangRun, count: int) -> list[Shortage]:
    return [(bound, kind, lacking) for bound in bounds for kind, lacking in bound.short(run.need, count)]


def _eviction(one: _Candidate, grounds: Grounds) -> Eviction:
    """The last gangs of the run go: they came last."""
    run = one.held.run
    gone = run.gang_count - one.left
    start = run.start + one.left * run.gang_size
    return Eviction(one.held.pool, replace(run, start=start, gang_count=gone), one.held.is_launched, grounds)


def without(usage: Usage, leaving: Usage) -> Usage:
    """What is used when those that are leaving have left."""

    def rest(name: str) -> Ints:
        amounts: Ints = getattr(usage, name) - getattr(leaving, name)
        return amounts

    return Usage(rest("non_slack"), rest("slack"), rest("non_preemptible"), rest("controller"))
