"""Settings of updates as specs of creations and updates, and back."""

from __future__ import annotations

from typing import Any

from peloton.api.v1alpha.job.stateless.stateless_pb2 import CreateSpec, UpdateSpec
from services.aurorabridge.method import Refusal
from services.aurorabridge.thrift import api


def create_spec(settings: Any) -> CreateSpec:
    """Return the spec of a creation. Raises Refusal."""
    return CreateSpec(
        batch_size=_count(settings, "updateGroupSize"),
        max_instance_retries=_count(settings, "maxPerInstanceFailures") + 1,
        max_tolerable_instance_failures=_count(settings, "maxFailedInstances") + 1,
        start_paused=needs_pulse(settings),
    )


def update_spec(settings: Any, in_place: bool) -> UpdateSpec:
    """Return the spec of an update, which starts stopped pods, too. Raises Refusal."""
    created = create_spec(settings)
    return UpdateSpec(
        batch_size=created.batch_size,
        max_instance_retries=created.max_instance_retries,
        max_tolerable_instance_failures=created.max_tolerable_instance_failures,
        start_paused=created.start_paused,
        rollback_on_failure=bool(settings is not None and settings.rollbackOnFailure),
        start_pods=True,
        in_place=in_place,
    )


def needs_pulse(settings: Any) -> bool:
    """Return whether the update waits for its first pulse."""
    return settings is not None and (settings.blockIfNoPulsesAfterMs or 0) > 0


def job_update_settings(spec: UpdateSpec) -> Any:
    """Return the settings that an update was started with, as far as its spec keeps them."""
    return api.JobUpdateSettings(
        updateGroupSize=spec.batch_size,
        maxPerInstanceFailures=max(spec.max_instance_retries - 1, 0),
        maxFailedInstances=max(spec.max_tolerable_instance_failures - 1, 0),
        rollbackOnFailure=spec.rollback_on_failure,
    )


def _count(settings: Any, name: str) -> int:
    count = getattr(settings, name, None) or 0
    if count < 0:
        raise Refusal(f"{name} is {count}, want at least 0")
    return int(count)
