"""Limits of memory and disk, and the reason and message of a task that exceeds one."""

from __future__ import annotations

from services.minicluster.resources import THOUSAND, Resources, scalars

_MB = 1024 * 1024
MEMORY_MIN = 32 * _MB
"""Mesos limits no container to less."""
EXECUTOR_MEMORY = 32 * _MB
"""What an agent adds for the command executor. Here it uses none of it, so a task has a little more than in Mesos."""


def fault(allowed: Resources, memory: int, disk: int) -> tuple[str, str] | None:
    """(reason, message) in Mesos's words for so many bytes in use, None within the limits."""
    amounts = scalars(allowed)
    mem = amounts.get("mem", 0) * _MB // THOUSAND
    if mem:
        mem = max(mem, MEMORY_MIN) + EXECUTOR_MEMORY
    if mem and memory > mem:
        return (
            "REASON_CONTAINER_LIMITATION_MEMORY",
            f"Memory limit exceeded: Requested: {mem // _MB}MB Maximum Used: {-(-memory // _MB)}MB",
        )
    quota = amounts.get("disk", 0) * _MB // THOUSAND
    if quota and disk > quota:
        return (
            "REASON_CONTAINER_LIMITATION_DISK",
            f"Disk usage ({-(-disk // _MB)}MB) exceeds quota ({quota // _MB}MB)",
        )
    return None
