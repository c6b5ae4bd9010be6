"""Explanations of waiting gangs: the rule that refuses a gang, the holders of the resources that it lacks, and loans
between pools.

Explanations are derived from a snapshot and its plan, so that their rules and numbers are those of ``admission``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice

import numpy as np

from peloton.lifecycle.gang import Stage
from peloton.lifecycle.job import count_scheduled
from peloton.model.host_pool import Workload
from peloton.model.ids import JobId
from peloton.model.job import GangProgress, JobRecord, JobState, JobType
from peloton.model.pod import PodShape, PodState, ShapeRange
from peloton.model.reason import Infeasibility, PlacementReason, Reason, Rule
from peloton.scheduling.cycle import Plan, Snapshot
from peloton.scheduling.gangs import GangRun, QueueKind, Usage
from peloton.scheduling.tree import CPU, Ints, PoolTree

HOLDERS_MAX = 3
"""Limit of the jobs, and of the pools, that one reason names."""
UNFIT_MAX = 5
"""Limit of the pod shapes that fit on no host in one explanation."""
NO_GANG = GangProgress(0)


@dataclass(frozen=True, slots=True)
class JobUsage:
    """Resources held by the admitted pods of one job, ``[R]`` each, counted as in ``Usage``."""

    job_id: JobId
    non_slack: tuple[int, ...]
    slack: tuple[int, ...]
    non_preemptible: tuple[int, ...]
    controller: tuple[int, ...]
    workloads: frozenset[Workload] = field(default=frozenset(), kw_only=True)


UsageByJob = Callable[[int], Sequence[JobUsage]]
"""Maps the row of a leaf pool to the usage of its jobs."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A job that holds resources of a pool, or the whole pool if ``job_id`` is empty.

    ``borrowed`` is the amount above the reservation of the pool.
    """

    pool_path: str
    amount: int
    job_id: str = ""
    borrowed: int = 0


@dataclass(frozen=True, slots=True)
class Wait:
    """Equal gangs of a job that wait for one reason. ``gangs_ahead`` gangs are before the first of them in its
    queue."""

    row: int
    pool_path: str
    run: GangRun
    start: int  # first instance of the gangs that wait
    gang_count: int
    gangs_ahead: int
    reason: Reason
    blocking: Reason | None = None  # the reason of the gang in front

    @property
    def cause(self) -> Reason:
        """Return the reason of the gang in front if there is one, or else the gang's own reason."""
        return self.blocking or self.reason


def list_waits(now: Snapshot, plan: Plan, row: int) -> Iterator[Wait]:
    """Yield all gangs in the queues of a leaf, in the order in which admission visits them.

    Gangs that the plan admits wait for the next cycle.
    """
    path, admission = now.tree.paths[row], plan.admission
    admitted = {
        (chosen.run.job_id, chosen.run.start): chosen.gang_count for chosen in admission.admitted if chosen.pool == row
    }
    for kind in QueueKind:
        ahead = 0
        for run in now.waiting.get(row, {}).get(kind, ()):
            key = (run.job_id, run.start)
            admitted_count = admitted.get(key, 0)
            if admitted_count:
                yield Wait(
                    row,
                    path,
                    run,
                    run.start,
                    gang_count=admitted_count,
                    gangs_ahead=ahead,
                    reason=Reason(Rule.NO_CYCLE, path),
                )
            if admitted_count < run.gang_count:
                heads = (admission.heads.get((row, kind, part)) for part in now.usage.parts_of(run))
                head = min((head for head in heads if head), key=lambda head: head[0].order, default=None)
                reason, blocking = Reason(Rule.NO_CYCLE, path), None
                if key in admission.passed_over:
                    reason = admission.passed_over[key]
                elif key in admission.passed:
                    reason = admission.passed[key]
                elif head is not None and head[0].order == run.order:
                    reason = head[1]
                elif head is not None and head[0].order < run.order:
                    rule = Rule.PRIORITY if head[0].priority > run.priority else Rule.HEAD_OF_LINE
                    reason, blocking = Reason(rule, path, job_id=head[0].job_id), head[1]
                start, count = run.start + admitted_count * run.gang_size, run.gang_count - admitted_count
                yield Wait(
                    row,
                    path,
                    run,
                    start,
                    gang_count=count,
                    gangs_ahead=ahead + admitted_count,
                    reason=reason,
                    blocking=blocking,
                )
            ahead += run.gang_count
    for gang in now.held:
        if gang.row == row:
            yield Wait(
                row, path, gang.run, gang.run.start, gang_count=gang.run.gang_count, gangs_ahead=0, reason=gang.reason
            )


