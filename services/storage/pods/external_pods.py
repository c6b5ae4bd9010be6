"""External pods: the assignment of a cluster's pods to instances, and the jobs of their owners."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import sqlalchemy as sa

from peloton.api import convert
from peloton.api.convert import JOB_TYPE_NUMBERS, POD_STATES
from peloton.api.v0.job import job_pb2
from peloton.lifecycle.external import allocate
from peloton.lifecycle.job_machine import JobEvent, next_job
from peloton.lifecycle.pod_machine import Event
from peloton.model.external import Slot
from peloton.model.ids import JobId, PodId, RespoolId
from peloton.model.job import JOB_TERMINAL, JobRecord, JobState, JobType
from peloton.model.pod import TERMINAL, PodState
from peloton.model.ranges import as_ranges
from services.storage.admission.evictions import EVICTION_MESSAGE
from services.storage.codec import job_record
from services.storage.engine import Repository, reading
from services.storage.jobs.configs import insert_config, read_config
from services.storage.jobs.rows import hold_job, insert_alone
from services.storage.jobs.steering import steer_pods, touch_job, write_steering
from services.storage.mapper import strip_nul
from services.storage.pods.creation import insert_batch_pods
from services.storage.pods.scope import Chosen, within
from services.storage.pods.writes import fire
from services.storage.tables import EXTERNAL_POD, IS_ACTIVE, JOB, POD, POD_EVENT

TAKEN_MAX = 1_000
"""Maximum number of pods of one owner adopted in one transaction."""
VERSIONS_COMPARED = 20
"""Number of newest versions compared; a pod whose configuration equals none of them creates a version."""
JOB_CLUSTER_LABEL = "peloton.io/cluster"
"""Label of an external job that names the cluster of its pods."""
_KEYS_PER_STATEMENT = 500
_EXTERNAL = JOB_TYPE_NUMBERS[JobType.EXTERNAL]


@dataclass(frozen=True, slots=True)
class Arrival:
    """Equal external pods of one owner. ``pods``: uid -> namespace and name, in the order of their places. ``whole``:
    uids of all pods that are to come together, which wait for the ends of earlier ones; empty for others."""

    job_id: JobId
    config: job_pb2.JobConfig
    pods: Mapping[str, str]
    whole: Collection[str] = ()


class ExternalPods(Repository):
    # -- reading

    @reading
    def slots(self, conn: sa.Connection, cluster: str) -> list[Slot]:
        """Return all instances assigned to pods of the cluster."""
        same = sa.and_(POD.c.job_id == EXTERNAL_POD.c.job_id, POD.c.instance_id == EXTERNAL_POD.c.instance_id)
        own = (EXTERNAL_POD.c.uid, EXTERNAL_POD.c.job_id, EXTERNAL_POD.c.instance_id, EXTERNAL_POD.c.note)
        query = sa.select(*own, POD.c.state, POD.c.next_run).select_from(EXTERNAL_POD.outerjoin(POD, same))
        query = query.where(EXTERNAL_POD.c.cluster == cluster).order_by(EXTERNAL_POD.c.uid)
        return [
            Slot(uid, JobId(job_id), instance, None if state is None else POD_STATES[state], bool(next_run), note)
            for uid, job_id, instance, note, state, next_run in conn.execute(query)
        ]

    def uids_of(self, instances: Collection[tuple[JobId, int]]) -> dict[tuple[JobId, int], str]:
        """Return the uids of the pods of these instances, without instances that no external pod has."""
        keys, wanted = sorted(instances), set(instances)
        columns = (EXTERNAL_POD.c.job_id, EXTERNAL_POD.c.instance_id, EXTERNAL_POD.c.uid)

        def work(conn: sa.Connection) -> dict[tuple[JobId, int], str]:
            found: dict[tuple[JobId, int], str] = {}
            for start in range(0, len(keys), _KEYS_PER_STATEMENT):
                some = keys[start : start + _KEYS_PER_STATEMENT]
                jobs, numbers = {job_id for job_id, _ in some}, {instance for _, instance in some}
                # A join with the keys would scan all pods of the job for each key.
                of_these = EXTERNAL_POD.c.job_id.in_(jobs), EXTERNAL_POD.c.instance_id.in_(numbers)
                rows = conn.execute(sa.select(*columns).where(*of_these))
                found |= {(JobId(job_id), instance): uid for job_id, instance, uid in rows}
            return {key: uid for key, uid in found.items() if key in wanted}

        return self._db.read(work) if keys else {}

    def causes_of(self, runs: Collection[PodId]) -> dict[PodId, str]:
        """Return why these runs have been evicted, by their events, as the kill writes another message; without runs
        that end otherwise."""
        wanted = sorted(runs)

        def work(conn: sa.Connection) -> dict[PodId, str]:
            found: dict[PodId, str] = {}
            for start in range(0, len(wanted), _KEYS_PER_STATEMENT):
                some = wanted[start : start + _KEYS_PER_STATEMENT]
                event = POD_EVENT.c
                of_these = (
                    event.job_id.in_({run.job_id for run in some}),
                    event.instance_id.in_({run.instance_id for run in some}),
                    event.message.startswith(EVICTION_MESSAGE),
                )
                query = sa.select(event.job_id, event.instance_id, event.run_id, event.message).where(*of_these)
                for job_id, instance, run_id, message in conn.execute(query.order_by(event.revision)):
                    found[PodId(JobId(job_id), instance, run_id)] = message.removeprefix(EVICTION_MESSAGE)
            return {run: found[run] for run in wanted if run in found}

        return self._db.read(work) if wanted else {}

    @reading
    def idle_jobs(self, conn: sa.Connection, cluster: str) -> list[JobId]:
        """Return unfinished external jobs of the cluster without any assigned pods."""
        used = sa.select(EXTERNAL_POD.c.job_id).where(EXTERNAL_POD.c.job_id == JOB.c.job_id).exists()
        query = sa.select(JOB).where(JOB.c.type == _EXTERNAL, IS_ACTIVE, ~used)
        jobs = [job_record(row) for row in conn.execute(query.order_by(JOB.c.job_id))]
        return [job.job_id for job in jobs if (JOB_CLUSTER_LABEL, cluster) in job.labels]

    def notes(self, job_id: JobId, limit: int) -> list[tuple[str, str]]:
        """Return ``(namespace and name, reason)`` of pods whose cluster reports why they make no progress."""
        mine = sa.and_(EXTERNAL_POD.c.job_id == job_id, EXTERNAL_POD.c.note != "")
        query = sa.select(EXTERNAL_POD.c.name, EXTERNAL_POD.c.note).where(mine).order_by(EXTERNAL_POD.c.name)
        return self._db.read(lambda conn: [(row.name, row.note) for row in conn.execute(query.limit(limit))])

    # -- writing

    def adopt(self, cluster: str, arrival: Arrival, now_ns: int) -> None:
        """Assign an instance of the owner's job to each pod, and create the job if it is missing.

        Pods with an active instance keep it. A job that is being deleted does not change.
        """
        work = partial(_adopt, cluster=cluster, arrival=arrival, now_ns=now_ns)
        self._db.write(work)

    def stop(self, job_id: JobId, instance_ids: Sequence[int], message: str, now_ns: int) -> None:
        """Remove instances from the queue whose pods no longer wait, and with a queued gang member its whole gang.

        A gang that is on hosts already is not extended.
        """
        self._db.write(partial(_stop, job_id=job_id, instance_ids=instance_ids, message=message, now_ns=now_ns))

    def forget(self, cluster: str, uids: Sequence[str]) -> None:
        for start in range(0, len(uids), _KEYS_PER_STATEMENT):
            some = uids[start : start + _KEYS_PER_STATEMENT]
            mine = sa.and_(EXTERNAL_POD.c.cluster == cluster, EXTERNAL_POD.c.uid.in_(some))
            self._db.write(lambda conn, mine=mine: conn.execute(sa.delete(EXTERNAL_POD).where(mine)))  # type: ignore[misc]

    def note(self, cluster: str, notes: Mapping[str, str]) -> None:
        """Record, by uid, why pods make no progress; an empty text clears the record."""
        statement = sa.update(EXTERNAL_POD).where(
            EXTERNAL_POD.c.cluster == cluster, EXTERNAL_POD.c.uid == sa.bindparam("of")
        )
        rows = [{"of": uid, "said": strip_nul(text)} for uid, text in sorted(notes.items())]
        if rows:
            self._db.write(lambda conn: conn.execute(statement.values(note=sa.bindparam("said")), rows))


# -- within a transaction ----------------------------------------------------------------------------------------------


def _adopt(conn: sa.Connection, cluster: str, arrival: Arrival, now_ns: int) -> None:
    job = _get_or_create_job(conn, arrival, now_ns)
    if job is None:
        return
    job_id = job.job_id
    pods = {
        row.instance_id: (POD_STATES[row.state], bool(row.next_run))
        for row in conn.execute(sa.select(POD.c.instance_id, POD.c.state, POD.c.next_run).where(POD.c.job_id == job_id))
    }
    wanted = _find_unassigned(conn, cluster, arrival, pods)
    if not wanted or (arrival.whole and _has_earlier(conn, arrival, pods)):
        return
    if all(map(_is_at_rest, pods.values())):
        job = _adopt_terms(conn, job, arrival.config)
    version = _find_or_create_version(conn, job, arrival.config, now_ns)
    allocated = allocate(len(wanted), pods, job.gang_size)
    old, fresh = [i for i in allocated if i in pods], [i for i in allocated if i not in pods]
    if old:
        message = f"{len(wanted)} pods came" if len(wanted) > 1 else "A pod came"
        fire(conn, Chosen(job_id, sorted(old)), Event.ADOPT, now_ns, version=version, message=message)
    for start, count in as_ranges(sorted(fresh)):
        insert_batch_pods(conn, replace(job, config_version=version), start, count, now_ns)
    values = {"instance_count": max(job.instance_count, *(i + 1 for i in allocated)), "updated_ns": now_ns}
    conn.execute(sa.update(JOB).where(JOB.c.job_id == job_id).values(**values))
    touch_job(conn, job_id, now_ns)
    _write_slots(conn, cluster, job_id, dict(zip(wanted, allocated, strict=True)), arrival.pods)


def _get_or_create_job(conn: sa.Connection, arrival: Arrival, now_ns: int) -> JobRecord | None:
    """Return the owner's job, locked: created, or restarted if it had ended; None if it is being deleted."""
    job = hold_job(conn, arrival.job_id)
    if job is None:
        fresh = convert.new_job_record(arrival.job_id, arrival.config, now_ns)
        insert_alone(conn, replace(fresh, instance_count=0, pod_counts={}), arrival.config)
        insert_config(conn, arrival.job_id, 1, arrival.config, [], now_ns)
        return hold_job(conn, arrival.job_id)
    if job.state is JobState.DELETED or job.goal is JobState.DELETED or job.type is not JobType.EXTERNAL:
        return None
    if job.state in JOB_TERMINAL or job.goal is JobState.KILLED:
        job = next_job(job, JobEvent.START_SERVICE, now_ns)
        write_steering(conn, job)
    return job


