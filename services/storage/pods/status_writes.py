"""Writes of reported pod statuses, many in one transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import sqlalchemy as sa

from peloton.api.convert import JOB_TYPE_NUMBERS, POD_STATE_NUMBERS
from peloton.lifecycle.avoidance import RunEnd, run_end
from peloton.lifecycle.backoff import Backoff
from peloton.lifecycle.pod import Applied, Orphan, apply_status, is_eviction
from peloton.lifecycle.pod_machine import Event, next_pod
from peloton.lifecycle.pod_terms import LAUNCH_REASON
from peloton.lifecycle.retry import after_end, may_retry
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.job import JobRecord, JobType
from peloton.model.pod import Cause, PodRecord, PodShape, PodState, PodStatus
from services.storage.admission.snapshot import STATUS_SEQ
from services.storage.codec import job_record, pod_record
from services.storage.engine import key_table, key_values, lock_jobs, take_numbers
from services.storage.jobs.configs import facts_of
from services.storage.jobs.wakes import note_wakes
from services.storage.pods.containers import write_containers
from services.storage.pods.writes import write_reported
from services.storage.prepared import Prepared, id_from_driver
from services.storage.tables import JOB, POD, STATUS_LOG
from services.storage.volumes.rows import forget_unmade, note_made
from services.telemetry.metrics import counter

_RETRIES = counter("peloton.pod.retries")

Retry = tuple[PodId, PodShape, Hostname]
"""Failing run, shape of its pod, and host of the run."""


@dataclass(frozen=True, slots=True)
class StatusOutcome:
    """Result of a batch of statuses.

    ``orphans`` have to be killed on their hosts; ``ended`` runs are in the status log, and ``ends`` describes how each
    ended.
    """

    changed_jobs: list[JobId] = field(default_factory=list)
    orphans: list[PodId] = field(default_factory=list)
    ended: list[PodId] = field(default_factory=list)
    ends: list[RunEnd] = field(default_factory=list, compare=False)


def apply_statuses(
    conn: sa.Connection,
    statuses: Sequence[PodStatus],
    cluster: str,
    batch_backoff: Backoff,
    now_ns: int,
    no_other_host: Collection[PodId] = (),
) -> StatusOutcome:
    jobs = {row.job_id: job_record(row) for row in lock_jobs(conn, [s.pod_id.job_id for s in statuses])}
    pods = _read_pods(conn, statuses)
    final = _find_final_evictions(conn, jobs, pods, statuses)
    outcome = StatusOutcome()
    rounds: list[dict[tuple[str, int], PodRecord]] = []
    depth: dict[tuple[str, int], int] = {}
    running: list[PodId] = []
    moved: set[JobId] = set()
    for status in statuses:
        key = (status.pod_id.job_id, status.pod_id.instance_id)
        job, is_final, returns = jobs.get(status.pod_id.job_id), key in final, status.pod_id in no_other_host
        after = decide(
            job,
            pods.get(key),
            status,
            cluster,
            outcome=outcome,
            batch_backoff=batch_backoff,
            is_final=is_final,
            has_other_host=not returns,
        )
        if after is None:
            continue
        if not status.waits or after.state is not pods[key].state or pods[key].reason == LAUNCH_REASON:
            moved.add(after.job_id)  # the launch is counted with the first wait of a run; later waits change nothing
        pods[key] = after
        if after.state is PodState.RUNNING and job is not None and job.type is JobType.SERVICE:
            running.append(after.pod_id)
        # Each of several changes of one pod is written with its event: one round per change.
        at = depth.get(key, 0)
        depth[key] = at + 1
        if at == len(rounds):
            rounds.append({})
        rounds[at][key] = after
    services = {job_id for job_id, job in jobs.items() if job.type is JobType.SERVICE}
    for changes in rounds:
        write_reported(conn, list(changes.values()), services)
    write_containers(conn, statuses, pods)
    _log_ended(conn, outcome, pods)
    if never_sent := [status.pod_id for status in statuses if status.cause is Cause.RESOURCES_GONE]:
        forget_unmade(conn, never_sent)
    if running:
        note_made(conn, running, now_ns)
    outcome.changed_jobs.extend(sorted(moved))
    note_wakes(conn, outcome.changed_jobs, now_ns)
    return outcome


def read_retries(conn: sa.Connection, failed: Sequence[PodStatus]) -> list[Retry]:
    pods = _read_pods(conn, failed)
    retrying: dict[JobId, list[PodRecord]] = {}
    for status in failed:
        pod = pods.get((status.pod_id.job_id, status.pod_id.instance_id))
        if pod is not None and pod.pod_id == status.pod_id and may_retry(pod, status.cause):
            retrying.setdefault(pod.job_id, []).append(pod)
    batch = sa.select(JOB.c.job_id).where(JOB.c.job_id.in_(retrying), JOB.c.type == JOB_TYPE_NUMBERS[JobType.BATCH])
    found: list[Retry] = []
    for job_id in list(conn.execute(batch).scalars()) if retrying else ():
        mine = retrying[job_id]
        facts = facts_of(conn, job_id, {pod.instance_id: pod.config_version for pod in mine})
        found += [(pod.pod_id, facts[pod.instance_id].shape, Hostname(pod.host)) for pod in mine]
    return found


def _read_pods(conn: sa.Connection, statuses: Iterable[PodStatus]) -> dict[tuple[str, int], PodRecord]:
    dialect = conn.dialect.name
    keys = key_values(dialect, sorted({(s.pod_id.job_id, s.pod_id.instance_id) for s in statuses}))
    pods = [pod_record((id_from_driver(row[0]), *row[1:])) for row in _select_pods(dialect).fetch(conn, keys)]
    return {(pod.job_id, pod.instance_id): pod for pod in pods}


@cache
def _select_pods(dialect: str) -> Prepared:
    keys = key_table(dialect)
    same = sa.and_(POD.c.job_id == keys.c.job_id, POD.c.instance_id == keys.c.instance_id)
    return Prepared(sa.select(POD).select_from(keys.join(POD, same)), dialect)


def _find_final_evictions(
    conn: sa.Connection,
    jobs: Mapping[str, JobRecord],
    pods: Mapping[tuple[str, int], PodRecord],
    statuses: Iterable[PodStatus],
) -> set[tuple[str, int]]:
    """Return evicted pods that must not run again: the ones with killOnPreempt, or with a gang member that has it."""
    evicted = {(s.pod_id.job_id, s.pod_id.instance_id) for s in statuses if is_eviction(s)}
    by_config: dict[tuple[JobId, int], list[int]] = {}
    for job_id, instance in sorted(evicted & pods.keys()):
        if job_id in jobs:
            by_config.setdefault((job_id, pods[job_id, instance].config_version), []).append(instance)
    found: set[tuple[str, int]] = set()
    for (job_id, version), instances in by_config.items():
        gang = range(jobs[job_id].gang_size)
        facts = facts_of(conn, job_id, dict.fromkeys({*instances, *gang}, version))
        kills = {instance for instance, own in facts.items() if own.kill_on_preempt}
        if not kills.isdisjoint(gang):
            kills |= {*gang}
        found |= {(job_id, instance) for instance in kills.intersection(instances)}
    return found


def decide(
    job: JobRecord | None,
    pod: PodRecord | None,
    status: PodStatus,
    cluster: str,
    outcome: StatusOutcome,
    batch_backoff: Backoff,
    is_final: bool,
    has_other_host: bool = True,
) -> PodRecord | None:
    job_type = job.type if job else JobType.BATCH
    decision = apply_status(pod if job else None, status, job_type, cluster, kill_on_preempt=is_final)
    if isinstance(decision, Orphan):
        outcome.orphans.append(status.pod_id)
    if not isinstance(decision, Applied):
        return None
    if not decision.ended:
        return decision.pod
    outcome.ended.append(status.pod_id)
    outcome.ends.append(run_end(decision.pod, status.cause, job_type))
    ending = after_end(
        decision.pod,
        job_type,
        cause=status.cause,
        launch_lost=decision.launch_lost,
        batch_backoff=batch_backoff,
        has_other_host=has_other_host,
    )
    if ending.is_rest:
        return decision.pod
    next_run, due_ns = ending.next_run, ending.due_ns
    _RETRIES.add(1)
    again = next_pod(decision.pod, Event.RUN_AGAIN, status.time_ns, next_run=next_run, due_ns=due_ns)
    assert again is not None, f"{status.pod_id} is to rest, and to run again: {ending}"
    return again


def _log_ended(conn: sa.Connection, outcome: StatusOutcome, pods: dict[tuple[str, int], PodRecord]) -> None:
    if not outcome.ended:
        return
    first = take_numbers(conn, STATUS_SEQ, len(outcome.ended))
    rows = [
        [
            seq,
            pod.job_id,
            pod.instance_id,
            pod.run_id,
            POD_STATE_NUMBERS[pods[pod.job_id, pod.instance_id].state],
        ]
        for seq, pod in enumerate(outcome.ended, first)
    ]
    _insert_ended(conn.dialect.name).execute(conn, rows)


@cache
def _insert_ended(dialect: str) -> Prepared:
    return Prepared(STATUS_LOG.insert(), dialect, ["seq", "job_id", "instance_id", "run_id", "state"])
