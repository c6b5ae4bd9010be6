"""What if: a copy of the state that may be changed, for plans that nobody carries out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from peloton.api import convert
from peloton.api.merge import effective_task_config
from peloton.api.v0.job import job_pb2
from peloton.errors import InvalidArgument
from peloton.model.admission import HeldRange
from peloton.model.ids import JobId, RespoolId
from peloton.model.job import JobRecord, JobType
from peloton.model.pod import PodShape, ShapeRange
from peloton.model.respool import PoolSpec
from peloton.scheduling.cycle import Plan, Snapshot, plan_cycle
from peloton.scheduling.eviction import Eviction
from peloton.scheduling.explain import Held
from peloton.scheduling.preemption import over_entitled
from services.resmgr.ledger import IS_ALLOCATED, Footprint, JobLedger
from services.resmgr.preemption import evictable, questioned_jobs
from services.resmgr.queues import WaitingRuns
from services.resmgr.state import ResmgrState

PLANNED_PODS_MAX = 2**40
"""A question is not cut where a cycle is: everything that fits now is told."""
INSTANCES_MAX = 100_000


def look(state: ResmgrState, now_ns: int) -> tuple[Snapshot, Plan]:
    """What the next cycle would do, were there no bound on its pods. Valid until the next event."""
    now = state.snapshot(PLANNED_PODS_MAX, now_ns)
    return now, plan_cycle(now)


def questioned(state: ResmgrState, now_ns: int) -> list[JobId]:
    """Whose pods ``evictions`` must know."""
    if not state.preempts:
        return []
    now, plan = look(state, now_ns)
    return questioned_jobs(state, _due(now, plan), plan.admission)


def evictions(state: ResmgrState, held: Mapping[JobId, Sequence[HeldRange]], now_ns: int) -> Sequence[Eviction]:
    """What the rounds of preemption would evict if nothing else changed: every pool that is above its entitlement
    counts as having been so for long enough."""
    if not held:
        return ()
    now, plan = look(state, now_ns)
    may = evictable(state, held, _due(now, plan), PLANNED_PODS_MAX)
    return plan_cycle(replace(now, evictable=may)).evictions


def beyond(evictions: Iterable[Eviction], others: Iterable[Eviction]) -> Iterator[Eviction]:
    """Without the gangs that the others evict as well: of each run the last ones."""
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
    """The state as if the pool had been put. Queues and ledgers are shared, so only ask it questions."""
    other = copy.copy(state)
    other.put_pool(pool)
    return other


def with_job(state: ResmgrState, job: JobRecord, shapes: Sequence[ShapeRange]) -> tuple[ResmgrState, int]:
    """The state as if the job had been queued, and how many instances its maximum of running ones holds back.

    Raises NotFound and InvalidArgument for pools that take no jobs.
    """
    state.check_queue(job)
    other = copy.copy(state)
    other.jobs = dict(state.jobs)
    other.accounts = state.accounts.moved_to(state.tree)
    other.waiting = WaitingRuns()
    other.waiting.pools = {
        pool: {kind: list(queue) for kind, queue in queues.items()} for pool, queues in state.waiting.pools.items()
    }
    room = min(job.sla.maximum_running_instances or job.instance_count, job.instance_count)
    if room < job.gang_size:
        room = 0  # the gang does not fit below the maximum, and holds the others back
    if room:
        other.enqueue(job, shapes, [(0, room)], state.next_seq)
    return other, job.instance_count - room


def planned_job(job_id: JobId, config: job_pb2.JobConfig) -> tuple[JobRecord, list[ShapeRange]]:
    """The record and shapes of a job that is not created. Raises InvalidArgument."""
    job = convert.new_job_record(job_id, config, 0)
    if job.type is not JobType.BATCH:
        raise InvalidArgument(f"only batch jobs can be planned, not {job.type}")
    if not 1 <= job.instance_count <= INSTANCES_MAX:
        raise InvalidArgument(f"instanceCount is {job.instance_count}, want 1 to {INSTANCES_MAX}")
    return job, list(_shape_ranges(config))


def _shape_ranges(config: job_pb2.JobConfig) -> Iterator[ShapeRange]:
    def shape(instance: int) -> PodShape:
        return convert.pod_shape(effective_task_config(config, instance), config.sla, config.placementStrategy)

    edges = {edge for own in config.instanceConfig for edge in (own, own + 1)}
    starts = [0, *sorted(edge for edge in edges if 0 < edge < config.instanceCount)]
    for start, end in zip(starts, [*starts[1:], config.instanceCount], strict=True):
        yield ShapeRange(start, end - start, shape(start))


def held_in(state: ResmgrState) -> Callable[[int], list[Held]]:
    """Row of a leaf -> what its jobs hold, those that hold something."""
    by_pool: dict[RespoolId, list[JobLedger]] = {}
    for ledger in state.jobs.values():
        if ledger.allocated_count:
            by_pool.setdefault(ledger.pool_id, []).append(ledger)

    return lambda row: [_held(ledger) for ledger in by_pool.get(state.tree.ids[row], ())]


def _held(ledger: JobLedger) -> Held:
    pods = list(ledger.footprints.tally(np.flatnonzero(IS_ALLOCATED[ledger.states])))

    def total(is_counted: Callable[[Footprint], bool]) -> tuple[int, ...]:
        amounts = [np.multiply(footprint.need, count) for count, footprint in pods if is_counted(footprint)]
        return tuple(np.sum(amounts, axis=0).tolist()) if amounts else (0,) * len(pods[0][1].need)

    return Held(
        ledger.job_id,
        non_slack=total(lambda f: not f.revocable),
        slack=total(lambda f: f.revocable),
        non_preemptible=total(lambda f: not f.revocable and not f.preemptible),
        controller=total(lambda f: not f.revocable and f.controller),
    )