def _find_unassigned(
    conn: sa.Connection, cluster: str, arrival: Arrival, pods: Mapping[int, tuple[PodState, bool]]
) -> list[str]:
    mine = sa.and_(EXTERNAL_POD.c.cluster == cluster, EXTERNAL_POD.c.job_id == arrival.job_id)
    rows = conn.execute(sa.select(EXTERNAL_POD.c.uid, EXTERNAL_POD.c.instance_id).where(mine))
    held = {row.uid for row in rows if not _is_at_rest(pods.get(row.instance_id))}
    return [uid for uid in arrival.pods if uid not in held]


def _has_earlier(conn: sa.Connection, arrival: Arrival, pods: Mapping[int, tuple[PodState, bool]]) -> bool:
    """Return whether instances of others than the pods that come together have not ended."""
    rows = conn.execute(
        sa.select(EXTERNAL_POD.c.uid, EXTERNAL_POD.c.instance_id).where(EXTERNAL_POD.c.job_id == arrival.job_id)
    )
    together = {row.instance_id for row in rows if row.uid in arrival.whole}
    return any(not _is_at_rest(pod) for instance, pod in pods.items() if instance not in together)


def _is_at_rest(pod: tuple[PodState, bool] | None) -> bool:
    return pod is None or (pod[0] in TERMINAL and not pod[1])


