"""Big jobs whose pods are being launched, a batch after each settle: their pods are counted once in a while, and in
between it is enough that more of them wait for a host than the next batch takes.

Counting reads all pods of the job, so that one count for each batch would cost a time that grows with the square of the
pods. An answer without a count changes nothing, leaves the job's wake-up as it is, and lets the workflow place a batch,
after which it settles again: what has happened meanwhile is found by the next count.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace

import sqlalchemy as sa

from peloton.model.job import JobProgress, JobRecord, JobState
from peloton.model.times import NS_PER_S
from services.storage.engine import Database
from services.storage.pods.sql import select_launchable
from services.storage.tables import JOB, POD

BIG_PODS = 5_000
"""Size from which on a job is not counted for each batch."""
COUNTED_FOR_MIN_NS, COUNTED_FOR_MAX_NS = 1 * NS_PER_S, 10 * NS_PER_S
"""Bounds of the time after a count in which no further one is necessary."""
COUNTED_FOR_POD_NS = NS_PER_S // 50_000
"""Time that each pod adds: a count takes 0.5 µs of CPU a pod, so counting takes 2.5 % of a core at most."""
JOBS_MAX = 1_000
"""Jobs whose last count is kept."""

_WAITING = select_launchable(POD.c.instance_id).subquery("waiting")
_READING = sa.select(
    sa.select(JOB.c.revision).where(JOB.c.job_id == sa.bindparam("of_job")).scalar_subquery(),
    sa.func.count(),
    sa.func.min(_WAITING.c.instance_id),
).select_from(_WAITING)


@dataclass(slots=True)
class _Counted:
    """Last count of a job. ``first``: instance before which no pod outside a gang waited for a host at some time; those
    that do by now are read when too few others wait."""

    at_ns: int
    first: int
    start: int  # of the instances outside a gang
    progress: JobProgress


class LaunchingJobs:
    """Last counts of big jobs of which nothing remains but launches. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: OrderedDict[str, _Counted] = OrderedDict()

    def note(self, job: JobRecord, progress: JobProgress, now_ns: int) -> None:
        """Keep the result of a count, or forget the job if another step is due."""
        launches = JobProgress(JobState.RUNNING, progress.counts, ready_count=progress.ready_count)
        is_kept = job.instance_count >= BIG_PODS and progress.ready_count > 0 and progress == launches
        if not is_kept and job.job_id not in self._counted:
            return
        start = job.gang_size if job.gang_size > 1 else 0
        with self._lock:
            before = self._counted.pop(job.job_id, None)
            if is_kept:
                self._counted[job.job_id] = _Counted(now_ns, before.first if before else start, start, progress)
            if len(self._counted) > JOBS_MAX:
                self._counted.popitem(last=False)

    def find(self, db: Database, job_id: str, now_ns: int, batch_max: int) -> JobProgress | None:
        """Return the last counts if they are recent, the job has not changed, and more pods wait for a host than one
        batch takes; otherwise None, and the pods have to be counted."""
        with self._lock:
            counted = self._counted.get(job_id)
        if counted is None or not 0 <= now_ns - counted.at_ns < count_interval_ns(
            sum(counted.progress.counts.values())
        ):
            return None
        named = {"of_job": job_id, "first": counted.first, "at_most": batch_max + 1}
        revision, waiting, first = db.read(lambda conn: conn.execute(_READING, named).one())
        counted.first = counted.start if waiting <= batch_max else first
        if revision != counted.progress.revision or waiting <= batch_max:
            return None
        return replace(counted.progress, ready_count=waiting)


def count_interval_ns(pods: int) -> int:
    """Return the time after a count of so many pods in which no further one is necessary."""
    return min(max(pods * COUNTED_FOR_POD_NS, COUNTED_FOR_MIN_NS), COUNTED_FOR_MAX_NS)
