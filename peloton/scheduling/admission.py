"""Which waiting gangs may have their resources now.

Each leaf pool has four queues, visited in the order of ``QueueKind``; in each, higher priority first, then first come
first served. A gang is admitted when it fits all of

* its pool's entitlement: non-slack for ordinary gangs, slack for revocable ones;
* its pool's reservation, if it is non-preemptible: such pods are never evicted, so they never use what is borrowed;
* its pool's controller limit, if it is a single controller pod;
* the limit of every pool above, up to the capacity of the cluster.

Only kinds that a gang asks for are compared. A head that has to wait blocks its own queue and no other. A gang larger
than its pool may ever have (limit, reservation, controller limit, the cluster) is passed over: it would wait in vain.

Work is proportional to pools with a queue plus runs admitted, whatever the number of pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from peloton.model.ids import JobId
from peloton.model.resources import RESOURCE_KINDS, UNLIMITED
from peloton.scheduling.entitlement import Entitlement
from peloton.scheduling.tree import CPU, Ints, PoolTree

PASSED_OVER_MAX = 100
"""Hopeless runs that one queue is searched through in one pass; the next one blocks its queue."""


class QueueKind(IntEnum):
    """The queues of a pool in the order of visits."""

    NON_PREEMPTIBLE = 0
    CONTROLLER = 1
    REVOCABLE = 2
    ORDINARY = 3


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
        """Only a controller that stands alone counts against the controller limit."""
        return self.controller and self.gang_size == 1

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort key within a queue."""
        return (-self.priority, self.queue_seq, self.start)

    @property
    def pod_count(self) -> int:
        return self.gang_count * self.gang_size


class Rule(StrEnum):
    """Why a gang waits."""

    ENTITLEMENT = "entitlement"
    SLACK_ENTITLEMENT = "slack entitlement"
    RESERVATION = "reservation for non-preemptible pods"
    CONTROLLER_LIMIT = "controller limit"
    POOL_LIMIT = "pool limit"
    CLUSTER_CAPACITY = "cluster capacity"
    HEAD_OF_LINE = "head of line"
    PRIORITY = "priority"
    BATCH_BOUND = "batch bound"
    NO_CYCLE = "no cycle yet"
    HELD_BACK = "held back"


@dataclass(frozen=True, slots=True)
class Reason:
    """The first rule that a gang fails, with the numbers. Amounts are in the small units of ``Resources``; for
    HELD_BACK ``left`` is in seconds, and ``bound`` the number of launches in vain."""

    rule: Rule
    pool_path: str = ""
    kind: str = ""
    wanted: int = 0
    left: int = 0
    bound: int = 0
    gang_size: int = 1
    job_id: str = ""  # of the gang ahead, for HEAD_OF_LINE and PRIORITY
    is_final: bool = False  # no wait helps: more than the pool may ever have

    def __str__(self) -> str:
        if self.rule is Rule.HEAD_OF_LINE:
            return f"waits behind job {self.job_id} in the queue of {self.pool_path}"
        if self.rule is Rule.PRIORITY:
            return f"waits behind job {self.job_id}, of higher priority, in the queue of {self.pool_path}"
        if self.rule in (Rule.BATCH_BOUND, Rule.NO_CYCLE):
            return "waits for the next admission cycle"
        if self.rule is Rule.HELD_BACK:
            launches = f"{self.bound} launch{'' if self.bound == 1 else 'es'}"
            return f"gang of {self.gang_size}: held back for {self.left} s after {launches} in vain; others pass it by"
        wanted, left, bound = (shown_amount(self.kind, amount) for amount in (self.wanted, self.left, self.bound))
        who = f"gang of {self.gang_size}: " if self.gang_size > 1 else ""
        if self.is_final:
            return f"{who}{self.kind} {wanted} wanted, more than the {self.rule} of {self.pool_path}: {bound}"
        return f"{who}{self.kind} {wanted} wanted, {left} left of the {self.rule} of {self.pool_path}: {bound}"


