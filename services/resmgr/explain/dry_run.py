"""What-if plans: the effects of a cycle on a changed copy of the state. None of them is carried out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from peloton.api import convert, convert_v1_spec
from peloton.api.convert_layout import layout
from peloton.api.merge import effective_task_config
from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.job import job_pb2
from peloton.errors import InvalidArgument
from peloton.lifecycle.planned import PlannedRange
from peloton.model.admission import HeldRange
from peloton.model.ids import JobId, RespoolId
from peloton.model.job import JobRecord, JobType
from peloton.model.pod import ShapeRange
from peloton.model.respool import PoolSpec
from peloton.scheduling.cycle import Plan, Snapshot, plan_cycle
from peloton.scheduling.eviction import Eviction
from peloton.scheduling.explain import JobUsage
from peloton.scheduling.gangs import Usage
from peloton.scheduling.preemption import over_entitled
from services.resmgr.accounts import volume_footprint
from services.resmgr.ledger import IS_ALLOCATED, JobLedger
from services.resmgr.preemption import evictable, jobs_to_evict_from
from services.resmgr.queues import WaitingRuns
from services.resmgr.state import ResmgrState

PLANNED_PODS_MAX = 2**40
"""A what-if plan has no bound on its pods, unlike a cycle: it names all gangs that fit now."""
INSTANCES_MAX = 100_000


def plan_now(state: ResmgrState, now_ns: int) -> tuple[Snapshot, Plan]:
    """Return the plan of the next cycle without its bound on pods. Valid until the next event."""
    now = state.snapshot(PLANNED_PODS_MAX, now_ns)
    return now, plan_cycle(now)


def candidate_jobs(state: ResmgrState, now_ns: int) -> list[JobId]:
    """Return the jobs whose held pods ``evictions`` must have."""
    if not state.preempts:
        return []
    now, plan = plan_now(state, now_ns)
    return jobs_to_evict_from(state, _due(now, plan), plan.admission)


def evictions(state: ResmgrState, held: Mapping[JobId, Sequence[HeldRange]], now_ns: int) -> Sequence[Eviction]:
    """Return the evictions of preemption if nothing else changed.

    Each pool above its entitlement counts as having been above it for long enough.
    """
    if not held:
        return ()
    now, plan = plan_now(state, now_ns)
    may = evictable(state, held, _due(now, plan), PLANNED_PODS_MAX)
    return plan_cycle(replace(now, evictable=may)).evictions


def beyond(evictions: Iterable[Eviction], others: Iterable[Eviction]) -> Iterator[Eviction]:
    """Yield the evictions without the gangs that ``others`` evict as well: of each run the last ones."""
    spans: dict[JobId, list[range]] = {}
    for one in others:
        spans.setdefault(one.run.job_id, []).append(range(one.run.start, one.run.start + one.run.pod_count))
    for one in evictions:
        run = one.run
        starts = range(run.start, run.start + run.pod_count, run.gang_size)
        count = sum(not any(start in span for span in spans.get(run.job_id, ())) for start in starts)
        if count:
            yield replace(one, run=replace(run, gang_count=count))


def _due(now: Snapshot, plan: Plan) -> frozenset[int]:
    left = now.usage.without(now.leaving) if now.leaving else now.usage
    return frozenset(over_entitled(now.tree, plan.entitlement, left))


def with_pool(state: ResmgrState, pool: PoolSpec) -> ResmgrState:
    """Return the state as if the pool had been put. It shares queues and ledgers: only read it."""
    other = copy.copy(state)
    other.put_pool(pool)
    return other


def with_job(state: ResmgrState, job: JobRecord, shapes: Sequence[ShapeRange]) -> tuple[ResmgrState, int]:
    """Return the state as if the job had been queued, and the number of instances above its maximum of running ones.

    Raises NotFound and InvalidArgument for pools that take no jobs.
    """
    state.check_queue(job)
    other = copy.copy(state)
    other.jobs = dict(state.jobs)
    other.accounts = state.accounts.move_to(state.tree)
    other.waiting = WaitingRuns()
    other.waiting.pools = {
        pool: {kind: list(queue) for kind, queue in queues.items()} for pool, queues in state.waiting.pools.items()
    }
    allowed = min(job.sla.maximum_running_instances or job.instance_count, job.instance_count)
    if allowed < job.gang_size:
        allowed = 0  # the gang does not fit below the maximum, and blocks the other instances
    if allowed:
        other.enqueue(job, shapes, [(0, allowed)], state.next_seq)
    return other, job.instance_count - allowed


def plan_job(job_id: JobId, request: explain_pb2.JobPlanRequest) -> tuple[JobRecord, list[PlannedRange]]:
    """Return the record and pods of a job that does not exist; of a daemon one pod for every host. Raises
    InvalidArgument."""
    config = convert_v1_spec.job_config(request.spec) if request.HasField("spec") else request.config
    job = convert.new_job_record(job_id, config, 0)
    if job.type is JobType.DAEMON:
        return job, [_range(config, 0, 1)]
    if not 1 <= job.instance_count <= INSTANCES_MAX:
        raise InvalidArgument(f"instanceCount is {job.instance_count}, want 1 to {INSTANCES_MAX}")
    return job, list(_ranges(config))


def _ranges(config: job_pb2.JobConfig) -> Iterator[PlannedRange]:
    edges = {edge for own in config.instanceConfig for edge in (own, own + 1)}
    starts = [0, *sorted(edge for edge in edges if 0 < edge < config.instanceCount)]
    for start, end in zip(starts, [*starts[1:], config.instanceCount], strict=True):
        yield _range(config, start, end)


def _range(config: job_pb2.JobConfig, start: int, end: int) -> PlannedRange:
    task = effective_task_config(config, start)
    shape = convert.pod_shape(task, config.sla, config.placementStrategy, layout(config.placement))
    return PlannedRange(ShapeRange(start, end - start, shape), convert.collect_labels(task))


def make_held_reader(state: ResmgrState) -> Callable[[int], list[JobUsage]]:
    """Return a function from the row of a leaf to the amounts held by its jobs and by volumes, also of deleted jobs."""
    by_pool: dict[RespoolId, dict[JobId, JobLedger | None]] = {}
    for ledger in state.jobs.values():
        if ledger.allocated_count:
            by_pool.setdefault(ledger.pool_id, {})[ledger.job_id] = ledger
    volumes = state.accounts.volumes
    for pool_id, job_id in volumes:
        by_pool.setdefault(pool_id, {}).setdefault(job_id, None)

    def list_held(row: int) -> list[JobUsage]:
        pool_id = state.tree.ids[row]
        jobs = by_pool.get(pool_id, {}).items()
        return [_sum_held(state.tree.kinds, job_id, ledger, volumes[pool_id, job_id]) for job_id, ledger in jobs]

    return list_held


def _sum_held(kinds: tuple[str, ...], job_id: JobId, ledger: JobLedger | None, volumes_mib: int) -> JobUsage:
    usage = Usage(*np.zeros((4, 1, len(kinds)), np.int64))
    held = list(ledger.footprints.tally(np.flatnonzero(IS_ALLOCATED[ledger.states]))) if ledger is not None else []
    held += [(volumes_mib, volume_footprint(kinds))] if volumes_mib else []
    for count, footprint in held:
        usage.charge(0, footprint, count)
    workloads = frozenset(footprint.workload for _, footprint in held)
    return JobUsage(job_id, *(tuple(column[0].tolist()) for column in usage.columns), workloads=workloads)
