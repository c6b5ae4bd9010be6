"""ExplainService answers from the state and from the plan of the next cycle; it changes nothing.

Each answer is made in one step of the event loop, so that its numbers are of one moment.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Protocol

import grpc
import grpc.aio

from peloton.api.convert import JOB_STATE_NUMBERS
from peloton.api.convert_pool import pool_spec
from peloton.api.v0.explain import explain_pb2 as pb
from peloton.api.v0.job import job_pb2
from peloton.api.v0.peloton_pb2 import JobID
from peloton.api.v0.respool import respool_pb2
from peloton.errors import InvalidArgument, NotFound, PelotonError, Reason
from peloton.lifecycle.migration import binding_text
from peloton.lifecycle.reason_text import placement_text
from peloton.model.admission import HeldRange
from peloton.model.daemon import DaemonReach
from peloton.model.ids import JobId, RespoolId, parse_job_id
from peloton.model.job import JobRecord, JobType
from peloton.model.pod import PodState, ShapeRange
from peloton.model.reason import Rule
from peloton.model.text import quote, shorten
from peloton.model.update import UpdateRecord, UpdateState
from peloton.scheduling.cycle import Plan, Snapshot
from peloton.scheduling.eviction import Eviction
from peloton.scheduling.explain import Unqueued, Wait, compute_loans, find_holders, find_unqueued, list_waits
from peloton.scheduling.gangs import QueueKind
from services.resmgr import pool_rules
from services.resmgr.capacity_source import CapacitySource
from services.resmgr.explain import dry_run, wire
from services.resmgr.explain.dry_run import beyond, candidate_jobs, evictions, make_held_reader, with_pool
from services.resmgr.explain.job_names import in_evictions, in_queues, names_of
from services.resmgr.explain.job_plans import JobPlans
from services.resmgr.explain.text import (
    disruption_lines,
    failure_line,
    headline,
    lock_lines,
    mark_lines,
    plan_lines,
    pool_lines,
    reach_line,
    recipe_text,
    story,
    update_lines,
    volume_line,
    wait_lines,
)
from services.resmgr.explain.unfit import UnfitPods
from services.resmgr.explain.waiting import WAITING_MAX, ExplainedWait, explain_waits, slack_lines
from services.resmgr.loop import AdmissionLoop
from services.resmgr.state import ResmgrState
from services.storage.storage import Storage

Context = grpc.aio.ServicerContext[object, object]

QUEUE_MAX = 100
"""Limit of the waiting runs of one pool in an answer."""
HEADS_MAX = 100
"""Limit of the queue heads of one pool in an answer."""
FAILURES_MAX = 5
"""Limit of the failed pods of one job in an answer."""
DISRUPTIONS_MAX = 3
"""Limit of the SLA answers of one job in an answer."""

HeldRanges = Mapping[JobId, Sequence[HeldRange]]


class ExplainsWorkflows(Protocol):
    async def why(self, job: JobRecord) -> list[str]:
        """Explain what blocks the workflows of a job; never raises."""
        ...


class ExplainService:
    """The servicer: one asynchronous method per RPC, under the RPC's name."""

    def __init__(
        self,
        loop: AdmissionLoop,
        records: Storage,
        hosts: CapacitySource,
        workflows: ExplainsWorkflows | None = None,
    ) -> None:
        self._loop, self._workflows = loop, workflows
        self._records = records
        self._hosts = hosts
        self._unfit = UnfitPods(records, hosts)
        self._plans = JobPlans(loop, records, hosts, self._unfit)

    async def JobWhy(self, request: pb.JobWhyRequest, context: Context) -> pb.JobWhyResponse:
        try:
            job_id = parse_job_id(request.jobId.value)
        except ValueError:
            raise InvalidArgument(f"JobID must be valid UUID, not {quote(request.jobId.value)}") from None
        job = await asyncio.to_thread(self._records.jobs.get, job_id)
        if job is None:
            raise NotFound(f"job {job_id} not found").because(Reason.JOB_NOT_FOUND, job=job_id)
        stuck = await self._workflows.why(job) if self._workflows and job.is_active else []  # first: it takes longest
        counts = await asyncio.to_thread(self._records.pods.counts, job_id)
        gang = await asyncio.to_thread(self._records.pods.gang, job_id)
        # Permanently failed pods are part of the answer once a batch job has ended: before, they wait for nothing.
        only_waiting = job.type.runs_to_end and job.is_active
        failures = await asyncio.to_thread(self._records.pods.list_failed, job_id, FAILURES_MAX, only_waiting)
        starting = await asyncio.to_thread(self._records.pods.waiting_on_hosts, job_id, FAILURES_MAX)
        waiting: list[ExplainedWait] = []
        others: list[Unqueued] = []
        recipe = ""
        locked = await asyncio.to_thread(self._records.lockdowns.read_locked)
        if job.is_active:
            state = await self._state()
            waiting = explain_waits(state, job, *self._read_plan(state))
            placement = (
                () if "Launch" in locked else state.count_unplaced(job_id)[1]
            )  # the lock blocks its launch, not hosts
            others = [*find_unqueued(job, counts, placement, gang), *await self._unfit.of(job, counts)]
            recipe = await asyncio.to_thread(self._recipe, job) if placement else ""
        reach = await asyncio.to_thread(self._reach_of, job)
        path = self._loop.state.path_of(job.respool_id) if job.respool_id in self._loop.state.tree.row else ""
        names = await names_of(self._records, in_queues(waiting))
        lines = [*stuck, *story(job, counts, waiting, others, failures=failures, starting=starting, names=names)]
        lines += slack_lines(self._loop.state, waiting)
        lines += _list_failed_placements(self._loop.state, job, waiting)
        if job.is_active:
            lines += [*map(reach_line, reach), *filter(None, [recipe])]
            lines += [failure_line(pod, job.type) for pod in failures]
            lines += [*await asyncio.to_thread(self._service_lines, job), *lock_lines(locked)]
            if binding := await asyncio.to_thread(self._records.migrations.binding, job):
                lines.append(binding_text(binding))
            lines += await asyncio.to_thread(self._mark_lines, job)
            lines += await asyncio.to_thread(self._cluster_lines, job)
        more = counts.get(PodState.PENDING, 0) - sum(one.gang_count * one.run.gang_size for one, _ in waiting)
        if len(waiting) == WAITING_MAX and more > 0:
            lines.append(f"{more} more instances are in the queue")
        return pb.JobWhyResponse(
            jobId=JobID(value=job_id),
            name=job.name,
            state=job_pb2.JobState.ValueType(JOB_STATE_NUMBERS[job.state]),
            poolPath=path,
            instanceCounts={state.value: count for state, count in counts.items()},
            waiting=[wire.waiting_gangs(*one, names) for one in waiting],
            reasons=[
                *(wire.encode_unqueued(one) for one in others),
                *(wire.reach_reason(one) for one in reach if one.refusing),
                *(wire.start_reason(pod) for pod in starting[0] if job.is_active),
                *(wire.failure_reason(pod, failure_line(pod, job.type)) for pod in failures if job.is_active),
            ],
            text="\n".join([headline(job, path, counts), *(f"  {line}" for line in lines)]),
            jobNames=names,
        )

    def _recipe(self, job: JobRecord) -> str:
        """Return the text on how hosts are chosen for its pods."""
        (shapes,) = self._records.configs.shapes_of([(job.job_id, job.config_version, 0, 1)])
        return recipe_text(shapes[0].shape.strategy) if shapes else ""

    def _reach_of(self, job: JobRecord) -> Sequence[DaemonReach]:
        """Return the hosts on which a daemon runs; empty while they are unknown."""
        if job.type is not JobType.DAEMON or not job.is_active:
            return ()
        (shapes,) = self._records.configs.shapes_of([(job.job_id, job.config_version, 0, 1)])
        return self._reach(shapes)

    def _reach(self, shapes: Sequence[ShapeRange]) -> Sequence[DaemonReach]:
        try:
            return self._hosts.reach(shapes[0].shape) if shapes else ()
        except PelotonError:  # not known yet, or not implemented by a host manager of the last release
            return ()

    def _service_lines(self, job: JobRecord) -> list[str]:
        """Return lines on its lost volumes, its rollout, and the last answers of its SLA."""
        if job.type is not JobType.SERVICE:
            return []
        update = self._records.updates.get(job.update_id) if job.update_id else None
        asked = self._records.disruptions.recent(job.job_id, DISRUPTIONS_MAX)
        lost = self._records.volumes.list_lost(job.job_id, FAILURES_MAX)
        return [*map(volume_line, lost), *self._update_lines(job, update), *disruption_lines(job, asked)]

    def _update_lines(self, job: JobRecord, update: UpdateRecord | None) -> Iterable[str]:
        is_paused = update is not None and update.state is UpdateState.PAUSED
        last = self._records.updates.events(job.update_id, limit=1) if is_paused else []
        return update_lines(update, job.owning_team, last[0].person if last else "")

    def _mark_lines(self, job: JobRecord) -> list[str]:
        """Return lines on the host advisor's marks of the service, and of hosts that its pods are on."""
        try:
            hosts, services = self._hosts.advice()
        except PelotonError:  # unavailable, or not implemented by a host manager of the last release
            return []
        there = self._records.pods.hosts(job.job_id) if hosts else {}
        on_marked = [(host, count, hosts[host]) for host, count in there.items() if host in hosts]
        return list(mark_lines(services.get(job.job_id), on_marked))

    def _cluster_lines(self, job: JobRecord) -> list[str]:
        """Return lines on external pods that their cluster reports as stuck."""
        if job.type is not JobType.EXTERNAL:
            return []
        notes = self._records.external_pods.notes(job.job_id, FAILURES_MAX)
        return [f"pod {name} cannot leave yet: {why}" for name, why in notes]

    async def PoolWhy(self, request: pb.PoolWhyRequest, context: Context) -> pb.PoolWhyResponse:
        state = await self._state()
        path = pool_rules.check_path(request.path.value if request.HasField("path") else None)
        try:
            row = state.tree.row[pool_rules.find(state, path)]
        except NotFound:
            raise NotFound(f"resource pool {shorten(path)} not found").because(
                Reason.POOL_NOT_FOUND, pool=path
            ) from None
        now, plan = self._read_plan(state)
        found = list(islice(_heads(state, now, plan, row), HEADS_MAX))
        owed = compute_loans(now, plan, row)
        waiting: list[ExplainedWait] = [
            (wait, ()) for wait in islice(list_waits(now, plan, row), min(request.queueLimit, QUEUE_MAX))
        ]
        answer = pb.PoolWhyResponse(
            pool=wire.PoolNodes(now, plan).node(row),
            borrowed=wire.loan_list(owed.borrowed),
            lenders=wire.loan_list(owed.lenders),
            lent=wire.loan_list(owed.lent),
            borrowers=wire.loan_list(owed.borrowers),
        )
        names = await names_of(self._records, in_queues([*(first for _, first in found), *waiting]))
        answer.jobNames.update(names)
        for head, first in found:
            head.head.CopyFrom(wire.waiting_gangs(*first, names))
            answer.queues.append(head)
        answer.waiting.extend(wire.waiting_gangs(*one, names) for one in waiting)
        heads = [list(wait_lines(*first, names)) for _, first in found]
        answer.text = "\n".join(pool_lines(answer, heads, self._loop.settings))
        return answer

    async def PoolTree(self, request: pb.PoolTreeRequest, context: Context) -> pb.PoolTreeResponse:
        state = await self._state()
        nodes = wire.PoolNodes(*self._read_plan(state))  # holds copies: the rest needs no event loop
        return pb.PoolTreeResponse(pools=await asyncio.to_thread(nodes.in_order))

    async def PoolPlan(self, request: pb.PoolPlanRequest, context: Context) -> pb.PoolPlanResponse:
        state = await self._state()
        if not request.HasField("config"):
            raise InvalidArgument("resource pool config cannot be <nil>")
        config = pool_rules.with_defaults(request.config)
        known = _find_pool(state, config)
        pool_id = known or RespoolId(str(uuid.uuid4()))
        pool_rules.check_config(state, pool_id, config, state.pools)
        spec, now_ns = pool_spec(pool_id, config), self._loop.clock_ns()

        def plan(state: ResmgrState, held: HeldRanges) -> tuple[pb.PoolPlanResponse, list[Eviction], list[str]]:
            other = with_pool(state, spec)
            answer = wire.pool_plan(
                self._read_plan(state), self._read_plan(other), other.path_of(pool_id), is_new=known is None
            )
            more = beyond(evictions(other, held, now_ns), evictions(state, held, now_ns))
            return answer, list(islice(more, wire.EVICTIONS_MAX)), list(pool_rules.beyond_hosts(state, spec))

        answer, evicted, notes = await self._loop.with_held(
            lambda state: candidate_jobs(with_pool(state, spec), now_ns), plan
        )
        admitted = (one.jobId.value for one in answer.admitted)
        names = await names_of(self._records, [*admitted, *in_evictions(evicted)])
        answer.jobNames.update(names)
        answer.evictions.extend(wire.encode_evictions(evicted, self._loop.settings, names))
        answer.text = "\n".join([*plan_lines(answer), *notes])
        return answer

    async def JobPlan(self, request: pb.JobPlanRequest, context: Context) -> pb.JobPlanResponse:
        await self._state()
        return await self._plans.plan(request)

    def _read_plan(self, state: ResmgrState) -> tuple[Snapshot, Plan]:
        return dry_run.plan_now(state, self._loop.clock_ns())

    async def _state(self) -> ResmgrState:
        """Return the present state. Raises Unavailable while the capacity of the cluster is unknown."""
        if self._loop.state.capacity is None:
            await self._loop.learn_capacity()
        return self._loop.state


