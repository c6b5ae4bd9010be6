"""The longest time a pod may run."""

from __future__ import annotations

from peloton.model.job import JobRecord, JobType

DEADLINE_REASON = "Deadline exceeded"
_NS = 1_000_000_000


def cutoff_ns(job: JobRecord, now_ns: int) -> int | None:
    """Pods RUNNING since before this moment have exceeded their time; None when there is no deadline."""
    if job.type is not JobType.BATCH or job.sla.max_running_time_s <= 0:
        return None
    return now_ns - job.sla.max_running_time_s * _NS


def wait_s(job: JobRecord, oldest_start_ns: int, now_ns: int) -> float:
    """Seconds until the pod that runs since ``oldest_start_ns`` has exceeded its time; 0 when there is none."""
    cutoff = cutoff_ns(job, now_ns)
    if cutoff is None or oldest_start_ns == 0:
        return 0.0
    return max((oldest_start_ns - cutoff + 1) / _NS, 0.001)
