"""Plans of jobs: the admission of a job that does not exist, and the free resources of hosts for its pods.

The answer about the pool is of one moment. The hosts are queried once, right after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from peloton.api.v0.explain import explain_pb2 as pb
from peloton.errors import InvalidArgument, PelotonError
from peloton.lifecycle.planned import FIRST, PlannedRange, as_placed, plan_pods
from peloton.lifecycle.reason_text import Names
from peloton.model.admission import HeldRange
from peloton.model.daemon import DaemonPlan
from peloton.model.ids import JobId, new_job_id
from peloton.model.job import JobRecord, JobType
from peloton.model.planned_capacity import CapacityAnswer
from peloton.model.pod import PodShape, PodState, ShapeRange
from peloton.model.reason import PlacementReason
from peloton.scheduling.cycle import Plan
from peloton.scheduling.eviction import Eviction
from peloton.scheduling.explain import Obstacle, Unqueued, Wait, find_unqueued, list_infeasible
from services.resmgr.capacity_source import CapacitySource
from services.resmgr.explain import wire
from services.resmgr.explain.dry_run import candidate_jobs, evictions, plan_job, plan_now, with_job
from services.resmgr.explain.job_names import in_evictions, in_queues, names_of
from services.resmgr.explain.plan_text import capacity_lines, daemon_lines
from services.resmgr.explain.text import describe_unqueued, eviction_lines, wait_lines
from services.resmgr.explain.unfit import UnfitPods
from services.resmgr.explain.waiting import ExplainedWait, explain_waits, slack_lines
from services.resmgr.loop import AdmissionLoop
from services.resmgr.state import ResmgrState
from services.storage.storage import Storage

SHAPES_MAX = 100
"""Limit of the pod shapes of one job for which free resources are searched."""
HeldRanges = Mapping[JobId, Sequence[HeldRange]]


@dataclass(frozen=True, slots=True)
class _Job:
    """The planned job."""

    record: JobRecord
    pods: Sequence[PlannedRange]
    binding: str
    shapes: Sequence[ShapeRange]  # as placement sees them


@dataclass(frozen=True, slots=True)
class _InPool:
    """The answer about the pool."""

    path: str
    admitted: Sequence[range]
    queued_count: int  # admitted ones included
    in_backoff_count: int
    waiting: Sequence[ExplainedWait]
    slack: Sequence[str]
    evictions: Sequence[Eviction]

    @property
    def admitted_count(self) -> int:
        return sum(map(len, self.admitted))


class JobPlans:
    def __init__(self, loop: AdmissionLoop, records: Storage, hosts: CapacitySource, unfit_pods: UnfitPods) -> None:
        self._loop, self._records, self._hosts, self._unfit = loop, records, hosts, unfit_pods

    async def plan(self, request: pb.JobPlanRequest) -> pb.JobPlanResponse:
        """Return the plan of a job. Raises InvalidArgument and NotFound."""
        if not request.HasField("config") and not request.HasField("spec"):
            raise InvalidArgument("job config cannot be <nil>")
        job = await asyncio.to_thread(self._job, request)
        if job.record.type is JobType.DAEMON:
            return await self._daemon(job)
        infeasible = await self._unfit.evaluate(job.shapes)
        now_ns = self._loop.clock_ns()
        in_pool = await self._loop.with_held(
            lambda state: candidate_jobs(_add_job(state, job)[0], now_ns),
            lambda state, held: self._in_pool(state, held, job),
        )
        capacity, why = await asyncio.to_thread(self._ask_hosts, job, in_pool, infeasible)
        names = await names_of(self._records, [*in_queues(in_pool.waiting), *in_evictions(in_pool.evictions)])
        evictions = list(wire.encode_evictions(in_pool.evictions, self._loop.settings, names, job.record.job_id))
        return _answer(
            job.record,
            in_pool,
            list(list_infeasible(job.shapes, infeasible)),
            capacity,
            why=why,
            evictions=evictions,
            names=names,
        )

    async def _daemon(self, job: _Job) -> pb.JobPlanResponse:
        """Return the plan of a daemon. It is never queued: hosts decide."""
        self._loop.state.check_queue(job.record)
        path = self._loop.state.path_of(job.record.respool_id)
        shape = job.shapes[0].shape
        try:
            found = await asyncio.to_thread(self._hosts.plan_daemon, shape)
        except PelotonError as error:
            found = {"": error}
        known = [capacity for capacity in found.values() if isinstance(capacity, DaemonPlan)]
        return pb.JobPlanResponse(
            poolPath=path,
            daemon=[wire.encode_planned_daemon(cluster, capacity) for cluster, capacity in found.items()],
            reasons=[wire.reach_reason(capacity.reach) for capacity in known if capacity.reach.refusing],
            text="\n".join(daemon_lines(path, found)),
        )

    def _job(self, request: pb.JobPlanRequest) -> _Job:
        record, pods = plan_job(new_job_id(), request)
        binding = self._records.migrations.binding(record)
        return _Job(record, pods, binding, as_placed(pods, record, binding))

    def _in_pool(self, state: ResmgrState, held: HeldRanges, job: _Job) -> _InPool:
        other, in_backoff = _add_job(state, job)
        now, plan = plan_now(other, self._loop.clock_ns())
        job_id = job.record.job_id
        for_it = [one for one in evictions(other, held, self._loop.clock_ns()) if one.grounds.for_job == job_id]
        mine = [chosen for chosen in plan.admission.admitted if chosen.run.job_id == job_id]
        waiting = [found for found in explain_waits(other, job.record, now, plan) if not _is_admitted(found[0], plan)]
        return _InPool(
            other.path_of(job.record.respool_id),
            [range(one.run.start, one.run.start + one.gang_count * one.run.gang_size) for one in mine],
            job.record.instance_count - in_backoff,
            in_backoff,
            waiting=waiting,
            slack=list(slack_lines(other, waiting)),
            evictions=list(islice(for_it, wire.EVICTIONS_MAX)),
        )

    def _ask_hosts(
        self, job: _Job, in_pool: _InPool, infeasible: Mapping[PodShape, object]
    ) -> tuple[pb.PlannedRoom, PlacementReason]:
        """Ask hosts for free resources; pods that not even an empty host could take are left out."""
        shapes = plan_pods(job.record, job.pods, in_pool.admitted, in_pool.queued_count, job.binding)
        shapes = [each for each in shapes if each.shape not in infeasible]
        asked, others = shapes[:SHAPES_MAX], shapes[SHAPES_MAX:]
        try:
            found = self._hosts.find_capacity(asked) if asked else CapacityAnswer(())
        except PelotonError as error:
            return pb.PlannedRoom(notKnown=error.message), ()
        counts = list(zip(asked, found.counts, strict=True))
        first = sum(count for each, count in counts if each.turn == FIRST)
        capacity = pb.PlannedRoom(
            foundInstances=first,
            hostlessInstances=in_pool.admitted_count - first - sum(each.count for each in others if each.turn == FIRST),
            queuedFoundInstances=sum(count for each, count in counts if each.turn != FIRST),
            uncheckedInstances=sum(each.count for each in others),
        )
        return capacity, found.why


def _add_job(state: ResmgrState, job: _Job) -> tuple[ResmgrState, int]:
    return with_job(state, job.record, [each.pods for each in job.pods])


def _is_admitted(wait: Wait, plan: Plan) -> bool:
    return any(
        (chosen.run.job_id, chosen.run.start) == (wait.run.job_id, wait.start) for chosen in plan.admission.admitted
    )


def _answer(
    job: JobRecord,
    in_pool: _InPool,
    unfits: Sequence[Unqueued],
    capacity: pb.PlannedRoom,
    why: PlacementReason,
    evictions: Sequence[pb.PlannedEviction],
    names: Names,
) -> pb.JobPlanResponse:
    admitted, in_backoff = in_pool.admitted_count, in_pool.in_backoff_count
    counts = {PodState.PENDING: in_pool.queued_count, PodState.INITIALIZED: in_backoff}
    others = [one for one in find_unqueued(job, counts, ()) if one.obstacle is Obstacle.MAXIMUM_RUNNING] + [*unfits]
    hosts_lines = list(capacity_lines(capacity, admitted, in_pool.queued_count - admitted, why))
    capacity.text = "\n".join(hosts_lines)
    lines = [
        *hosts_lines,
        *(line for found in in_pool.waiting for line in wait_lines(*found, names)),
        *in_pool.slack,
        *map(describe_unqueued, others),
        *eviction_lines(evictions, names),
    ]
    headline = f"In pool {in_pool.path} {admitted} of {job.instance_count} instances would be admitted now."
    reasons = [wire.encode_unqueued(one) for one in others]
    if capacity.hostlessInstances and why:
        reasons.insert(0, wire.capacity_reason(capacity.hostlessInstances, why))
    return pb.JobPlanResponse(
        poolPath=in_pool.path,
        admittedInstances=admitted,
        waitingInstances=in_pool.queued_count - admitted,
        heldBackInstances=in_backoff,
        waiting=[wire.waiting_gangs(*found, names) for found in in_pool.waiting],
        reasons=reasons,
        evictions=evictions,
        jobNames=names,
        room=capacity,
        text="\n".join([headline, *(f"  {line}" for line in lines)]),
    )
