"""Cases of the pure core and the resource manager's memory, without storage."""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import numpy as np

from peloton.model.ids import JobId, RespoolId
from peloton.model.job import JobRecord, JobState, JobType, SlaSpec
from peloton.model.pod import PodShape, ShapeRange
from peloton.model.resources import Resources
from peloton.model.respool import PoolSpec
from peloton.scheduling.admission import admit
from peloton.scheduling.cycle import Snapshot, plan_cycle
from peloton.scheduling.entitlement import Entitlement, Load, entitle
from peloton.scheduling.gangs import QueueKind, Usage
from peloton.scheduling.tree import Ints, PoolTree
from services.resmgr.settings import LoopSettings
from services.resmgr.state import ResmgrState
from tests.bench.figures import Times
from tests.bench.pools import CAPACITY, SLACK, organisation

PODS_PER_JOB = 4
CPUS = {QueueKind.NON_PREEMPTIBLE: 600, QueueKind.CONTROLLER: 50, QueueKind.REVOCABLE: 200, QueueKind.ORDINARY: 1200}
"""CPUs of a pod: about one or two fit, so that the bound of a cycle does not end the pass early."""
ENTITLEMENT_TARGETS_MS = {1_000: 10.0, 10_000: 100.0}
ADMISSION_TARGETS_MS = {"plan_cycle": 50.0, "whole_cycle": 50.0, "next_whole_cycle": 50.0}


def entitlement(leaf_counts: tuple[int, ...] = (1_000, 10_000), runs: int = 50) -> dict[str, Any]:
    """Entitlements of all pools, in trees with so many leaves; and the recomputation after a pool has changed."""
    return {f"{count}_leaves": _entitlement(count, runs) for count in leaf_counts}


def _entitlement(leaf_count: int, runs: int) -> dict[str, Any]:
    state = ResmgrState(organisation(leaf_count))
    state.set_capacity(CAPACITY, SLACK)
    specs = list(state.pools.values())
    now = replace(state.snapshot(0, 0), **_amounts(state.tree))
    alone, changed = Times(), Times()
    for run in range(runs):
        alone.take(lambda: _entitle(now))
        pool = replace(specs[run % len(specs)], controller_limit_percent=float(run % 100))
        changed.take(partial(_change_pool, state, pool, now))
    target_ms = ENTITLEMENT_TARGETS_MS.get(leaf_count)
    return {
        "pools": len(state.tree.ids),
        "depth": int(state.tree.depth.max()),
        **alone.figures(target_ms=target_ms),
        **changed.figures("pool_change", target_ms),
    }


def _amounts(tree: PoolTree) -> dict[str, Any]:
    """Return the usage and demand of leaves: mostly little, some far more than their part of the cluster."""
    random = np.random.default_rng(1)
    leaves = np.count_nonzero(tree.is_leaf)

    def draw(part: float) -> Ints:
        amounts = random.pareto(1.5, tree.limit.shape) * np.array(tuple(CAPACITY)) * part / leaves
        return np.where(tree.is_leaf[:, None], amounts, 0).astype(np.int64)

    non_slack, slack = draw(0.5), draw(0.05)
    usage = Usage(non_slack, slack, non_slack // 4, non_slack // 100)
    return {"usage": usage, "demand": draw(0.5), "slack_demand": draw(0.05)}


def _change_pool(state: ResmgrState, pool: PoolSpec, now: Snapshot) -> None:
    state.put_pool(pool)
    _entitle(replace(now, tree=state.tree))


def _entitle(now: Snapshot) -> Entitlement:
    load = Load(now.demand, now.slack_demand, now.usage.non_slack, now.usage.slack)
    return entitle(now.tree, load, now.capacity, now.slack_cpu)


def admission_pass(leaf_count: int = 1_000, runs: int = 20) -> dict[str, Any]:
    """A cycle over leaves that all have work in all four queues, and the next one, in which most queues only wait."""
    limit = LoopSettings().admitted_pods_max
    names = ("snapshot", "entitlement", "admission", "plan_cycle", "apply", "whole_cycle", "next_whole_cycle")
    times = {name: Times() for name in names}
    for _ in range(runs):
        state = make_queued_state(leaf_count)
        now = times["snapshot"].take(lambda state=state: state.snapshot(limit, 0))
        queue_count = sum(len(queues) for queues in now.waiting.values())
        entitled = times["entitlement"].take(lambda now=now: _entitle(now))
        times["admission"].take(
            lambda now=now, entitled=entitled: admit(now.tree, entitled, now.usage, now.waiting, limit)
        )
        plan = times["plan_cycle"].take(lambda now=now: plan_cycle(now))
        times["apply"].take(lambda state=state, plan=plan: state.apply_admission(plan.admission))
        again = make_queued_state(leaf_count)
        times["whole_cycle"].take(lambda again=again: _cycle(again, limit))
        times["next_whole_cycle"].take(lambda again=again: _cycle(again, limit))
    return {
        "leaves": leaf_count,
        "queues": queue_count,
        "admitted_runs": len(plan.admission.admitted),
        "admitted_pods": sum(one.gang_count * one.run.gang_size for one in plan.admission.admitted),
        "waiting_heads": len(plan.admission.heads),
        "is_bounded": plan.admission.resume_at != 0,
        **{name: taken.figures(target_ms=ADMISSION_TARGETS_MS.get(name)) for name, taken in times.items()},
    }


def _cycle(state: ResmgrState, pod_limit: int) -> None:
    """Run one cycle of the loop in memory."""
    plan = plan_cycle(state.snapshot(pod_limit, 0))
    state.apply_admission(plan.admission)
    state.remember(plan, 0)


def make_queued_state(leaf_count: int) -> ResmgrState:
    """Return a state in which each leaf has a job for each of its queues, some of them gangs, of which a part fits."""
    state = ResmgrState(organisation(leaf_count))
    state.set_capacity(CAPACITY, SLACK)
    leaves = [pool_id for pool_id, row in state.tree.row.items() if state.tree.is_leaf[row]]
    random = Random(1)
    for pool_id in leaves:
        for kind in QueueKind:
            gang_size = random.choice((1, 1, 2)) if kind is QueueKind.ORDINARY else 1
            sla = SlaSpec(priority=random.randrange(3), minimum_running_instances=gang_size)
            job = _job(pool_id, state.next_seq, sla)
            state.enqueue(job, [ShapeRange(0, PODS_PER_JOB, _shape(kind))], [(0, PODS_PER_JOB)], state.next_seq)
    return state


def _shape(kind: QueueKind) -> PodShape:
    return PodShape(
        Resources.of(cpu=CPUS[kind], memory_mb=1000, disk_mb=100),
        preemptible=kind is not QueueKind.NON_PREEMPTIBLE,
        revocable=kind is QueueKind.REVOCABLE,
        controller=kind is QueueKind.CONTROLLER,
    )


def _job(pool_id: RespoolId, number: int, sla: SlaSpec) -> JobRecord:
    job_id = JobId(str(uuid.UUID(int=number)))
    kind, state, goal = JobType.BATCH, JobState.PENDING, JobState.SUCCEEDED
    return JobRecord(job_id, f"job{number}", kind, "", pool_id, PODS_PER_JOB, sla, state, goal)