def find_holders(now: Snapshot, plan: Plan, wait: Wait, held_in: UsageByJob) -> tuple[Holder, ...]:
    """Return the largest holders of the resources that the gang, or the gang in front of it, lacks: jobs of its pool,
    or pools.

    A gang that lacks entitlement gets both: jobs of its own pool, and pools that hold more than their reservation.
    """
    reason = wait.cause
    if reason.is_final or reason.kind not in now.tree.kinds or reason.pool_path not in now.tree.paths:
        return ()
    kind, tree = now.tree.kinds.index(reason.kind), now.tree
    part = next((at for at, one in enumerate(plan.entitlement.parts) if one.host_pools == reason.host_pools), None)
    usage = now.usage if part is None else now.usage.parts[part]
    above = tree.paths.index(reason.pool_path)
    if above != wait.row:
        leaves = [row for row in range(len(tree.ids)) if tree.is_leaf[row] and _is_below(tree, row, above)]
        return _pools(now, usage, leaves, kind)
    columns = {
        Rule.RESERVATION: ("non_preemptible",),
        Rule.CONTROLLER_LIMIT: ("controller",),
        Rule.SLACK_ENTITLEMENT: ("slack",),
        Rule.ENTITLEMENT: ("non_slack",),
    }.get(reason.rule, ("non_slack",) if kind == CPU else ("non_slack", "slack"))
    jobs = held_in(wait.row)
    if part is not None:
        jobs = [job for job in jobs if any(now.usage.part_of[work] == part for work in job.workloads)]
    found = _jobs(jobs, columns, kind, reason.pool_path)
    if reason.rule is Rule.ENTITLEMENT:
        rivals = _find_rivals(now, plan, wait.row, kind)
        found += tuple(pool for pool in _pools(now, usage, rivals, kind) if pool.borrowed)
    return found


def _find_rivals(now: Snapshot, plan: Plan, row: int, kind: int) -> list[int]:
    """Return the siblings of a pool and of its ancestors, up to the first ancestor that is entitled to its limit.

    Pools further up do not compete with it.
    """
    tree, found, at = now.tree, list[int](), row
    while at != 0 and plan.entitlement.total[at, kind] < tree.limit[at, kind]:
        found += _siblings(tree, at)
        at = int(tree.parent[at])
    return sorted(found)


def _jobs(jobs: Sequence[JobUsage], columns: Sequence[str], kind: int, path: str) -> tuple[Holder, ...]:
    amounts = [(sum(getattr(job, column)[kind] for column in columns), job.job_id) for job in jobs]
    largest = sorted((-amount, job_id) for amount, job_id in amounts if amount > 0)
    return tuple(Holder(path, -amount, job_id) for amount, job_id in largest[:HOLDERS_MAX])


def _pools(now: Snapshot, usage: Usage, rows: Sequence[int], kind: int) -> tuple[Holder, ...]:
    """Return the largest holders among ``rows``.

    ``usage`` covers only the hosts in question. A pool borrows the amount that it holds above its reservation on all
    hosts.
    """
    tree, used = now.tree, usage.physical(now.tree)[:, kind].tolist()
    over = np.maximum(now.usage.physical(tree)[:, kind] - tree.reservation[:, kind], 0).tolist()
    largest = sorted((-used[row], row) for row in rows if used[row] > 0)
    return tuple(
        Holder(tree.paths[row], -amount, borrowed=min(over[row], -amount)) for amount, row in largest[:HOLDERS_MAX]
    )


