"""Explanations as messages, in the units of the wire."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from peloton.api.convert_pool import SHARE_UNITS, wire_amount
from peloton.api.v0.explain import explain_pb2 as pb
from peloton.api.v0.peloton_pb2 import JobID, ResourcePoolID
from peloton.api.v0.respool import respool_pb2
from peloton.errors import PelotonError
from peloton.lifecycle.reason_text import NO_NAMES, Names, eviction_text, misfit_text, placement_text, queue_text
from peloton.model.daemon import DaemonPlan, DaemonReach
from peloton.model.ids import ROOT_POOL_ID
from peloton.model.pod import PodRecord
from peloton.model.reason import NOT_BACKFILLED, PlacementReason, Reason, RefusingHosts, Rule
from peloton.model.resources import RESOURCE_KINDS, UNLIMITED
from peloton.scheduling.cycle import Plan, Snapshot
from peloton.scheduling.entitlement import Entitlement
from peloton.scheduling.eviction import Eviction
from peloton.scheduling.explain import Holder, Loan, Obstacle, Unqueued, Wait
from peloton.scheduling.gangs import QueueKind, Usage
from peloton.scheduling.tree import Ints, PoolTree
from services.resmgr.explain.text import describe_unqueued, reach_line, start_line, wait_text
from services.resmgr.settings import LoopSettings

QUEUES = {kind: pb.Queue.Value(f"QUEUE_{kind.name}") for kind in QueueKind}
ADMITTED_MAX = 100
"""Limit of the jobs in the answer to a plan."""
EVICTIONS_MAX = 100
"""Limit of the runs of pods in the answer to a plan."""
RULES = {
    Rule.POOL_LIMIT: pb.RULE_POOL_LIMIT,
    Rule.ENTITLEMENT: pb.RULE_ENTITLEMENT,
    Rule.SLACK_ENTITLEMENT: pb.RULE_SLACK_ENTITLEMENT,
    Rule.RESERVATION: pb.RULE_RESERVATION,
    Rule.CONTROLLER_LIMIT: pb.RULE_CONTROLLER_LIMIT,
    Rule.CLUSTER_CAPACITY: pb.RULE_CLUSTER_CAPACITY,
    Rule.HEAD_OF_LINE: pb.RULE_HEAD_OF_LINE,
    Rule.PRIORITY: pb.RULE_PRIORITY,
    Rule.BATCH_BOUND: pb.RULE_NEXT_CYCLE,
    Rule.NO_CYCLE: pb.RULE_NEXT_CYCLE,
    Rule.IN_BACKOFF: pb.RULE_HELD_BACK,
}
OBSTACLES = {
    Obstacle.MAXIMUM_RUNNING: pb.RULE_MAXIMUM_RUNNING_INSTANCES,
    Obstacle.NO_HOST: pb.RULE_NO_HOST,
    Obstacle.ITS_HOST: pb.RULE_NO_HOST,
    Obstacle.FITS_NO_HOST: pb.RULE_FITS_NO_HOST,
    Obstacle.GANG_INCOMPLETE: pb.RULE_GANG_GATHERS,
    Obstacle.NEXT_CYCLE: pb.RULE_NEXT_CYCLE,
    Obstacle.NEXT_PLACEMENT: pb.RULE_NEXT_CYCLE,
}


def amount(kind: str, small: int) -> float:
    """Return the amount in the unit of the wire; infinity stands for no limit."""
    return math.inf if small >= UNLIMITED else wire_amount(kind, small)


def waiting_gangs(wait: Wait, holders: Sequence[Holder], names: Names = NO_NAMES) -> pb.WaitingGangs:
    run = wait.run
    reason = _reason(wait.reason, wait_text(wait, names), () if wait.blocking else holders)
    if wait.blocking is not None:
        reason.blockingReason.CopyFrom(_reason(wait.blocking, queue_text(wait.blocking, names), holders))
    return pb.WaitingGangs(
        jobId=JobID(value=run.job_id),
        jobName=names.get(run.job_id, ""),
        poolPath=wait.pool_path,
        queue=QUEUES[run.queue],
        firstInstance=wait.start,
        gangCount=wait.gang_count,
        gangSize=run.gang_size,
        priority=run.priority,
        gangsAhead=wait.gangs_ahead,
        reason=reason,
    )


def _reason(reason: Reason, text: str, holders: Sequence[Holder]) -> pb.Reason:
    return pb.Reason(
        rule=RULES.get(reason.rule, pb.RULE_UNKNOWN),
        poolPath=reason.pool_path,
        kind=reason.kind,
        wanted=amount(reason.kind, reason.wanted),
        available=amount(reason.kind, reason.left),
        bound=amount(reason.kind, reason.bound),
        gangSize=reason.gang_size,
        isFinal=reason.is_final,
        backfillS=None if reason.backfill_s == NOT_BACKFILLED else reason.backfill_s,
        blockingJobId=JobID(value=reason.job_id) if reason.job_id else None,
        holders=[_holder(reason.kind, holder) for holder in holders],
        text=text,
    )


def _holder(kind: str, holder: Holder) -> pb.Holder:
    return pb.Holder(
        poolPath=holder.pool_path,
        jobId=JobID(value=holder.job_id) if holder.job_id else None,
        amount=amount(kind, holder.amount),
        borrowed=amount(kind, holder.borrowed),
    )


def encode_unqueued(one: Unqueued) -> pb.Reason:
    return pb.Reason(
        rule=OBSTACLES[one.obstacle],
        wanted=one.pod_count,
        available=one.left,
        bound=one.gang_size if one.obstacle is Obstacle.GANG_INCOMPLETE else one.bound,
        refusingHosts=_refusing(hosts for cluster in one.placement for pods in cluster.pods for hosts in pods.hosts),
        text=describe_unqueued(one),
    )


def capacity_reason(hostless: int, why: PlacementReason) -> pb.Reason:
    """Return the reason of instances of a plan that would be admitted, and find no host."""
    hosts = (hosts for cluster in why for pods in cluster.pods for hosts in pods.hosts)
    text = f"would be admitted, but {placement_text(why)}"
    return pb.Reason(rule=pb.RULE_NO_HOST, wanted=hostless, refusingHosts=_refusing(hosts), text=text)


def reach_reason(reach: DaemonReach) -> pb.Reason:
    return pb.Reason(
        rule=pb.RULE_HOSTS_DO_NOT_MATCH,
        available=reach.matching_count,
        bound=reach.matching_count + sum(hosts.host_count for hosts in reach.refusing),
        refusingHosts=_refusing(reach.refusing),
        text=reach_line(reach),
    )


def encode_planned_daemon(cluster: str, planned: DaemonPlan | PelotonError) -> pb.PlannedDaemon:
    if isinstance(planned, PelotonError):
        return pb.PlannedDaemon(cluster=cluster, notKnown=planned.message)
    amounts = zip(RESOURCE_KINDS, planned.overhead, planned.capacity, strict=True)
    return pb.PlannedDaemon(
        cluster=cluster,
        hosts=planned.reach.matching_count + sum(hosts.host_count for hosts in planned.reach.refusing),
        matchingHosts=planned.reach.matching_count,
        hostsInMaintenance=planned.unavailable_count,
        hostsWithRoom=planned.free_count,
        evictingHosts=planned.evicting_count,
        evictedInstances=planned.evicted_count,
        waitingHosts=planned.waiting_count,
        uncheckedHosts=planned.unchecked_count,
        overhead=[
            pb.Overhead(kind=kind, amount=amount(kind, taken), capacity=amount(kind, whole))
            for kind, taken, whole in amounts
            if taken
        ],
    )


def _refusing(found: Iterable[RefusingHosts]) -> list[pb.RefusingHosts]:
    return [pb.RefusingHosts(hostCount=hosts.host_count, rule=misfit_text(hosts.why)) for hosts in found]


def start_reason(pod: PodRecord) -> pb.Reason:
    return pb.Reason(rule=pb.RULE_CONTAINER_NOT_STARTED, wanted=1, text=start_line(pod))


def failure_reason(pod: PodRecord, text: str) -> pb.Reason:
    return pb.Reason(rule=pb.RULE_BACK_OFF, wanted=1, bound=pod.failure_count, text=text)


def loan_list(loans: Iterable[Loan]) -> list[pb.Loan]:
    return [
        pb.Loan(
            kind=one.kind,
            poolPath=one.pool_path,
            amount=amount(one.kind, one.amount),
            wantedBack=amount(one.kind, one.wanted_back),
        )
        for one in loans
    ]


class PoolNodes:
    """The messages of pools with their amounts; amounts of inner pools are sums over their leaves."""

    def __init__(self, now: Snapshot, plan: Plan) -> None:
        tree = now.tree
        self._tree = tree
        self._columns = _sum_columns(tree, plan.entitlement, now.usage, now.demand + now.slack_demand) | {
            "reservation": tree.reservation.copy(),
            "limit": tree.limit.copy(),
        }
        self._parts = [
            (
                load.compartment,
                {
                    **_sum_columns(tree, may, own, load.demand + load.slack_demand),
                    "limit": np.minimum(tree.limit, np.array(load.compartment.capacity.row(tree.kinds))),
                },
            )
            for load, may, own in zip(now.compartments, plan.entitlement.parts, now.usage.parts, strict=True)
        ]
        self._columns["reservation"][0] = self._columns["limit"][0] = now.capacity
        self._queued = [(0, 0)] * len(tree.ids)
        queued = [(row, run) for row, queues in now.waiting.items() for queue in queues.values() for run in queue]
        queued += [(gang.row, gang.run) for gang in now.held]
        for row, run in queued:
            for at in (row, *tree.ancestors[row]):
                gangs, pods = self._queued[at]
                self._queued[at] = (gangs + run.gang_count, pods + run.pod_count)

    def node(self, row: int) -> pb.PoolNode:
        tree = self._tree
        gangs, pods = self._queued[row]
        return pb.PoolNode(
            id=ResourcePoolID(value=tree.ids[row]),
            path=tree.paths[row],
            depth=int(tree.depth[row]),
            isLeaf=bool(tree.is_leaf[row]) and tree.ids[row] != ROOT_POOL_ID,
            queuedGangs=gangs,
            queuedInstances=pods,
            amounts=[self._amounts(row, kind) for kind in range(len(tree.kinds))],
            onHosts=self._on_hosts(row),
        )

    def _on_hosts(self, row: int) -> Iterator[pb.PoolOnHosts]:
        for compartment, columns in self._parts:
            if row == 0 or columns["allocation"][row].any() or columns["demand"][row].any():
                amounts = [
                    pb.PoolAmounts(
                        kind=name, type=respool_pb2.UNKNOWN_TYPE, share=0, **_numbers(columns, row, kind, name)
                    )
                    for kind, name in enumerate(self._tree.kinds)
                    if kind not in self._tree.licenses
                ]
                workloads = sorted(compartment.workloads)
                yield pb.PoolOnHosts(hostPools=compartment.host_pools, workloads=workloads, amounts=amounts)

    def in_order(self) -> list[pb.PoolNode]:
        """Return all pools, parents before children, siblings by name."""
        paths = self._tree.paths
        return [self.node(row) for row in sorted(range(len(paths)), key=lambda row: paths[row].rstrip("/").split("/"))]

    def _amounts(self, row: int, kind: int) -> pb.PoolAmounts:
        tree = self._tree
        name = tree.kinds[kind]
        return pb.PoolAmounts(
            kind=name,
            share=int(tree.share[row, kind]) / SHARE_UNITS if row else 1,
            type=respool_pb2.STATIC if tree.static[row, kind] else respool_pb2.ELASTIC,
            **_numbers(self._columns, row, kind, name),
        )


def _numbers(columns: Mapping[str, Ints], row: int, kind: int, name: str) -> dict[str, float]:
    return {column: amount(name, int(values[row, kind])) for column, values in columns.items()}


def _sum_columns(tree: PoolTree, may: Entitlement, usage: Usage, demand: Ints) -> dict[str, Ints]:
    slack = tree.roll_up(usage.slack)
    return {
        "entitlement": may.total,
        "allocation": tree.roll_up(usage.non_slack) + slack,
        "slackAllocation": slack,
        "demand": tree.roll_up(demand),
    }


def pool_plan(
    before: tuple[Snapshot, Plan], after: tuple[Snapshot, Plan], path: str, is_new: bool
) -> pb.PoolPlanResponse:
    """Compare two plans; a pool that only one of them has counts with entitlement 0 in the other."""
    now, plan = after
    old_rows = {path: row for row, path in enumerate(before[0].tree.paths)}
    old, new = before[1].entitlement.total, plan.entitlement.total
    used = now.usage.physical(now.tree)
    answer = pb.PoolPlanResponse(poolPath=path, isNew=is_new)
    for row, at in enumerate(now.tree.paths):
        for kind, name in enumerate(now.tree.kinds):
            was = int(old[old_rows[at], kind]) if at in old_rows and kind < old.shape[1] else 0
            will, held = int(new[row, kind]), int(used[row, kind])
            if was != will:
                answer.entitlements.add(poolPath=at, kind=name, before=amount(name, was), after=amount(name, will))
            if held > will:
                answer.aboveEntitlement.add(
                    poolPath=at, kind=name, allocation=amount(name, held), entitlement=amount(name, will)
                )
    without = _count_admitted(*before)
    for (job_id, pool_path, size), gangs in islice(_count_admitted(*after).items(), ADMITTED_MAX):
        answer.admitted.add(
            jobId=JobID(value=job_id),
            poolPath=pool_path,
            gangCount=gangs,
            gangSize=size,
            gangCountBefore=without.get((job_id, pool_path, size), 0),
        )
    return answer


def encode_evictions(
    evictions: Iterable[Eviction], rules: LoopSettings, names: Names, planned_job: str = ""
) -> Iterator[pb.PlannedEviction]:
    """Yield messages of evictions. ``planned_job``: the id of a job that does not exist, and is not named."""
    for one in islice(evictions, EVICTIONS_MAX):
        why, rounds = one.grounds, 1 if one.grounds.is_inside else rules.sustained_over_count
        is_planned = why.for_job == planned_job
        yield pb.PlannedEviction(
            jobId=JobID(value=one.run.job_id),
            poolPath=why.pool_path,
            firstInstance=one.run.start,
            instanceCount=one.run.pod_count,
            forJobId=None if is_planned else JobID(value=why.for_job),
            forPoolPath=why.for_pool,
            rounds=rounds,
            withinS=rounds * rules.preemption_period_s,
            text=eviction_text(replace(why, for_job="") if is_planned else why, names),
        )


def _count_admitted(now: Snapshot, plan: Plan) -> Counter[tuple[str, str, int]]:
    """Count admitted gangs by job, pool path and gang size."""
    found: Counter[tuple[str, str, int]] = Counter()
    for chosen in plan.admission.admitted:
        found[chosen.run.job_id, now.tree.paths[chosen.pool], chosen.run.gang_size] += chosen.gang_count
    return found
