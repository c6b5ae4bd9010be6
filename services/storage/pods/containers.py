"""Reported state of each container of pods that have several: the newest of the last run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from peloton.model.ids import JobId
from peloton.model.pod import ContainerState, ContainerStatus, PodRecord, PodStatus
from services.storage.tables import POD_CONTAINERS

Containers = tuple[ContainerStatus, ...]


def write_containers(
    conn: sa.Connection, statuses: Sequence[PodStatus], pods: Mapping[tuple[str, int], PodRecord]
) -> None:
    """Store the containers of current runs; ``pods`` is keyed by job and instance."""
    newest = {(status.pod_id.job_id, status.pod_id.instance_id): status for status in statuses if status.containers}
    rows = [
        {
            "job_id": job_id,
            "instance_id": instance_id,
            "run_id": status.pod_id.run_id,
            "containers": _to_text(status.containers),
        }
        for (job_id, instance_id), status in sorted(newest.items())
        if (pod := pods.get((job_id, instance_id))) is not None and pod.run_id == status.pod_id.run_id
    ]
    if rows:
        insert = (sqlite.insert if conn.dialect.name == "sqlite" else postgresql.insert)(POD_CONTAINERS)
        changed = {name: insert.excluded[name] for name in ("run_id", "containers")}
        conn.execute(insert.on_conflict_do_update(index_elements=["job_id", "instance_id"], set_=changed), rows)


def read_containers(conn: sa.Connection, job_id: JobId, start: int, stop: int) -> dict[tuple[int, int], Containers]:
    """Read the containers of instances ``start .. stop-1``, by instance and run."""
    mine = sa.and_(POD_CONTAINERS.c.job_id == job_id, POD_CONTAINERS.c.instance_id.between(start, stop - 1))
    rows = conn.execute(sa.select(POD_CONTAINERS).where(mine))
    return {(row.instance_id, row.run_id): _from_text(row.containers) for row in rows}


def _to_text(containers: Containers) -> str:
    return json.dumps([astuple(container) for container in containers], separators=(",", ":"))


def _from_text(text: str) -> Containers:
    rows = json.loads(text)
    return tuple(ContainerStatus(name, ContainerState(state), *rest) for name, state, *rest in rows)
