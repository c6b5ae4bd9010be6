"""Retention: which records are kept for how long, which are deleted next, and the pace of the deletion.

Every table belongs to a class, which has either an age, from a setting, or a bound that its writers keep. Ended jobs
lose their records in three steps: the events of their pods, then their pods, then the job itself. Each step walks
through the ended jobs in the order of their ends, and its cursor says how far it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peloton.model.ids import JobId
from peloton.model.job import JOB_TERMINAL, JobState, JobType
from peloton.model.times import NS_PER_S

DAY_NS = 86_400 * NS_PER_S
POD_EVENTS, RUNS, PODS, JOBS = "pod-events", "runs", "pods", "jobs"
HOST_EVENTS, PRUNED_JOBS, SERVICE_NAMES = "host-events", "pruned-jobs", "service-names"
HISTORY, WATCH_LOG, AUDIT = "history", "watch-log", "audit"


@dataclass(frozen=True, slots=True)
class RecordClass:
    """Class of records. ``rule`` says what is kept, and from when its age counts if it has one."""

    name: str
    tables: tuple[str, ...]
    rule: str
    is_archived: bool = False


CLASSES = (
    RecordClass(
        POD_EVENTS,
        ("pod_event", "pod_containers"),
        "after the end of their job",
        is_archived=True,
    ),
    RecordClass(
        RUNS,
        (),
        "events of earlier runs of jobs that have not ended, and at most 100 runs of a pod",
    ),
    RecordClass(PODS, ("pod",), "after the end of their batch job", is_archived=True),
    RecordClass(
        JOBS,
        (
            *("job", "job_config", "job_config_override", "job_label", "job_secret", "job_wake", "daemon_host"),
            *("cluster_binding", "external_pod"),
        ),
        "after their end; services and daemons until they are deleted",
        is_archived=True,
    ),
    RecordClass(
        "updates",
        ("job_update", "job_update_event", "disruption"),
        "10 updates with 10,000 events each and 100 disruptions of a service, and as long as their job",
    ),
    RecordClass(PRUNED_JOBS, ("pruned_job", "archive_object"), "after the deletion"),
    RecordClass(SERVICE_NAMES, ("job_name",), "names of deleted services, after their last use"),
    RecordClass(
        HOST_EVENTS,
        ("host_event",),
        "200 of a host, 1,000,000 of all, none older",
        is_archived=True,
    ),
    RecordClass(
        HISTORY,
        ("history_sample", "history_page"),
        "hours; minutes of time series are kept for 25 hours",
    ),
    RecordClass(WATCH_LOG, ("watch_log",), "the last changes, 1,000,000 by default"),
    RecordClass(AUDIT, ("audit", "audit_anchor"), "entries of the audit log, and the hash of the last deleted one"),
    RecordClass("status-log", ("status_log",), "until the resource manager has read them, and a minute more"),
    RecordClass(
        "migrations", ("migration", "migration_service", "migration_pool"), "1,000 that have ended, and all others"
    ),
    RecordClass("rebalances", ("rebalance", "rebalance_move"), "1,000 moves of a cluster"),
    RecordClass("host-pool-moves", ("host_pool_move",), "100, and all of the last hour"),
    RecordClass("sandboxes", (), "on hosts: by the agent of Mesos, or the log retention of Kubernetes"),
    RecordClass("volumes", ("volume",), "until their host has destroyed them"),
    RecordClass("requests", ("watch_cancel", "job_stream", "activity_report"), "a minute, five minutes, and an hour"),
    RecordClass("ended-sessions", ("ended_session",), "until they would have expired, 1,000 of a user"),
    RecordClass("creators", ("creator",), "one row for each user who has created jobs while a file of quotas was used"),
    RecordClass("processes", ("process",), "two minutes after their last report"),
    RecordClass(
        "configuration",
        (
            *("respool", "host", "host_pool", "host_in_pool", "cluster_host", "framework", "lockdown", "counter"),
            *("lease", "retention_progress"),
        ),
        "one row for each pool, host, role and class",
    ),
)


def cutoff_ns(days: int, now_ns: int) -> int:
    """Return the time before which records of this age are deleted; 0: none are, which 0 days stand for."""
    return max(now_ns - days * DAY_NS, 0) if days else 0


# -- ended jobs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EndedJob:
    """Job at its place in the order of ends. ``is_referred``: an external pod or a volume without data refers to it,
    or an update of it is under way."""

    job_id: JobId
    type: JobType
    state: JobState
    ended_ns: int
    instance_count: int
    is_referred: bool = False


@dataclass(frozen=True, order=True, slots=True)
class Cursor:
    """Place up to which a step is done: all jobs before ``(ended_ns, job_id)``, and the instances below ``instance`` of
    this one."""

    ended_ns: int = 0
    job_id: str = ""
    instance: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """Range of a job's instances whose records are deleted in one transaction."""

    job: EndedJob
    start: int
    count: int

    @property
    def is_last(self) -> bool:
        return self.start + self.count >= self.job.instance_count


