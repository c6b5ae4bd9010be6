"""Records of jobs as dictionaries for the archive, one for each row. Secrets are not among them.

Times are RFC 3339 and enums their names; each line has the name, pool and owner of its job.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa
from google.protobuf.json_format import MessageToDict

from peloton.api.convert_time import rfc3339
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.lifecycle.retention import JOBS, POD_EVENTS, PODS, Part
from peloton.model.host_event import HostEvent
from peloton.model.ids import ROOT_POOL_ID
from services.storage.codec import job_record, pod_event, pod_record, unpack
from services.storage.pools import read_pools
from services.storage.ranges import CHUNK_PODS
from services.storage.tables import (
    JOB,
    JOB_CONFIG,
    OVERRIDE,
    POD,
    POD_CONTAINERS,
    POD_EVENT,
    UPDATE,
    UPDATE_EVENT,
)

Line = dict[str, Any]
_Make = Callable[[sa.Row[Any]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _Kind:
    """Kind of lines: one for each row of a table."""

    name: str
    table: sa.Table
    make: _Make


def _record(read: Callable[[sa.Row[Any]], Any]) -> _Make:
    return lambda row: asdict(read(row))


def _columns(*without: str) -> _Make:
    return lambda row: {name: value for name, value in row._mapping.items() if name not in without}


def _override(row: sa.Row[Any]) -> Mapping[str, Any]:
    config = MessageToDict(task_pb2.TaskConfig.FromString(unpack(row.config)))
    return {"job_id": row.job_id, "instance_id": row.instance_id, "version": row.version, "config": config}


def _config(row: sa.Row[Any]) -> Mapping[str, Any]:
    config = MessageToDict(job_pb2.JobConfig.FromString(unpack(row.config)))
    return {"job_id": row.job_id, "version": row.version, "created_ns": row.created_ns, "config": config}


def _containers(row: sa.Row[Any]) -> Mapping[str, Any]:
    return {**_columns()(row), "containers": json.loads(row.containers)}


def _event(row: sa.Row[Any]) -> Mapping[str, Any]:
    return {**asdict(pod_event(row)), "revision": row.revision}


EVENT = _Kind("pod_event", POD_EVENT, _event)
BY_INSTANCE = {
    POD_EVENTS: (EVENT, _Kind("pod_containers", POD_CONTAINERS, _containers)),
    PODS: (_Kind("pod", POD, _record(pod_record)),),
}
OF_A_JOB = (_Kind("config", JOB_CONFIG, _config), _Kind("update", UPDATE, _columns()))
LEFT_OVER = (_Kind("instance_config", OVERRIDE, _override), *BY_INSTANCE[PODS], *BY_INSTANCE[POD_EVENTS])
"""Kinds of a job that the earlier steps may have left."""


def lines_of(conn: sa.Connection, step: str, parts: Sequence[Part]) -> Iterator[Line]:
    """Yield the lines of a batch: those of a job before those of its instances, and these in ranges of CHUNK_PODS."""
    ids = [part.job.job_id for part in parts]
    jobs = {row.job_id: row for row in conn.execute(sa.select(JOB).where(JOB.c.job_id.in_(ids)).order_by(JOB.c.job_id))}
    names = _names(conn, jobs)
    if step != JOBS:
        for kind in BY_INSTANCE[step]:
            for part in parts:
                yield from _rows(conn, kind, [part.job.job_id], names, (part.start, part.count))
        return
    for job_id, row in jobs.items():
        yield _line("job", asdict(job_record(row)), names[job_id])
    for kind in OF_A_JOB:
        yield from _rows(conn, kind, ids, names)
    updates = sa.select(UPDATE.c.update_id, UPDATE.c.job_id).where(UPDATE.c.job_id.in_(ids))
    for update_id, job_id in conn.execute(updates.order_by(UPDATE.c.update_id)).all():
        events = sa.select(UPDATE_EVENT).where(UPDATE_EVENT.c.update_id == update_id).order_by(UPDATE_EVENT.c.seq)
        for row in conn.execute(events):
            yield _line("update_event", {"job_id": job_id, **row._mapping}, names[job_id])
    for start in range(0, max((part.count for part in parts), default=0), CHUNK_PODS):
        for kind in LEFT_OVER:
            yield from _rows(conn, kind, ids, names, (start, CHUNK_PODS))


def lines_of_events(conn: sa.Connection, job_id: str, keys: Sequence[tuple[int, int]]) -> Iterator[Line]:
    """Yield the lines of events of one job, by instance and revision."""
    row = conn.execute(sa.select(JOB).where(JOB.c.job_id == job_id)).one_or_none()
    names = _names(conn, {job_id: row} if row is not None else {})
    key = sa.tuple_(POD_EVENT.c.instance_id, POD_EVENT.c.revision)
    query = sa.select(POD_EVENT).where(POD_EVENT.c.job_id == job_id, key.in_(keys))
    for event in conn.execute(query.order_by(POD_EVENT.c.instance_id, POD_EVENT.c.revision)):
        yield _line(EVENT.name, _event(event), names.get(job_id, {}))


def lines_of_hosts(events: Iterable[HostEvent]) -> Iterator[Line]:
    for event in events:
        values = asdict(event)
        yield _line("host_event", {"event": values.pop("kind"), **values}, {})


def _rows(
    conn: sa.Connection,
    kind: _Kind,
    job_ids: Sequence[str],
    names: Mapping[str, Line],
    instances: tuple[int, int] | None = None,
) -> Iterator[Line]:
    query = sa.select(kind.table).where(kind.table.c.job_id.in_(job_ids)).order_by(*kind.table.primary_key.columns)
    if instances is not None:
        start, count = instances
        query = query.where(kind.table.c.instance_id.between(start, start + count - 1))
    for row in conn.execute(query):
        yield _line(kind.name, kind.make(row), names.get(row.job_id, {}))


def _line(kind: str, values: Mapping[str, Any], names: Line) -> Line:
    return {"kind": kind, **names, **{_name(key): _value(key, value) for key, value in values.items()}}


def _name(column: str) -> str:
    return {"time_ns": "time", "at_ns": "time"}.get(column, f"{column[:-3]}_time") if column.endswith("_ns") else column


def _value(column: str, value: Any) -> Any:
    return rfc3339(value) or None if column.endswith("_ns") else value


def _names(conn: sa.Connection, jobs: Mapping[str, sa.Row[Any]]) -> dict[str, Line]:
    pools = {pool.respool_id: pool for pool in read_pools(conn)}

    def path_of(pool_id: str) -> str:
        parts: list[str] = []
        while (pool := pools.get(pool_id)) is not None and pool_id != ROOT_POOL_ID:  # type: ignore[call-overload]
            parts.append(pool.name)
            pool_id = pool.parent_id
        return "/" + "/".join(reversed(parts)) if parts else ""

    return {
        job_id: {"job_name": row.name, "pool": path_of(row.respool_id), "owner": row.owning_team}
        for job_id, row in jobs.items()
    }