def shown_amount(kind: str, amount: int) -> str:
    if amount >= UNLIMITED:
        return "unlimited"
    return f"{amount / 1000:g}" if kind in ("cpu", "gpu") else f"{amount} MiB"


@dataclass(frozen=True, eq=False)
class Usage:
    """What admitted pods hold, own amounts ``[P,R]``; total is ``non_slack + slack``."""

    non_slack: Ints
    slack: Ints  # of revocable pods, which count nowhere else
    non_preemptible: Ints
    controller: Ints


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

    @property
    def is_bounded(self) -> bool:
        return self.resume_at != 0


def admit(
    tree: PoolTree,
    entitlement: Entitlement,
    usage: Usage,
    waiting: Mapping[int, Queues],
    pod_limit: int,
    begin_at: int = 0,
    is_clearing: bool = False,
) -> Admission:
    """Admit up to about ``pod_limit`` pods (a gang is never cut) from ``waiting``: leaf row -> its queues.

    Pools are visited by row from ``begin_at`` on and round, so that the bound starves nobody. ``is_clearing``: evicted
    pods are on their way out. Then a head that waits for room blocks its pool's later queues, too, for what becomes
    free bit by bit may be meant for it.
    """
    ledger = Ledger(tree, entitlement, usage)
    admission = Admission()
    admitted: list[Admitted] = []
    rows = sorted(waiting)
    for row in [r for r in rows if r >= begin_at] + [r for r in rows if r < begin_at]:
        for kind in QueueKind:
            runs = waiting[row].get(kind, ())
            for chosen in _admit_queue(ledger, row, kind, runs, pod_limit, admission):
                admitted.append(chosen)
                pod_limit -= chosen.gang_count * chosen.run.gang_size
            if pod_limit <= 0:
                return Admission(tuple(admitted), admission.heads, admission.passed_over, row + 1)
            head = admission.heads.get((row, kind)) if is_clearing else None
            if head is not None and head[1].rule not in (Rule.RESERVATION, Rule.CONTROLLER_LIMIT):
                break
    return Admission(tuple(admitted), admission.heads, admission.passed_over)


