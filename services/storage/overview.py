"""Counts over all jobs and pods for overviews of the installation.

The queries are expensive for large installations: callers should cache the results.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any

import sqlalchemy as sa

from peloton.api.convert import JOB_STATE_NUMBERS, JOB_STATES, JOB_TYPES, POD_STATES
from peloton.errors import NotFound, Reason
from peloton.lifecycle.host_pools import workload_of
from peloton.lifecycle.problems import NAMED_MAX
from peloton.model.host_pool import Workload
from peloton.model.ids import Hostname, JobId, PodId, RespoolId
from peloton.model.job import JobState, JobType
from peloton.model.maintenance import HostMaintenance
from peloton.model.pod import PodState
from peloton.model.resources import Resources
from peloton.model.update import UpdateRecord, UpdateState
from peloton.model.volume import VolumeRecord
from services.storage.engine import Repository, reading
from services.storage.hosts.maintenance import draining
from services.storage.jobs.configs import facts_of
from services.storage.jobs.names import job_names
from services.storage.jobs.rows import read_job
from services.storage.pods.scope import KILLING, ON_HOST_NUMBERS
from services.storage.pods.sql import GOAL_ENDED, RUN_SUPERSEDED
from services.storage.tables import FINISHED_STATES, IS_ACTIVE, JOB, LEASE, POD, UPDATE, VOLUME
from services.storage.updates.rows import read_update
from services.storage.updates.stalls import with_failed_runs
from services.storage.volumes.rows import WAITED_FOR, volume_record, volume_there

UPDATES_READ_MAX = 1_000
"""Number of the newest failed or stuck updates read."""
FAILED_STATES = (UpdateState.FAILED.value, UpdateState.ROLLING_BACKWARD.value, UpdateState.ROLLED_BACK.value)
_DELETED = JOB_STATE_NUMBERS[JobState.DELETED]


@dataclass(frozen=True, slots=True)
class Counts:
    """Number of existing jobs by state, and of pods of unfinished jobs by state."""

    jobs: Mapping[JobState, int] = field(default_factory=dict)
    pods: Mapping[PodState, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeaseRow:
    role: str
    address: str  # empty: the leader does not serve yet
    expires_s: float  # unix seconds


@dataclass(frozen=True, slots=True)
class HostPodRow:
    """Pod that is recorded on a host."""

    pod_id: PodId
    job_name: str
    job_type: JobType
    respool_id: RespoolId
    priority: int
    state: PodState
    started_ns: int
    asked: Resources
    is_revocable: bool
    is_preemptible: bool
    workload: Workload
    has_volume: bool
    is_leaving: bool


@dataclass(frozen=True, slots=True)
class AskingPod:
    """Pod on a host, with its requested resources."""

    pod_id: PodId
    hostname: Hostname
    cluster: str
    asked: Resources


class Overview(Repository):
    @reading
    def counts(self, conn: sa.Connection) -> Counts:
        """Count jobs and pods in one pass over the jobs; unfinished jobs with equal counts are grouped."""
        living = sa.select(JOB.c.state, JOB.c.pod_counts, sa.func.count().label("count")).where(IS_ACTIVE)
        living = living.where(JOB.c.state != _DELETED).group_by(JOB.c.state, JOB.c.pod_counts)
        ended = sa.select(JOB.c.state, sa.func.count()).where(JOB.c.state.in_(FINISHED_STATES)).group_by(JOB.c.state)
        jobs: Counter[JobState] = Counter()
        pods: Counter[PodState] = Counter()
        for state, pod_counts, count in conn.execute(living):
            jobs[JOB_STATES[state]] += count
            for number, pod_count in json.loads(pod_counts or "{}").items():
                pods[POD_STATES[int(number)]] += pod_count * count
        for state, count in conn.execute(ended):
            jobs[JOB_STATES[state]] += count
        return Counts(dict(jobs), {state: count for state, count in pods.items() if count})

    def leases(self) -> list[LeaseRow]:
        """Return the leases of all roles that were ever led and not released, by role."""
        query = (
            sa.select(LEASE.c.role, LEASE.c.address, LEASE.c.expires_s)
            .where(LEASE.c.owner != "")
            .order_by(LEASE.c.role)
        )
        return self._db.read(lambda conn: [LeaseRow(*row) for row in conn.execute(query)])

    @reading
    def list_lost_volumes(self, conn: sa.Connection) -> tuple[list[VolumeRecord], int]:
        """Return the first NAMED_MAX lost volumes that pods wait for, and the total number."""
        first = (
            sa.select(VOLUME)
            .where(WAITED_FOR)
            .order_by(VOLUME.c.changed_ns.desc(), VOLUME.c.volume_id)
            .limit(NAMED_MAX)
        )
        number = sa.select(sa.func.count()).select_from(VOLUME).where(WAITED_FOR)
        return [volume_record(row) for row in conn.execute(first)], conn.execute(number).scalar_one()

    @reading
    def stuck_updates(self, conn: sa.Connection) -> tuple[list[tuple[str, UpdateRecord]], int]:
        """Return the newest NAMED_MAX stuck updates, with the names of their services, and the total number.

        An update is stuck if it failed, rolled back, is paused after failures, awaits a pulse or has stalled, unless a
        newer update followed.
        """
        failed = UPDATE.c.state.in_(FAILED_STATES)
        paused = sa.and_(UPDATE.c.state == UpdateState.PAUSED.value, UPDATE.c.failed != "")
        waits = sa.and_(sa.or_(UPDATE.c.awaits_pulse, UPDATE.c.stalled_ns > 0), UPDATE.c.completed_ns == 0)
        query = (
            sa.select(UPDATE.c.update_id, JOB.c.name, JOB.c.update_id.label("last_update_id"))
            .join(JOB, JOB.c.job_id == UPDATE.c.job_id)
            .where(sa.or_(failed, paused, waits), IS_ACTIVE)
            .order_by(UPDATE.c.updated_ns.desc())
            .limit(UPDATES_READ_MAX)
        )
        rows = [row for row in conn.execute(query) if row.update_id == row.last_update_id]
        named = [(row.name, read_update(conn, row.update_id)) for row in rows[:NAMED_MAX]]
        updates = with_failed_runs(conn, [update for _, update in named if update is not None])
        return list(zip((name for name, update in named if update is not None), updates, strict=True)), len(rows)

    def job_names(self, job_ids: Iterable[str]) -> dict[str, str]:
        """Return id -> name of the existing jobs."""
        wanted = set(job_ids)
        return self._db.read(lambda conn: job_names(conn, wanted)) if wanted else {}

    def drains(self, cluster: str) -> list[HostMaintenance]:
        """Return draining hosts with their progress, the longest drain first."""
        return self._db.read(lambda conn: draining(conn, cluster))

    def pods_by_host(self, cluster: str) -> dict[str, int]:
        """Count the pods recorded on each host of the cluster; scans the pods of unfinished jobs."""
        query = (
            sa.select(POD.c.host, sa.func.count())
            .join(JOB, JOB.c.job_id == POD.c.job_id)
            .where(IS_ACTIVE, POD.c.state.in_(ON_HOST_NUMBERS), POD.c.cluster == cluster)
            .group_by(POD.c.host)
        )
        return self._db.read(lambda conn: {row[0]: row[1] for row in conn.execute(query)})

    @reading
    def pods_on(self, conn: sa.Connection, hostname: str, limit: int) -> list[HostPodRow]:
        """Return the pods recorded on a host, by job and instance.

        The query scans the pods of unfinished jobs, since no index covers the host of a pod.
        """
        leaves = sa.or_(GOAL_ENDED, RUN_SUPERSEDED, POD.c.state == KILLING).label("leaves")
        has_volume = volume_there(POD.c.job_id, POD.c.instance_id, POD.c.host).label("has_volume")
        of_job = (JOB.c.name, JOB.c.type, JOB.c.respool_id, JOB.c.priority)
        columns = (POD.c.job_id, POD.c.instance_id, POD.c.run_id, POD.c.state, POD.c.started_ns, POD.c.config_version)
        query = (
            sa.select(*columns, *of_job, leaves, has_volume)
            .join(JOB, JOB.c.job_id == POD.c.job_id)
            .where(IS_ACTIVE, POD.c.state.in_(ON_HOST_NUMBERS), POD.c.host == hostname)
            .order_by(POD.c.job_id, POD.c.instance_id)
            .limit(limit)
        )
        rows: list[Any] = list(conn.execute(query))
        groups = groupby(rows, key=attrgetter("job_id"))
        return [one for job_id, rows in groups for one in _on_host(conn, job_id, list(rows))]

    def asking(self, job_id: JobId, instances: Collection[int], limit: int) -> list[AskingPod]:
        """Return pods of a job recorded on hosts, by instance: the given ones, or the first ``limit``. Raises
        NotFound."""
        columns = (POD.c.instance_id, POD.c.run_id, POD.c.host, POD.c.cluster, POD.c.config_version)
        query = sa.select(*columns).where(POD.c.job_id == job_id, POD.c.state.in_(ON_HOST_NUMBERS))
        if instances:
            query = query.where(POD.c.instance_id.in_(instances))
        query = query.order_by(POD.c.instance_id).limit(limit)

        def work(conn: sa.Connection) -> list[AskingPod]:
            job = read_job(conn, job_id)
            if job is None or job.state is JobState.DELETED:
                raise NotFound(f"job {job_id} not found").because(Reason.JOB_NOT_FOUND, job=job_id)
            rows = list(conn.execute(query))
            facts = facts_of(conn, job_id, {row.instance_id: row.config_version for row in rows})
            return [
                AskingPod(
                    PodId(job_id, row.instance_id, row.run_id),
                    Hostname(row.host),
                    row.cluster,
                    facts[row.instance_id].shape.resources,
                )
                for row in rows
            ]

        return self._db.read(work)


def _on_host(conn: sa.Connection, job_id: str, rows: Sequence[sa.Row[Any]]) -> list[HostPodRow]:
    facts = facts_of(conn, job_id, {row.instance_id: row.config_version for row in rows})
    found = []
    for row in rows:
        shape, job_type = facts[row.instance_id].shape, JOB_TYPES[row.type]
        found.append(
            HostPodRow(
                PodId(JobId(job_id), row.instance_id, row.run_id),
                row.name,
                job_type,
                RespoolId(row.respool_id),
                priority=row.priority,
                state=POD_STATES[row.state],
                started_ns=row.started_ns,
                asked=shape.resources,
                is_revocable=shape.revocable,
                is_preemptible=shape.preemptible,
                workload=workload_of(job_type, shape),
                has_volume=bool(row.has_volume),
                is_leaving=bool(row.leaves),
            )
        )
    return found
