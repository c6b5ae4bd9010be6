"""The use of an agent's executors, from its statistics."""

from __future__ import annotations

from collections.abc import Sequence

from peloton.model.ids import PodId, parse_job_id
from services.hostmgr.driver import UseSample
from services.hostmgr.mesos.resources import Json

MIB = 2**20


def samples_of(rows: Sequence[Json], framework_id: str) -> list[UseSample]:
    """Executors of all frameworks; those that the agent could not measure are left out."""
    return [
        UseSample(
            f"{row['framework_id']}/{row['executor_id']}",
            _pod_id(row["executor_id"]) if row["framework_id"] == framework_id else None,
            numbers.get("cpus_user_time_secs", 0.0) + numbers.get("cpus_system_time_secs", 0.0),
            numbers["timestamp"],
            int(numbers.get("mem_rss_bytes", 0)) // MIB,
        )
        for row in rows
        if "timestamp" in (numbers := row.get("statistics") or {})
    ]


def _pod_id(executor_id: str) -> PodId | None:
    try:
        pod_id = PodId.parse(executor_id)
        parse_job_id(pod_id.job_id)
    except ValueError:
        return None
    return pod_id