def _admit_queue(
    ledger: Ledger, row: int, kind: QueueKind, runs: Sequence[GangRun], pod_limit: int, notes: Admission
) -> Iterator[Admitted]:
    """Take from the front of one queue until its head has to wait."""
    passed_over = 0
    for run in runs:
        if pod_limit <= 0:
            notes.heads[row, kind] = (run, Reason(Rule.BATCH_BOUND, ledger.tree.paths[row]))
            return
        bounds = ledger.bounds(row, run)
        bounded = min(run.gang_count, -(-pod_limit // run.gang_size))
        count = min(bounded, *(bound.gangs_that_fit(run.need) for bound in bounds))
        if count == 0 and passed_over < PASSED_OVER_MAX:
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


@dataclass(slots=True)
class Bound:
    """One rule on one pool: how much it allows, how much is used, how much it may ever allow. ``[R]`` each."""

    rule: Rule
    pool_path: str
    allowed: list[int]
    used: list[int]
    ever: list[int] | None = None  # None: what is allowed may grow
    skip_cpu: bool = False  # the cpu of revocable pods is not physical

    def short(self, need: tuple[int, ...], count: int) -> Iterator[tuple[int, int]]:
        """``(kind, amount)`` that ``count`` gangs lack."""
        for kind, amount in enumerate(need):
            if amount > 0 and not (self.skip_cpu and kind == CPU):
                lacking = amount * count - (self.allowed[kind] - self.used[kind])
                if lacking > 0:
                    yield kind, lacking

    def gangs_that_fit(self, need: tuple[int, ...]) -> int:
        count = UNLIMITED
        for kind, amount in enumerate(need):
            if amount > 0 and not (self.skip_cpu and kind == CPU):
                count = min(count, (self.allowed[kind] - self.used[kind]) // amount)
        return max(count, 0)

    def refusal(self, run: GangRun, is_final: bool) -> Reason | None:
        for kind, amount in enumerate(run.need):
            if amount <= 0 or (self.skip_cpu and kind == CPU):
                continue
            allowed, left = self.allowed[kind], self.allowed[kind] - self.used[kind]
            fails = self.ever is not None and amount > self.ever[kind] if is_final else amount > left
            if fails:
                bound = self.ever[kind] if is_final and self.ever is not None else allowed
                name = RESOURCE_KINDS[kind]
                return Reason(
                    self.rule, self.pool_path, name, amount, max(left, 0), bound, run.gang_size, is_final=is_final
                )
        return None


def first_refusal(run: GangRun, bounds: Sequence[Bound], is_final: bool) -> Reason | None:
    return next((reason for bound in bounds if (reason := bound.refusal(run, is_final)) is not None), None)


class Ledger:
    """Usage as it changes during one pass; rows become lists of Python integers when first touched."""

    def __init__(self, tree: PoolTree, entitlement: Entitlement, usage: Usage) -> None:
        self.tree = tree
        physical = usage.non_slack + usage.slack
        physical[:, CPU] = usage.non_slack[:, CPU]
        physical = tree.roll_up(physical)
        self._arrays = {
            "non_slack": usage.non_slack,
            "slack": usage.slack,
            "non_preemptible": usage.non_preemptible,
            "controller": usage.controller,
            "physical": physical,
            "may_non_slack": entitlement.non_slack,
            "may_slack": entitlement.slack,
            "limit": tree.limit,
            "reservation": tree.reservation,
            "controller_limit": tree.controller_limit,
            "capacity": entitlement.total,
        }
        self._rows: dict[tuple[str, int], list[int]] = {}

    def amounts(self, name: str, row: int) -> list[int]:
        found = self._rows.get((name, row))
        if found is None:
            found = self._rows[name, row] = self._arrays[name][row].tolist()
        return found

    def bounds(self, row: int, run: GangRun) -> list[Bound]:
        """The rules for this run, the pool's own first."""
        path, limit = self.tree.paths[row], self.amounts("limit", row)
        bounds = [Bound(Rule.POOL_LIMIT, path, limit, self.amounts("physical", row), limit, run.revocable)]
        if run.revocable:
            used, may = self.amounts("slack", row), self.amounts("may_slack", row)
            bounds.append(Bound(Rule.SLACK_ENTITLEMENT, path, may, used))
        else:
            if not run.preemptible:
                may = self.amounts("reservation", row)
                bounds.append(Bound(Rule.RESERVATION, path, may, self.amounts("non_preemptible", row), may))
            if run.is_lone_controller:
                may = self.amounts("controller_limit", row)
                bounds.append(Bound(Rule.CONTROLLER_LIMIT, path, may, self.amounts("controller", row), may))
            used, may = self.amounts("non_slack", row), self.amounts("may_non_slack", row)
            bounds.append(Bound(Rule.ENTITLEMENT, path, may, used))
        for above in self.tree.ancestors[row]:
            rule, allowed = (Rule.POOL_LIMIT, "limit") if above else (Rule.CLUSTER_CAPACITY, "capacity")
            may, used = self.amounts(allowed, above), self.amounts("physical", above)
            bounds.append(Bound(rule, self.tree.paths[above], may, used, may, run.revocable))
        return bounds

    def columns(self, row: int, run: GangRun) -> list[tuple[list[int], bool]]:
        """Everything that counts a gang of this run: the amounts used ``[R]``, and whether its cpu is left out."""
        names = ["slack"] if run.revocable else ["non_slack"]
        if not run.revocable:
            names += ["non_preemptible"] * (not run.preemptible) + ["controller"] * run.controller
        above = (row, *self.tree.ancestors[row])
        return [(self.amounts(name, row), False) for name in names] + [
            (self.amounts("physical", at), run.revocable) for at in above
        ]

    def take(self, row: int, run: GangRun, count: int) -> None:
        """Count ``count`` gangs as admitted; a negative count releases them."""
        for used, skips_cpu in self.columns(row, run):
            for kind, amount in enumerate(run.need):
                if not (skips_cpu and kind == CPU):
                    used[kind] += amount * count
