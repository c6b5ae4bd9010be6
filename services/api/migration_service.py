"""Peloton's MigrationService: migrations of jobs and pools to another cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from peloton.api.convert_time import rfc3339
from peloton.api.v0.migration import migration_pb2 as pb
from peloton.errors import Aborted, InvalidArgument, NotFound, Reason, Unavailable
from peloton.lifecycle.migration import plan_refusal, plan_text
from peloton.model.ids import JobId, RespoolId, parse_job_id
from peloton.model.job import JobRecord
from peloton.model.migration import (
    Migration,
    MigrationAct,
    MigrationLoad,
    MigrationSpec,
    MigrationTarget,
)
from peloton.model.pod import PodShape
from peloton.model.resources import Resources
from peloton.model.respool import PoolSpec, pool_paths
from peloton.model.text import quote, shorten
from services.api.calls import Calls, check_wanted
from services.api.servicer import check_managed, write
from services.storage.storage import Storage

LIMIT_DEFAULT, LIMIT_MAX = 20, 1_000
AT_ONCE_DEFAULT, AT_ONCE_MAX = 2, 100
BATCH_MAX = 100_000
Pool = tuple[RespoolId, str]
"""Id and path of a pool."""


class Targets(Protocol):
    def target(self, cluster: str, shapes: Sequence[PodShape]) -> MigrationTarget:
        """Read the capacity of the target. Raises InvalidArgument, Unavailable."""
        ...


class NoTargets:
    """Targets of an api without host managers."""

    def target(self, cluster: str, shapes: Sequence[PodShape]) -> MigrationTarget:
        raise Unavailable("no host manager is known")


class MigrationService:
    def __init__(
        self, records: Storage, targets: Targets, calls: Calls, changed: Callable[[Iterable[str]], None]
    ) -> None:
        """Create the service; ``changed`` wakes the workflows of migrations and never blocks."""
        self._records, self._migrations, self._targets = records, records.migrations, targets
        self._calls, self._changed = calls, changed

    @write
    async def Start(self, request: pb.StartRequest, context: Any) -> pb.StartResponse:
        spec = _spec(request)
        job, pool = await self._calls.run(self._object, request.job_id, request.pool_path)
        load = await self._calls.run(self._migrations.load, job, pool, spec)
        target = await self._calls.run(self._targets.target, spec.target, load.shapes)
        name = _name(job, pool)
        answer = pb.StartResponse(plan=_plan(name, spec, load, target))
        if refusal := plan_refusal(name, spec.target, load, target, request.force):
            raise Aborted(refusal)
        if not request.dry_run:
            check_wanted(context)
            migration = await self._calls.run(self._migrations.request, job, pool, spec)
            self._changed([migration.migration_id])
            answer.migration.CopyFrom(_wire(migration))
        return answer

    @write
    async def Pause(self, request: pb.PauseRequest, context: Any) -> pb.PauseResponse:
        return pb.PauseResponse(migration=await self._steer(request.id, MigrationAct.PAUSE))

    @write
    async def Resume(self, request: pb.ResumeRequest, context: Any) -> pb.ResumeResponse:
        return pb.ResumeResponse(migration=await self._steer(request.id, MigrationAct.RESUME))

    @write
    async def Rollback(self, request: pb.RollbackRequest, context: Any) -> pb.RollbackResponse:
        return pb.RollbackResponse(migration=await self._steer(request.id, MigrationAct.ROLL_BACK))

    async def _steer(self, migration_id: str, act: MigrationAct) -> pb.Migration:
        migration = await self._calls.run(self._migrations.steer, _id(migration_id), act)
        self._changed([migration.migration_id])
        return _wire(migration)

    @write
    async def Release(self, request: pb.ReleaseRequest, context: Any) -> pb.ReleaseResponse:
        job, pool = await self._calls.run(self._object, request.job_id, request.pool_path)
        released = await self._calls.run(self._migrations.release, job, pool)
        return pb.ReleaseResponse(cluster=released)

    async def Query(self, request: pb.QueryRequest, context: Any) -> pb.QueryResponse:
        if request.id:
            one = await self._calls.run(self._migrations.get, _id(request.id))
            return pb.QueryResponse(migrations=[_wire(one)] if one else [])
        object_id = ""
        if request.job_id or request.pool_path:
            job, pool = await self._calls.run(self._object, request.job_id, request.pool_path)
            object_id = job.job_id if job is not None else pool[0] if pool else ""
        limit = min(request.limit or LIMIT_DEFAULT, LIMIT_MAX)
        found = await self._calls.run(self._migrations.latest, limit + 1, object_id)
        return pb.QueryResponse(migrations=map(_wire, found[:limit]), has_more=len(found) > limit)

    def _object(self, job_id: str, pool_path: str) -> tuple[JobRecord | None, Pool | None]:
        """Return the job or the pool that a request names. Raises InvalidArgument, NotFound."""
        if bool(job_id) == bool(pool_path):
            raise InvalidArgument("name either a job or a pool")
        if pool_path:
            return None, _pool(self._records.pools.specs(), pool_path)
        try:
            job = self._records.jobs.get(parse_job_id(job_id))
        except ValueError:
            raise InvalidArgument(f"job_id must be a UUID, not {quote(job_id)}") from None
        if job is None:
            raise NotFound(f"job {job_id} not found").because(Reason.JOB_NOT_FOUND, job=job_id)
        check_managed(job)
        return job, None


def _pool(pools: Sequence[PoolSpec], path: str) -> Pool:
    paths = pool_paths(pools)
    pool_id = next((pool_id for pool_id, own in paths.items() if own == path), None)
    if pool_id is None:
        raise NotFound(f"resource pool {shorten(path)} not found").because(Reason.POOL_NOT_FOUND, pool=path)
    return pool_id, path


def _spec(request: pb.StartRequest) -> MigrationSpec:
    at_once = request.services_at_once or AT_ONCE_DEFAULT
    if not request.target:
        raise InvalidArgument("no target: name a cluster")
    if at_once > AT_ONCE_MAX:
        raise InvalidArgument(f"services_at_once is {at_once}, at most {AT_ONCE_MAX}")
    if request.batch_size > BATCH_MAX:
        raise InvalidArgument(f"batch_size is {request.batch_size}, at most {BATCH_MAX}")
    return MigrationSpec(request.target, request.batch_size, at_once, request.now)


def _id(text: str) -> str:
    try:
        return str(parse_job_id(text))
    except ValueError:
        raise InvalidArgument(f"id must be the UUID of a migration, not {quote(text)}") from None


def _name(job: JobRecord | None, pool: Pool | None) -> str:
    return job.name or str(JobId(job.job_id)) if job is not None else pool[1] if pool else ""


# -- to the wire -----------------------------------------------------------------------------------------------------


def _amounts(of: Resources) -> pb.Amounts:
    return pb.Amounts(cpu=of.cpu_milli / 1000, memory_mib=of.memory_mib, disk_mib=of.disk_mib, gpu=of.gpu_milli / 1000)


def _plan(name: str, spec: MigrationSpec, load: MigrationLoad, target: MigrationTarget) -> pb.Plan:
    return pb.Plan(
        instance_count=load.instance_count,
        service_count=load.service_count,
        batch_pod_count=load.batch_pod_count,
        leaves=load.leaves,
        needed=_amounts(load.needed),
        free=_amounts(target.free),
        text=plan_text(name, spec, load, target),
    )


def _wire(one: Migration) -> pb.Migration:
    found = pb.Migration(
        id=one.migration_id,
        job_id="" if one.is_pool else one.object_id,
        pool_path=one.name if one.is_pool else "",
        name=one.name,
        target=one.spec.target,
        state=one.state,
        batch_size=one.spec.batch_size,
        services_at_once=one.spec.services_at_once,
        now=one.spec.evicts_batch,
        created_time=rfc3339(one.created_ns),
        updated_time=rfc3339(one.updated_ns),
        completed_time=rfc3339(one.completed_ns),
    )
    if (progress := one.progress) is not None:
        for service in progress.services:
            found.services.add(
                job_id=service.job_id,
                name=service.name,
                state=service.state,
                moved_count=service.moved_count,
                left_count=service.left_count,
                waiting_for=service.waiting_for,
            )
        found.done_count, found.service_count = progress.done_count, progress.service_count
        found.moved_count, found.left_count = progress.moved_count, progress.left_count
        found.batch_left_count, found.waiting_for = progress.batch_left_count, progress.waiting_for
    return found
