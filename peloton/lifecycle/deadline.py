"""Maximum running time of pods."""

from __future__ import annotations

from peloton.model.job import JobRecord, JobType
from peloton.model.times import NS_PER_S

DEADLINE_REASON = "Deadline exceeded"


def cutoff_ns(job: JobRecord, now_ns: int) -> int | None:
    """Return the time before which a RUNNING pod must have started to have exceeded its deadline; None without a
    deadline."""
    if job.type is not JobType.BATCH or job.sla.max_running_time_s <= 0:
        return None
    return now_ns - job.sla.max_running_time_s * NS_PER_S


def wait_s(job: JobRecord, oldest_start_ns: int, now_ns: int) -> float:
    """Return the seconds until the pod started at ``oldest_start_ns`` exceeds its deadline; 0 without one."""
    cutoff = cutoff_ns(job, now_ns)
    if cutoff is None or oldest_start_ns == 0:
        return 0.0
    return max((oldest_start_ns - cutoff + 1) / NS_PER_S, 0.001)
