"""The longest time a pod may run."""

from __future__ import annotations

from peloton.model.job import JobRecord, JobType
from peloton.model.times import NS_PER_S

DEADLINE_REASON = "Deadline exceeded"


def cutoff_ns(job: JobRecord, now_ns: int) -> int | None:
    """Pods RUNNING since before this moment have exceeded their time; None when there is no deadline."""
    if job.type is not JobType.BATCH or job.sla.max_running_time_s <= 0:
        return None
    return now_ns - job.sla.max_running_time_s * NS_PER_S


def wait_s(job: JobRecord, oldest_start_ns: int, now_ns: int) -> float:
    """Seconds until the pod that runs since ``oldest_start_ns`` has exceeded its time; 0 when there is none."""
    cutoff = cutoff_ns(job, now_ns)
    if cutoff is None or oldest_start_ns == 0:
        return 0.0
    return max((oldest_start_ns - cutoff + 1) / NS_PER_S, 0.001)
