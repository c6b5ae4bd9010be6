"""Isolators named by the agents' flag: without some of them an agent refuses limits, or mounts no secrets."""

from __future__ import annotations

from services.lab.mesos.master.status_updates import StatusUpdates
from services.lab.mesos.model import Task
from services.lab.mesos.resources import Json

MEMORY, SECRETS = "cgroups/mem", "volume/secret"
_LIMITS = {"cpus": ("CPU", "cgroups/cpu"), "mem": ("Memory", MEMORY)}


def has(isolation: str, isolator: str) -> bool:
    names = isolation.split(",")
    return isolator in names or (isolator.startswith("cgroups/") and "cgroups/all" in names)


def refuse_limits(task: Task, info: Json, isolation: str, updates: StatusUpdates) -> bool:
    """Drop a task with limits that the agent cannot enforce, with the text of a real agent; returns whether it did."""
    if info.get("container", {}).get("type") == "DOCKER":
        return False
    for kind, (noun, isolator) in _LIMITS.items():
        if kind in info.get("limits", {}) and not has(isolation, isolator):
            state = "TASK_DROPPED" if task.framework.partition_aware else "TASK_LOST"
            message = (
                f"{noun} limits can only be set on tasks launched in Mesos containers when the agent has loaded the "
                f"'{isolator}' isolator"
            )
            updates.report(task, state, message, "SOURCE_AGENT", "REASON_GC_ERROR")
            return True
    return False
