"""Pods of a service for tests."""

from __future__ import annotations

from typing import Any

from peloton.model.ids import JobId
from peloton.model.pod import HealthState, PodRecord, PodState

JOB = JobId("91b1b8e5-2ba8-11e7-bc23-0242ac11000d")


def service_pod(instance: int, version: int = 1, **changes: Any) -> PodRecord:
    """RUNNING, with the goal to run, on its version; ``changes`` are fields of PodRecord."""
    fields: dict[str, Any] = {
        "state": PodState.RUNNING,
        "goal": PodState.RUNNING,
        "run_id": 1,
        "desired_run_id": 1,
        "config_version": version,
        "desired_config_version": version,
        "health": HealthState.DISABLED,
        **changes,
    }
    return PodRecord(job_id=JOB, instance_id=instance, **fields)