@dataclass(frozen=True, slots=True)
class Batch:
    """Records to delete next; ``after`` is the cursor once they are. ``kept``: jobs that are passed over, and why."""

    parts: tuple[Part, ...]
    after: Cursor
    kept: tuple[tuple[JobId, str], ...] = ()

    @property
    def pod_count(self) -> int:
        return sum(part.count for part in self.parts)


def reason_to_keep(job: EndedJob, step: str) -> str:
    """Return why records of this job are kept in this step, whatever their age; empty if they are to be deleted."""
    if not job.type.runs_to_end:
        return f"a {job.type.lower()} job can be started again"
    if job.state not in JOB_TERMINAL or not job.ended_ns:
        return f"it is {job.state}"
    if job.state is JobState.DELETED:
        return "it is being deleted"
    if step != POD_EVENTS and job.is_referred:
        return "an update, a volume or an external pod refers to it"
    if step == PODS and job.type is JobType.EXTERNAL:
        return "its instances may be taken by further pods"
    return ""


def plan_batch(step: str, found: Sequence[EndedJob], after: Cursor, before_ns: int, pods_max: int) -> Batch:
    """Plan the next transaction of a step: at most ``pods_max`` pods of the jobs that follow the cursor, in the order
    of their ends, all of which were on one day.

    The step of jobs deletes a job whole: one with more pods is a batch of its own.
    """
    parts: list[Part] = []
    kept: list[tuple[JobId, str]] = []
    free = pods_max
    for job in found:
        if job.ended_ns >= before_ns or free <= 0:
            break
        if parts and job.ended_ns // DAY_NS != parts[0].job.ended_ns // DAY_NS:
            break
        start = after.instance if (after.ended_ns, after.job_id) == (job.ended_ns, job.job_id) else 0
        if why := reason_to_keep(job, step):
            kept.append((job.job_id, why))
        else:
            left = max(job.instance_count - start, 1)  # a job without instances is work, too
            if step == JOBS and parts and left > free:
                break
            count = left if step == JOBS else min(left, free)
            parts.append(Part(job, start, count))
            free -= count
            if count < left:
                after = Cursor(job.ended_ns, job.job_id, start + count)
                break
        after = Cursor(job.ended_ns, job.job_id, max(job.instance_count, 1))
    return Batch(tuple(parts), after, tuple(kept))


# -- pace --------------------------------------------------------------------------------------------------------------

ROWS_MIN, ROWS_MAX = 50, 2_000
"""Bounds of the pods or rows that one transaction deletes."""
TARGET_S = 0.05
"""Time of a transaction at which the size of the next one stays."""
SLOW_S = 1.0
"""Time of the smallest transaction, or of a read of one row, at which the database counts as slow."""
PAUSE_PER_S = 4.0
"""Pause after a transaction as a multiple of its time: deletion takes at most a fifth of a writer's time."""
PAUSE_MIN_S, PAUSE_MAX_S = 0.01, 10.0


def next_size(rows: int, took_s: float) -> int:
    """Return the size of the next transaction: the one that would have taken TARGET_S, at most doubled or halved."""
    wanted = rows * TARGET_S / max(took_s, 1e-6)
    return int(min(max(wanted, rows / 2, ROWS_MIN), rows * 2, ROWS_MAX))


def pause_s(took_s: float) -> float:
    return min(max(took_s * PAUSE_PER_S, PAUSE_MIN_S), PAUSE_MAX_S)


def is_slow(rows: int, took_s: float) -> bool:
    """Return whether the database is so slow that the deletion waits for the next round."""
    return took_s >= SLOW_S and rows <= ROWS_MIN