def _list_failed_placements(state: ResmgrState, job: JobRecord, waiting: Iterable[ExplainedWait]) -> Iterable[str]:
    """Return the last placement reason of pods in backoff, as a line."""
    if any(wait.reason.rule is Rule.IN_BACKOFF for wait, _ in waiting) and (
        said := state.count_unplaced(job.job_id)[1]
    ):
        yield f"last result of placement: {placement_text(said)}"


def _heads(state: ResmgrState, now: Snapshot, plan: Plan, above: int) -> Iterable[tuple[pb.QueueHead, ExplainedWait]]:
    """Yield the first waiting gangs of each queue in and below a pool, or gangs that are admitted next if none waits.

    The heads have no ``head`` yet: that requires the names of jobs.
    """
    held = make_held_reader(state)
    for row in sorted(now.waiting.keys() | {gang.row for gang in now.held}):
        if row != above and above not in now.tree.ancestors[row]:
            continue
        found: dict[QueueKind, list[Wait]] = {}
        for wait in list_waits(now, plan, row):
            found.setdefault(wait.run.queue, []).append(wait)
        for kind, queue in sorted(found.items()):
            wait = next((one for one in queue if one.reason.kind and not one.reason.is_final), queue[0])
            held_by = find_holders(now, plan, wait, held)
            head = pb.QueueHead(
                poolPath=now.tree.paths[row],
                queue=wire.QUEUES[kind],
                gangCount=sum(one.gang_count for one in queue),
                instanceCount=sum(one.gang_count * one.run.gang_size for one in queue),
            )
            yield head, (wait, held_by)


def _find_pool(state: ResmgrState, config: respool_pb2.ResourcePoolConfig) -> RespoolId | None:
    parent = config.parent.value
    same = (pool for pool in state.pools.values() if (pool.parent_id, pool.name) == (parent, config.name))
    return next((pool.respool_id for pool in same), None)
