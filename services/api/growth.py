"""Changes allowed in v0 ``JobManager.Update``: a batch job can only grow."""

from __future__ import annotations

from collections.abc import Mapping

from peloton.api.merge import effective_task_config
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from services.api.faults import Faults

# (name in the message, field), in the order of the messages.
_IMMUTABLE = (
    ("Name", "name"),
    ("Labels", "labels"),
    ("OwningTeam", "owningTeam"),
    ("RespoolID", "respoolID"),
    ("Type", "type"),
    ("LdapGroups", "ldapGroups"),
    ("DefaultConfig", "defaultConfig"),
)


def find_touched(old_count: int, new: job_pb2.JobConfig) -> list[int]:
    """Return the existing instances for which the request contains a config."""
    return sorted(i for i in new.instanceConfig if i < old_count)


def growth_faults(
    old: job_pb2.JobConfig, existing: Mapping[int, task_pb2.TaskConfig], new: job_pb2.JobConfig
) -> Faults:
    """Collect all changes other than added instances.

    ``old`` has no overrides; ``existing`` are the effective configs of the touched instances. ``new`` has its respoolID
    filled in and its retries clamped already.
    """
    faults = Faults()
    for name, field in _IMMUTABLE:
        if getattr(old, field) != getattr(new, field):
            faults.add(0, f"updating {name} not supported")
    if new.instanceCount < old.instanceCount:
        faults.add(1, "new instance count can't be less")
    if any(config != effective_task_config(new, instance) for instance, config in existing.items()):
        faults.add(2, "existing instance config can't be updated")
    return faults