def _adopt_terms(conn: sa.Connection, job: JobRecord, config: job_pb2.JobConfig) -> JobRecord:
    """Copy pool, priority and gang from the first pod to the job; later pods cannot change them while it has pods."""
    sla, pool = convert.sla_spec(config), RespoolId(config.respoolID.value)
    values = {**asdict(sla), "respool_id": pool}
    conn.execute(sa.update(JOB).where(JOB.c.job_id == job.job_id).values(**values))
    return replace(job, sla=sla, respool_id=pool)


def _find_or_create_version(conn: sa.Connection, job: JobRecord, config: job_pb2.JobConfig, now_ns: int) -> int:
    """Return the job's version with this configuration; creates one if none of the newest versions has it."""
    for version in range(job.config_version, max(job.config_version - VERSIONS_COMPARED, 0), -1):
        if read_config(conn, job.job_id, version) == config:
            return version
    version = job.config_version + 1
    insert_config(conn, job.job_id, version, config, [], now_ns)
    conn.execute(sa.update(JOB).where(JOB.c.job_id == job.job_id).values(config_version=version))
    return version


def _write_slots(
    conn: sa.Connection, cluster: str, job_id: str, instances: Mapping[str, int], names: Mapping[str, str]
) -> None:
    """Assign instances to pods, and delete former assignments of both."""
    chosen = list(instances.values())
    for start in range(0, len(chosen), _KEYS_PER_STATEMENT):
        some = EXTERNAL_POD.c.instance_id.in_(chosen[start : start + _KEYS_PER_STATEMENT])
        conn.execute(sa.delete(EXTERNAL_POD).where(EXTERNAL_POD.c.job_id == job_id, some))
    uids = list(instances)
    for start in range(0, len(uids), _KEYS_PER_STATEMENT):
        mine = sa.and_(
            EXTERNAL_POD.c.cluster == cluster, EXTERNAL_POD.c.uid.in_(uids[start : start + _KEYS_PER_STATEMENT])
        )
        conn.execute(sa.delete(EXTERNAL_POD).where(mine))
    rows = [
        {"cluster": cluster, "uid": uid, "name": names[uid], "job_id": job_id, "instance_id": i, "note": ""}
        for uid, i in instances.items()
    ]
    conn.execute(EXTERNAL_POD.insert(), rows)


def _stop(conn: sa.Connection, job_id: JobId, instance_ids: Sequence[int], message: str, now_ns: int) -> None:
    job = hold_job(conn, job_id)
    if job is None:
        return
    ending = set(instance_ids)
    query = sa.select(POD.c.instance_id).where(
        within(conn, Chosen(job_id, sorted({*ending, *range(job.gang_size)}))), POD.c.state.in_(_QUEUED)
    )
    queued = set(conn.execute(query).scalars())
    members = set(range(job.gang_size)) if job.gang_size > 1 else set()
    if members & queued & ending:
        ending |= members & queued
    for span in as_ranges(sorted(ending)):
        steer_pods(conn, job, span, PodState.KILLED, now_ns, message)


_QUEUED = [number for number, state in POD_STATES.items() if state in (PodState.PENDING, PodState.READY)]
