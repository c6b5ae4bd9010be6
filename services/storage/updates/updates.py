"""Updates as people ask for them: created, paused, resumed, aborted, read. ``rolling.py`` carries them out."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from peloton.api import convert
from peloton.api.compare import same_job
from peloton.api.v0.job import job_pb2
from peloton.errors import Aborted, AlreadyExists, InvalidArgument, NotFound
from peloton.lifecycle import rollout
from peloton.lifecycle.job_machine import JobEvent, next_job
from peloton.model.ids import EntityVersion, JobId
from peloton.model.job import JOB_TERMINAL, JobRecord, JobState, JobType
from peloton.model.update import (
    ROLLING,
    UpdateAct,
    UpdateEvent,
    UpdateKey,
    UpdateRecord,
    UpdateSpec,
    UpdateState,
    UpdateType,
)
from services.storage.codec import job_record, sla_values
from services.storage.engine import lock_job
from services.storage.jobs.configs import (
    OverrideRows,
    copy_config,
    insert_config,
    read_config_with_instances,
    search_text,
)
from services.storage.jobs.jobs import insert_alone
from services.storage.repository import Store
from services.storage.tables import JOB, JOB_NAME, UPDATE, UPDATE_EVENT
from services.storage.updates import instances
from services.storage.updates.rows import (
    forget_oldest,
    insert_update,
    knows_request,
    read_update,
    update_record,
    write_steered,
    write_update,
    write_versions,
)
from services.storage.watch_log import note_job

UNEXPECTED_VERSION = "unexpected entity version"

NO_KEY = UpdateKey()

Version = EntityVersion | int | None
"""What the client has seen: all of it (v1alpha), the version of the configuration (v0), or nothing."""


class Updates(Store):
    def create_service(
        self,
        job: JobRecord,
        config: job_pb2.JobConfig,
        spec: bytes,
        update: UpdateSpec,
        opaque: str,
        now_ns: int,
        key: UpdateKey = NO_KEY,
    ) -> JobRecord:
        """A new service whose first update adds all of its instances; the one that is there when it was created with
        this key. Raises AlreadyExists."""
        record = UpdateRecord(
            update_id=str(uuid.uuid4()),
            job_id=job.job_id,
            type=UpdateType.UPDATE,
            spec=update,
            state=_first_state(update),
            config_version=1,
            prev_config_version=0,
            added=frozenset(range(job.instance_count)),
            opaque_data=opaque,
            key=key,
            created_ns=now_ns,
            updated_ns=now_ns,
        )
        job = replace(
            job,
            state=JobState.PENDING,
            pod_counts={},
            update_id=record.update_id,
            created_ns=job.created_ns or now_ns,
            updated_ns=job.updated_ns or now_ns,
        )
        rows = OverrideRows(job.job_id, 1, config).of(config.instanceConfig)

        def work(conn: sa.Connection) -> None:
            insert_alone(conn, job, config)
            insert_config(conn, job.job_id, 1, config, rows, now_ns, spec=spec)
            take_name(conn, job.job_id, job.name, now_ns)
            insert_update(conn, record)
            note_job(conn, job)

        try:
            self.db.write(work)
        except IntegrityError as error:
            there = self.db.read(lambda conn: _created_with(conn, job.job_id, key))
            if there is None:
                raise AlreadyExists(f"job {job.job_id} already exists") from error
            return there
        return job

    def create_update(
        self,
        job_id: JobId,
        version: Version,
        type: UpdateType,
        spec: UpdateSpec,
        config: job_pb2.JobConfig | None,
        job_spec: bytes,
        instances: Iterable[int],
        opaque: str,
        now_ns: int,
        key: UpdateKey = NO_KEY,
    ) -> JobRecord:
        """Let a service become ``config``, or its ``instances`` (empty: all) restart, start or stop, with ``config``
        None. Returns the job with its new versions; asking for what is under way already changes nothing, nor does
        asking again with the ``key`` of an update that is kept, whatever ``version`` is.

        Raises NotFound, Aborted for a version that is not the current one, AlreadyExists for a key that belongs to
        another request, InvalidArgument.
        """
        return self.db.write(
            partial(
                _create,
                job_id=job_id,
                version=version,
                wanted=_Wanted(type, spec, config, job_spec, tuple(instances), opaque, key),
                now_ns=now_ns,
            )
        )

    def steer_update(
        self, job_id: JobId, version: EntityVersion | None, act: UpdateAct, opaque: str | None, now_ns: int
    ) -> JobRecord:
        """Pause, resume or abort the job's update; one that has ended stays as it is. The workflow version rises in
        any case. ``opaque`` None keeps what is there. Raises NotFound, Aborted."""
        steer = {UpdateAct.PAUSE: rollout.paused, UpdateAct.RESUME: rollout.resumed, UpdateAct.ABORT: rollout.aborted}

        def work(conn: sa.Connection) -> JobRecord:
            job = locked(conn, job_id, version)
            update = read_update(conn, job.update_id)
            if update is None:
                raise NotFound("no workflow found")
            after = steer[act](update)
            after = replace(after, opaque_data=update.opaque_data if opaque is None else opaque)
            return write_steered(conn, job, update, after, now_ns)

        return self.db.write(work)

    def update(self, update_id: str) -> UpdateRecord | None:
        return self.db.read(lambda conn: read_update(conn, update_id))

    def updates(self, job_id: JobId, limit: int = 0) -> list[UpdateRecord]:
        """Those that are kept, newest first; 0 = all."""
        query = sa.select(UPDATE).where(UPDATE.c.job_id == job_id).order_by(UPDATE.c.created_ns.desc())
        query = query.order_by(UPDATE.c.config_version.desc())
        query = query.limit(limit) if limit else query
        return self.db.read(lambda conn: [update_record(row) for row in conn.execute(query)])

    def update_events(self, update_id: str, instance_id: int | None = None, limit: int = 0) -> list[UpdateEvent]:
        """Of the update, or of one instance in it; newest first, without repetitions; 0 = all."""

        def work(conn: sa.Connection) -> list[UpdateEvent]:
            update = read_update(conn, update_id)
            if update is None:
                return []
            query = sa.select(UPDATE_EVENT).where(UPDATE_EVENT.c.update_id == update_id)
            found: list[UpdateEvent] = []
            for row in conn.execute(query.order_by(UPDATE_EVENT.c.seq)):
                mine = instances.from_text(row.instances)
                if (not mine) if instance_id is None else (instance_id in mine):
                    event = UpdateEvent(row.time_ns, update.type, UpdateState(row.state))
                    if not found or found[-1].state is not event.state:
                        found.append(event)
            found.reverse()
            return found[:limit] if limit else found

        return self.db.read(work)

    def instance_events(self, update_id: str, limit: int = 0) -> dict[int, list[UpdateEvent]]:
        """``update_events`` of every instance in the update, in one pass."""

        def work(conn: sa.Connection) -> dict[int, list[UpdateEvent]]:
            update = read_update(conn, update_id)
            found: dict[int, list[UpdateEvent]] = {}
            if update is None:
                return found
            query = sa.select(UPDATE_EVENT).where(UPDATE_EVENT.c.update_id == update_id)
            for row in conn.execute(query.order_by(UPDATE_EVENT.c.seq)):
                event = UpdateEvent(row.time_ns, update.type, UpdateState(row.state))
                for instance in instances.from_text(row.instances):
                    mine = found.setdefault(instance, [])
                    if not mine or mine[-1].state is not event.state:
                        mine.append(event)
            return {i: found[i][::-1][:limit] if limit else found[i][::-1] for i in sorted(found)}

        return self.db.read(work)

    def difference(self, job_id: JobId, version: EntityVersion | None, config: job_pb2.JobConfig) -> rollout.Difference:
        """What an update to ``config`` would touch. Raises as ``create_update`` does."""

        def work(conn: sa.Connection) -> rollout.Difference:
            job = locked(conn, job_id, version)
            _check_immutable(job, config)
            pods = instances.pods_of(conn, job_id)
            differs = instances.changed(conn, job_id, pods, config)
            return rollout.difference(pods, config.instanceCount, job.config_version + 1, differs)

        return self.db.write(work)  # it holds the job, as a real update would

    def job_ids_by_name(self, name: str) -> list[JobId]:
        """Services that had this name, the newest first."""
        query = sa.select(JOB_NAME.c.job_id).where(JOB_NAME.c.name == name).order_by(JOB_NAME.c.updated_ns.desc())
        return self.db.read(lambda conn: [JobId(job_id) for job_id in conn.execute(query).scalars()])


@dataclass(frozen=True)
class _Wanted:
    type: UpdateType
    spec: UpdateSpec
    config: job_pb2.JobConfig | None
    job_spec: bytes
    named: Sequence[int]
    opaque: str
    key: UpdateKey


def _created_with(conn: sa.Connection, job_id: JobId, key: UpdateKey) -> JobRecord | None:
    row = conn.execute(sa.select(JOB).where(JOB.c.job_id == job_id)).one_or_none()
    return job_record(row) if row is not None and knows_request(conn, job_id, key) else None


def locked(conn: sa.Connection, job_id: JobId, version: Version) -> JobRecord:
    """The job, held until the commit, if it is what the client has seen."""
    row = lock_job(conn, job_id)
    job = None if row is None else job_record(row)
    if job is None or job.state is JobState.DELETED:
        raise NotFound(f"job {job_id} not found")
    _check_version(job, version)
    return job


def _check_version(job: JobRecord, version: Version) -> None:
    if isinstance(version, EntityVersion) and version != job.entity_version:
        raise Aborted(UNEXPECTED_VERSION)
    if isinstance(version, int) and version != job.config_version:
        raise InvalidArgument("invalid job configuration version")


def _create(conn: sa.Connection, job_id: JobId, version: Version, wanted: _Wanted, now_ns: int) -> JobRecord:
    job = locked(conn, job_id, None)
    if knows_request(conn, job_id, wanted.key):
        return job
    _check_version(job, version)
    if job.goal is JobState.DELETED:
        raise InvalidArgument("job is going to be deleted")
    if job.type is not JobType.SERVICE:
        raise InvalidArgument(f"{wanted.type} supported only for service jobs")
    if wanted.config is not None:
        _check_immutable(job, wanted.config)
    if wanted.spec.start_pods and job.goal in JOB_TERMINAL and job.state not in JOB_TERMINAL:
        raise Aborted("job is being terminated, cannot update with start_pods set now")
    current = read_update(conn, job.update_id)
    if current is not None and _is_under_way(conn, job, current, wanted):
        return _with_opaque(conn, job, current, wanted.opaque, now_ns)
    if current is not None and current.is_active:
        if not (current.type is wanted.type is UpdateType.UPDATE):
            raise InvalidArgument(f"workflow {wanted.type} cannot overwrite workflow {current.type}")
        write_update(conn, current, rollout.aborted(current), now_ns)
    return _store_new(conn, job, wanted, now_ns)


def _check_immutable(job: JobRecord, config: job_pb2.JobConfig) -> None:
    if convert.JOB_TYPES.get(config.type) is not job.type:
        raise InvalidArgument("job type is immutable")
    if config.respoolID.value != job.respool_id:
        raise InvalidArgument("resource pool identifier is immutable")


def _is_under_way(conn: sa.Connection, job: JobRecord, current: UpdateRecord, wanted: _Wanted) -> bool:
    if wanted.key.text:
        return False  # a name that nobody knows yet is that of another update
    if current.state not in ROLLING or current.type is not wanted.type or current.spec != wanted.spec:
        return False
    if wanted.config is None:
        return current.updated == rollout.clipped(wanted.named, job.instance_count)
    stored = read_config_with_instances(conn, job.job_id, job.config_version)
    return stored is not None and same_job(stored, wanted.config)


def _with_opaque(conn: sa.Connection, job: JobRecord, current: UpdateRecord, opaque: str, now_ns: int) -> JobRecord:
    if current.opaque_data == opaque:
        return job
    write_update(conn, current, replace(current, opaque_data=opaque), now_ns)
    job = replace(job, workflow_version=job.workflow_version + 1)
    write_versions(conn, job, now_ns)
    return job


def _store_new(conn: sa.Connection, job: JobRecord, wanted: _Wanted, now_ns: int) -> JobRecord:
    version = job.config_version + 1
    config = wanted.config
    if config is None:
        copy_config(conn, job.job_id, job.config_version, version, now_ns)
        found = rollout.Difference(updated=rollout.clipped(wanted.named, job.instance_count))
    else:
        pods = instances.pods_of(conn, job.job_id)
        differs = instances.changed(conn, job.job_id, pods, config)
        found = rollout.difference(pods, config.instanceCount, version, differs)
        rows = OverrideRows(job.job_id, version, config).of(config.instanceConfig)
        insert_config(conn, job.job_id, version, config, rows, now_ns, spec=wanted.job_spec)
    update = UpdateRecord(
        update_id=str(uuid.uuid4()),
        job_id=job.job_id,
        type=wanted.type,
        spec=wanted.spec,
        state=_first_state(wanted.spec),
        config_version=version,
        prev_config_version=job.config_version,
        added=found.added,
        updated=found.updated,
        removed=found.removed,
        opaque_data=wanted.opaque,
        key=wanted.key,
        created_ns=now_ns,
        updated_ns=now_ns,
    )
    insert_update(conn, update)
    if wanted.type in (UpdateType.RESTART, UpdateType.START) or wanted.spec.start_pods:
        job = next_job(job, JobEvent.START_BY_UPDATE, now_ns)
    job = replace(job, update_id=update.update_id, config_version=version, workflow_version=job.workflow_version + 1)
    write_versions(conn, job, now_ns)
    if config is not None:
        adopt_config(conn, job, config, now_ns)
    forget_oldest(conn, job.job_id, version)
    return job


def adopt_config(conn: sa.Connection, job: JobRecord, config: job_pb2.JobConfig, now_ns: int) -> None:
    """What the job's own row says of its configuration."""
    labels = [(label.key, label.value) for label in config.labels]
    values = {
        "name": config.name,
        "owning_team": config.owningTeam,
        "instance_count": config.instanceCount,
        "labels": json.dumps(labels, ensure_ascii=False),
        "search": search_text(config),
        **sla_values(convert.sla_spec(config)),
    }
    conn.execute(sa.update(JOB).where(JOB.c.job_id == job.job_id).values(**values))
    if config.name != job.name:
        take_name(conn, job.job_id, config.name, now_ns)


def take_name(conn: sa.Connection, job_id: str, name: str, now_ns: int) -> None:
    """The job may have had it before, and so may a deleted one of its id."""
    conn.execute(sa.delete(JOB_NAME).where(JOB_NAME.c.name == name, JOB_NAME.c.job_id == job_id))
    conn.execute(JOB_NAME.insert().values(name=name, job_id=job_id, updated_ns=now_ns))


def _first_state(spec: UpdateSpec) -> UpdateState:
    return UpdateState.PAUSED if spec.start_paused else UpdateState.INITIALIZED
