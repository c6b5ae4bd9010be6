"""Tiers of Aurora as the SLA of a job."""

from __future__ import annotations

from typing import Any

from peloton.api.v1alpha.job.stateless.stateless_pb2 import SlaSpec

REVOCABLE, PREEMPTIBLE = "revocable", "preemptible"


def sla_spec(task: Any, instance_count: int) -> SlaSpec:
    """Return the SLA of a job: a tenth of its instances, but at least one, may be unavailable.

    Only pods of the tier ``revocable`` may be preempted, as in the original.
    """
    is_revocable = task.tier == REVOCABLE
    return SlaSpec(
        priority=task.priority or 0,
        preemptible=is_revocable,
        revocable=is_revocable,
        maximum_unavailable_instances=max(instance_count // 10, 1),
    )


def tier_of(sla: SlaSpec) -> str:
    return REVOCABLE if sla.preemptible and sla.revocable else PREEMPTIBLE
