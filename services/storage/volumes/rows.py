"""Rows of volumes, read and written within a transaction."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import sqlalchemy as sa

from peloton.api.convert import volume_spec
from peloton.api.convert_volume import VOLUME_STATE_NUMBERS
from peloton.api.v0.job import job_pb2
from peloton.errors import InvalidArgument
from peloton.model.ids import JobId, PodId
from peloton.model.job import JobRecord
from peloton.model.pod import ENDING_GOALS, PodRecord, PodState
from peloton.model.volume import RetainedVolume, VolumeRecord, VolumeSpec, VolumeState
from services.storage.mapper import Mapper
from services.storage.pods.scope import ALLOCATED_NUMBERS, READY
from services.storage.tables import POD, VOLUME

JOBS_PER_QUERY = 500
_INITIALIZED, _CREATED, _LOST, _DELETED = (VOLUME_STATE_NUMBERS[state] for state in VolumeState)
WANTED = VOLUME.c.goal != _DELETED
WAITED_FOR = sa.and_(WANTED, sa.or_(VOLUME.c.state == _LOST, VOLUME.c.note != ""))
"""Condition of volumes that pods wait for, because their host is gone or has lost them."""
_ADMITTED_WITHOUT_DISK = {PodState.PENDING, PodState.READY}
"""States of a pod that was queued without the disk of its former volume."""


_VOLUMES = Mapper(VolumeRecord, VOLUME)
volume_record = _VOLUMES.record


def volumes_of(conn: sa.Connection, job_id: str, instances: Iterable[int] | None = None) -> dict[int, VolumeRecord]:
    """Read the volumes of a job, by instance; ``instances`` restricts them."""
    query = sa.select(VOLUME).where(VOLUME.c.job_id == job_id, WANTED)
    found = {row.instance_id: volume_record(row) for row in conn.execute(query)}
    if instances is None:
        return found
    return {instance: found[instance] for instance in instances if instance in found}


def read_retained(conn: sa.Connection) -> list[RetainedVolume]:
    """Read volumes that count against their pools by themselves.

    Left out are volumes included in the admission of their instance's current run, while it holds its resources, and
    volumes given up with their host.
    """
    return [
        RetainedVolume(JobId(job_id), instance, pool, size, bool(wanted))
        for job_id, instance, pool, size, wanted in conn.execute(_select_retained())
    ]


@cache
def _select_retained() -> sa.Select[Any]:
    mine = sa.and_(POD.c.job_id == VOLUME.c.job_id, POD.c.instance_id == VOLUME.c.instance_id)
    run = sa.case((POD.c.state == READY, POD.c.desired_run_id), else_=POD.c.run_id)
    is_held = sa.and_(POD.c.state.in_(ALLOCATED_NUMBERS), run == VOLUME.c.run_id)
    is_given_up = sa.and_(VOLUME.c.goal == _DELETED, VOLUME.c.state == _LOST)
    columns = (VOLUME.c.job_id, VOLUME.c.instance_id, VOLUME.c.respool_id, VOLUME.c.size_mib, WANTED.label("wanted"))
    return (
        sa.select(*columns)
        .select_from(VOLUME.outerjoin(POD, sa.and_(mine, is_held)))
        .where(POD.c.job_id.is_(None), sa.not_(is_given_up))
    )


def volume_count_outside(conn: sa.Connection, job_ids: Sequence[str], cluster: str) -> int:
    """Count volumes of these jobs in other clusters."""
    found = 0
    for start in range(0, len(job_ids), JOBS_PER_QUERY):
        mine = VOLUME.c.job_id.in_(job_ids[start : start + JOBS_PER_QUERY])
        query = (
            sa.select(sa.func.count()).select_from(VOLUME).where(mine, WANTED, VOLUME.c.cluster.not_in([cluster, ""]))
        )
        found += conn.execute(query).scalar_one()
    return found


def volume_there(
    job_id: sa.ColumnElement[str], instance_id: sa.ColumnElement[int], host: sa.ColumnElement[str]
) -> sa.ColumnElement[bool]:
    """Return the condition that the instance has its volume on the host."""
    mine = sa.and_(VOLUME.c.job_id == job_id, VOLUME.c.instance_id == instance_id, VOLUME.c.host == host)
    return sa.exists().where(mine, WANTED)


def take_volumes(
    conn: sa.Connection,
    job: JobRecord,
    runs: Mapping[int, tuple[int, str]],
    wanted: Mapping[int, VolumeSpec],
    cluster: str,
    now_ns: int,
) -> set[int]:
    """Bind or create the ``wanted`` volumes of ``runs``, instance -> (run, host), on the hosts of the launch.

    Returns the instances whose volume is elsewhere, which must not be launched there.
    """
    known = volumes_of(conn, job.job_id)
    elsewhere: set[int] = set()
    new: list[VolumeRecord] = []
    for instance in sorted(wanted.keys() & runs.keys()):
        run, host = runs[instance]
        if (volume := known.get(instance)) is not None:
            if not volume.is_bound:
                mine = sa.update(VOLUME).where(VOLUME.c.volume_id == volume.volume_id)
                conn.execute(mine.values(cluster=cluster, host=host, changed_ns=now_ns))
            elif (volume.cluster, volume.host) != (cluster, host):
                elsewhere.add(instance)
            continue
        spec = wanted[instance]
        new.append(
            VolumeRecord(
                volume_id=str(uuid.uuid4()),
                job_id=job.job_id,
                instance_id=instance,
                run_id=run,
                respool_id=job.respool_id,
                cluster=cluster,
                host=host,
                container_path=spec.container_path,
                size_mib=spec.size_mib,
                state=VolumeState.INITIALIZED,
                created_ns=now_ns,
                changed_ns=now_ns,
            )
        )
    if new:
        conn.execute(VOLUME.insert(), list(map(_VOLUMES.values, new)))
    return elsewhere


def forget_unmade(conn: sa.Connection, pods: Sequence[PodId]) -> None:
    """Delete unmade volumes of runs that certainly never reached their hosts."""
    for pod in pods:
        mine = sa.and_(VOLUME.c.job_id == pod.job_id, VOLUME.c.instance_id == pod.instance_id)
        conn.execute(
            sa.delete(VOLUME).where(mine, VOLUME.c.run_id == pod.run_id, VOLUME.c.state == _INITIALIZED, WANTED)
        )


def note_made(conn: sa.Connection, pods: Sequence[PodId], now_ns: int) -> None:
    """Mark volumes of running pods of services as created."""
    query = sa.select(VOLUME.c.job_id, VOLUME.c.instance_id, VOLUME.c.volume_id).where(
        VOLUME.c.job_id.in_({pod.job_id for pod in pods}), VOLUME.c.state == _INITIALIZED, WANTED
    )
    running = {(pod.job_id, pod.instance_id) for pod in pods}
    made = [row.volume_id for row in conn.execute(query) if (row.job_id, row.instance_id) in running]
    if made:
        mine = sa.update(VOLUME).where(VOLUME.c.volume_id.in_(made))
        conn.execute(mine.values(state=_CREATED, note="", changed_ns=now_ns))


def leave(conn: sa.Connection, volume: VolumeRecord, pod: PodRecord | None, now_ns: int) -> None:
    """Detach a volume from its instance.

    A pod that was queued without the disk of the volume gets a new one, which counts in its place and whose host the
    launch chooses.
    """
    if pod is None or pod.state not in _ADMITTED_WITHOUT_DISK or pod.goal in ENDING_GOALS:
        return
    fresh = replace(
        volume,
        volume_id=str(uuid.uuid4()),
        cluster="",
        host="",
        state=VolumeState.INITIALIZED,
        note="",
        created_ns=now_ns,
        changed_ns=now_ns,
    )
    conn.execute(VOLUME.insert().values(_VOLUMES.values(fresh)))


def reclaim_volumes(conn: sa.Connection, job: JobRecord, config: job_pb2.JobConfig) -> None:
    """Assign the volumes left by a former job to a new job of the same id, and charge its pool for them.

    Raises InvalidArgument unless the job requests them unchanged.
    """
    check_kept(conn, job.job_id, config)
    mine = sa.and_(VOLUME.c.job_id == job.job_id, WANTED, VOLUME.c.respool_id != job.respool_id)
    conn.execute(sa.update(VOLUME).where(mine).values(respool_id=job.respool_id))


def check_kept(conn: sa.Connection, job_id: str, config: job_pb2.JobConfig) -> None:
    """Raise InvalidArgument if the configuration changes the size or path of a volume, whose data cannot be moved."""
    spec = volume_spec(config.defaultConfig)
    for instance, volume in sorted(volumes_of(conn, job_id).items()):
        has = VolumeSpec(volume.container_path, volume.size_mib)
        if instance < config.instanceCount and has != spec:
            asks = f"for {spec.size_mib} MB at {spec.container_path}" if spec else "for none"
            raise InvalidArgument(
                f"volume {volume.volume_id} of instance {instance} has {has.size_mib} MB at {has.container_path}, and "
                f"the configuration asks {asks}: a volume keeps its size and path until it is deleted"
            )