def rest_of_tree(tree: PoolTree, row: int) -> list[int]:
    """Return the siblings of a pool and of its ancestors: subtrees that together are the rest of the tree."""
    return sorted(sibling for at in (row, *tree.ancestors[row]) if at != 0 for sibling in _siblings(tree, at))


def _siblings(tree: PoolTree, row: int) -> list[int]:
    return [int(at) for at in np.flatnonzero(tree.parent == tree.parent[row]) if at != row]


def _is_below(tree: PoolTree, row: int, above: int) -> bool:
    return row == above or above in tree.ancestors[row]


@dataclass(frozen=True, slots=True)
class Loan:
    """An amount that a pool holds above its reservation, or leaves unused of it.

    ``wanted_back`` is the part that the lender is entitled to and has demand for.
    """

    kind: str
    pool_path: str
    amount: int
    wanted_back: int = 0


@dataclass(frozen=True, slots=True)
class Loans:
    """The loans of one pool. ``lenders`` and ``borrowers`` are siblings of the pool and of its ancestors, each with its
    subtree."""

    borrowed: tuple[Loan, ...] = ()
    lenders: tuple[Loan, ...] = ()
    lent: tuple[Loan, ...] = ()
    borrowers: tuple[Loan, ...] = ()


def compute_loans(now: Snapshot, plan: Plan, row: int) -> Loans:
    """Return the amounts that a pool borrows, with the lenders, or lends, with the borrowers.

    STATIC reservations are never lent, neither by their pool nor by its ancestors.
    """
    tree = now.tree
    held = now.usage.physical(tree)
    above = np.maximum(held - tree.reservation, 0) + np.minimum(
        _sum_unavailable(tree, held) - tree.reservation, 0
    )  # [P,R]
    demand = tree.roll_up(now.demand)  # slack is not lent
    rest = rest_of_tree(tree, row)
    found: dict[str, list[Loan]] = {"borrowed": [], "lenders": [], "lent": [], "borrowers": []}
    for kind, name in enumerate(tree.kinds):
        mine = int(above[row, kind]) if row else 0
        theirs = sorted((-abs(int(above[at, kind])), at) for at in rest if int(above[at, kind]) * mine < 0)
        if not theirs:
            continue  # no pool is on the other side
        found["borrowed" if mine > 0 else "lent"].append(Loan(name, tree.paths[row], abs(mine)))
        sort = "lenders" if mine > 0 else "borrowers"
        is_over = mine > 0 and held[row, kind] > plan.entitlement.total[row, kind]
        for amount, at in theirs[:HOLDERS_MAX]:
            wanted = min(int(demand[at, kind]), -amount) if is_over else 0
            found[sort].append(Loan(name, tree.paths[at], -amount, wanted))
    return Loans(**{sort: tuple(entries) for sort, entries in found.items()})


def _sum_unavailable(tree: PoolTree, held: Ints) -> Ints:
    """Return the resources held in each subtree ``[P,R]``, plus the idle part of its STATIC reservations."""
    unavailable = np.maximum(held, np.where(tree.static, tree.reservation, 0))
    for level in reversed(tree.levels):
        below = np.add.reduceat(unavailable[level.begin : level.end], level.starts, axis=0)
        unavailable[level.parents] = np.maximum(unavailable[level.parents], below)
    return unavailable


class Obstacle(StrEnum):
    """Reason why pods that are not running are in no queue."""

    MAXIMUM_RUNNING = "maximum of running instances"
    NO_HOST = "no host"
    FITS_NO_HOST = "fits no host"
    GANG_INCOMPLETE = "the other members of the gang"
    NEXT_CYCLE = "next cycle"  # they are about to be queued
    ITS_HOST = "its host"  # a daemon's pod may run on that host only
    NEXT_PLACEMENT = "next placement"  # the search for a host is in progress


