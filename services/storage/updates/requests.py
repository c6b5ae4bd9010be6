"""New updates of services: the changes made in the transaction of a request."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import sqlalchemy as sa

from peloton.api import convert
from peloton.api.compare import same_job
from peloton.api.v0.job import job_pb2
from peloton.errors import Aborted, InvalidArgument, NotFound, Reason
from peloton.lifecycle import rollout
from peloton.lifecycle.job_machine import TO_BE_DELETED, JobEvent, next_job
from peloton.model.ids import JobId
from peloton.model.job import JOB_TERMINAL, JobRecord, JobState
from peloton.model.update import ROLLING, UpdateKey, UpdateRecord, UpdateSpec, UpdateState, UpdateType
from services.storage.jobs.configs import (
    OverrideRows,
    copy_config,
    insert_config,
    read_config_with_instances,
    read_spec,
    search_text,
)
from services.storage.jobs.rows import read_job
from services.storage.jobs.secrets import Sent, carry_secrets
from services.storage.tables import JOB, JOB_NAME
from services.storage.updates import instances
from services.storage.updates.rows import (
    Version,
    check_version,
    forget_oldest,
    hold_version,
    insert_update,
    knows_request,
    read_update,
    write_update,
    write_versions,
)
from services.storage.volumes.rows import check_kept


@dataclass(frozen=True)
class Wanted:
    type: UpdateType
    spec: UpdateSpec
    config: job_pb2.JobConfig | None
    job_spec: bytes
    named: Sequence[int]
    opaque: str
    key: UpdateKey
    secrets: Sent


def find_created(conn: sa.Connection, job_id: JobId, key: UpdateKey) -> JobRecord | None:
    job = read_job(conn, job_id)
    return job if job is not None and knows_request(conn, job_id, key) else None


def create_update(conn: sa.Connection, job_id: JobId, version: Version, wanted: Wanted, now_ns: int) -> JobRecord:
    job = hold_version(conn, job_id, None)
    if knows_request(conn, job_id, wanted.key):
        return job
    check_version(job, version)
    if job.goal is JobState.DELETED:
        raise InvalidArgument(TO_BE_DELETED)
    if not job.type.is_rolled_out:
        raise InvalidArgument(f"{wanted.type} supported only for service jobs")
    if wanted.config is not None:
        check_immutable(job, wanted.config)
        check_kept(conn, job_id, wanted.config)
        carry_secrets(conn, job_id, job.config_version, wanted.config, wanted.secrets)
    if wanted.spec.start_pods and job.goal in JOB_TERMINAL and job.state not in JOB_TERMINAL:
        raise Aborted("job is being terminated, cannot update with start_pods set now")
    current = read_update(conn, job.update_id)
    if current is not None and _is_under_way(conn, job, current, wanted):
        return _set_opaque(conn, job, current, wanted.opaque, now_ns)
    if current is not None and current.is_active:
        if not (current.type is wanted.type is UpdateType.UPDATE):
            raise InvalidArgument(f"workflow {wanted.type} cannot overwrite workflow {current.type}")
        write_update(conn, current, rollout.abort(current), now_ns)
    return _store_new(conn, job, wanted, now_ns)


def roll_back_update(conn: sa.Connection, update_id: str, key: UpdateKey, now_ns: int) -> JobRecord:
    """Roll a service back to the configuration before its latest update, by a new update with the same pace."""
    update = read_update(conn, update_id)
    if update is None:
        raise NotFound("update not found").because(Reason.UPDATE_NOT_FOUND)
    job = hold_version(conn, update.job_id, None)
    if knows_request(conn, job.job_id, key):
        return job
    if update_id != job.update_id:
        refusal = rollout.not_latest_text(update_id, job.job_id, job.update_id)
        raise InvalidArgument(f"{refusal}: only the latest can be rolled back")
    if UpdateState.ROLLING_BACKWARD in (update.state, update.prev_state) or update.state is UpdateState.ROLLED_BACK:
        raise InvalidArgument(f"update {update_id} is rolled back already: what was before it is what failed")
    before = update.prev_config_version
    config = read_config_with_instances(conn, job.job_id, before) if before else None
    if config is None:
        raise NotFound(rollout.nothing_before_text(update_id, job.job_id))
    wanted = Wanted(
        UpdateType.UPDATE,
        UpdateSpec(batch_size=update.spec.batch_size, in_place=update.spec.in_place),
        config,
        read_spec(conn, job.job_id, before),
        named=(),
        opaque=update.opaque_data,
        key=key,
        secrets=Sent.of_config(config),
    )
    return create_update(conn, job.job_id, job.config_version, wanted, now_ns)


def check_immutable(job: JobRecord, config: job_pb2.JobConfig) -> None:
    if convert.JOB_TYPES.get(config.type) is not job.type:
        raise InvalidArgument("job type is immutable")
    if config.respoolID.value != job.respool_id:
        raise InvalidArgument("resource pool identifier is immutable")


def _is_under_way(conn: sa.Connection, job: JobRecord, current: UpdateRecord, wanted: Wanted) -> bool:
    if wanted.key.text:
        return False  # a key that is not stored yet belongs to another update
    if current.state not in ROLLING or current.type is not wanted.type or current.spec != wanted.spec:
        return False
    if wanted.config is None:
        return current.updated == rollout.clip(wanted.named, job.instance_count)
    stored = read_config_with_instances(conn, job.job_id, job.config_version)
    return stored is not None and same_job(stored, wanted.config)


def _set_opaque(conn: sa.Connection, job: JobRecord, current: UpdateRecord, opaque: str, now_ns: int) -> JobRecord:
    if current.opaque_data == opaque:
        return job
    write_update(conn, current, replace(current, opaque_data=opaque), now_ns)
    job = replace(job, workflow_version=job.workflow_version + 1)
    write_versions(conn, job, now_ns)
    return job


def _store_new(conn: sa.Connection, job: JobRecord, wanted: Wanted, now_ns: int) -> JobRecord:
    version = job.config_version + 1
    config = wanted.config
    if config is None:
        copy_config(conn, job.job_id, job.config_version, version, now_ns)
        found = rollout.Difference(updated=rollout.clip(wanted.named, job.instance_count))
    else:
        pods = instances.pods_of(conn, job.job_id)
        differs = instances.find_changed(conn, job.job_id, pods, config)
        found = rollout.difference(pods, convert.count_wanted(job, config), version, differs)
        rows = OverrideRows(job.job_id, version, config).of(config.instanceConfig)
        insert_config(conn, job.job_id, version, config, rows, now_ns, spec=wanted.job_spec)
    update = UpdateRecord(
        update_id=str(uuid.uuid4()),
        job_id=job.job_id,
        type=wanted.type,
        spec=wanted.spec,
        state=first_state(wanted.spec),
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
    """Copy properties of the configuration to the job's row."""
    labels = [(label.key, label.value) for label in config.labels]
    values = {
        "name": config.name,
        "owning_team": config.owningTeam,
        "instance_count": convert.count_wanted(job, config),
        "labels": json.dumps(labels, ensure_ascii=False),
        "search": search_text(config),
        **asdict(convert.sla_spec(config)),
    }
    conn.execute(sa.update(JOB).where(JOB.c.job_id == job.job_id).values(**values))
    if config.name != job.name:
        take_name(conn, job.job_id, config.name, now_ns)


def take_name(conn: sa.Connection, job_id: str, name: str, now_ns: int) -> None:
    """Record the name of a job; replaces a row of an earlier version, or of a deleted job of this id."""
    conn.execute(sa.delete(JOB_NAME).where(JOB_NAME.c.name == name, JOB_NAME.c.job_id == job_id))
    conn.execute(JOB_NAME.insert().values(name=name, job_id=job_id, updated_ns=now_ns))


def first_state(spec: UpdateSpec) -> UpdateState:
    return UpdateState.PAUSED if spec.start_paused else UpdateState.INITIALIZED