@dataclass(frozen=True, slots=True)
class Unqueued:
    """Pods that are in no queue, or that fit on no host, with the reason.

    ``bound`` instances may run at a time, ``used`` are queued or running. ``gang_size`` is the size of the gang of
    these pods.
    """

    obstacle: Obstacle
    pod_count: int
    used: int = 0
    bound: int = 0
    gang_size: int = 0
    placement: PlacementReason = ()  # NO_HOST: the last result of placement
    infeasible: Infeasibility = ()  # FITS_NO_HOST
    first: int = 0  # FITS_NO_HOST: first instance of the shape
    has_gaps: bool = False  # FITS_NO_HOST: the instances are not contiguous

    @property
    def left(self) -> int:
        return max(self.bound - self.used, 0) if self.obstacle is Obstacle.MAXIMUM_RUNNING else 0


def find_unqueued(
    job: JobRecord, counts: Mapping[PodState, int], placement: PlacementReason, gang: GangProgress = NO_GANG
) -> Iterator[Unqueued]:
    """Yield the pods of a job that are in no queue.

    ``counts`` are its pods by state; ``placement`` is the last placement reason of pods without a host.
    """
    fresh = counts.get(PodState.INITIALIZED, 0)
    if job.type is JobType.DAEMON:
        if waiting := fresh + counts.get(PodState.READY, 0):
            yield Unqueued(Obstacle.ITS_HOST, waiting, placement=placement)
        return
    if job.type is not JobType.SERVICE:  # the update of a service adds its missing instances
        fresh += max(job.instance_count - sum(counts.values()), 0)
    gathered = gang.stages.get(Stage.QUEUED, 0)
    is_there = sum(gang.stages.values()) == gang.size or job.type is JobType.EXTERNAL  # created externally
    if 0 < gathered < gang.size and is_there:
        yield Unqueued(Obstacle.GANG_INCOMPLETE, gathered, gang_size=gang.size)
        fresh = max(fresh - gathered, 0)
    if fresh and job.goal is not JobState.KILLED and job.is_active:
        yield _explain_unqueued(job, fresh, count_scheduled(counts))
    ready = counts.get(PodState.READY, 0)
    if ready:
        size = gang.size if gang.size and gang.stages.get(Stage.READY) == gang.size else 0
        obstacle = Obstacle.NO_HOST if placement else Obstacle.NEXT_PLACEMENT
        yield Unqueued(obstacle, ready, gang_size=size, placement=placement)


def _explain_unqueued(job: JobRecord, fresh: int, scheduled: int) -> Unqueued:
    maximum = job.sla.maximum_running_instances
    wanted = job.gang_size if job.gang_size > 1 and fresh >= job.gang_size else 1
    if maximum == 0 or max(maximum - scheduled, 0) >= wanted:
        return Unqueued(Obstacle.NEXT_CYCLE, fresh)
    return Unqueued(Obstacle.MAXIMUM_RUNNING, fresh, scheduled, maximum)


def list_infeasible(shapes: Sequence[ShapeRange], why: Mapping[PodShape, Infeasibility]) -> Iterator[Unqueued]:
    """Yield the pods that would not fit on any host even if it were empty, at most UNFIT_MAX shapes, by first
    instance."""
    alike: dict[Infeasibility, list[ShapeRange]] = {}
    for one in shapes:
        if one.shape in why:
            alike.setdefault(why[one.shape], []).append(one)
    for infeasible, spans in islice(alike.items(), UNFIT_MAX):
        count = sum(one.count for one in spans)
        yield Unqueued(
            Obstacle.FITS_NO_HOST, count, infeasible=infeasible, first=spans[0].start, has_gaps=len(spans) > 1
        )
