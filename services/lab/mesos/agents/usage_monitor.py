"""Measurement of all tasks of the minicluster, by one reading of /proc per interval, and enforcement of their
limits."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from services.lab.mesos.agents import isolation
from services.lab.mesos.agents.sandboxes import disk_bytes
from services.lab.mesos.model import Task, Usage
from services.lab.mesos.resources import THOUSAND, Resources, scalars
from services.lab.mesos.settings import MiniclusterSettings
from services.lab.shared.clock import Clock
from services.lab.shared.processes import process_table

_MB = 1024 * 1024
MEMORY_MIN = 32 * _MB
"""Minimum memory limit of a container in Mesos."""
EXECUTOR_MEMORY = 32 * _MB
"""Memory that an agent adds for the command executor; it is unused here, so tasks have slightly more than in Mesos."""


def limit_fault(allowed: Resources, memory: int, disk: int, memory_limit: int | None = None) -> tuple[str, str] | None:
    """Return (reason, message) in Mesos's words when usage in bytes exceeds a limit, else None.

    ``memory_limit`` is the task's limit in thousandths of a megabyte, if it differs from the allocation.
    """
    amounts = scalars(allowed)
    if memory_limit is not None:
        amounts = {**amounts, "mem": memory_limit}
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


def _memory_limit(task: Task) -> int | None:
    limit = task.info.get("limits", {}).get("mem")
    return None if limit is None else round(limit["value"] * THOUSAND)


class Measured(Protocol):
    """Interface of a container to the monitor."""

    task: Task
    pid: int | None
    directory: Path | None
    last_usage: Usage | None

    def limit_reached(self, reason: str, message: str) -> None: ...


class CpuCount:
    """Cpu seconds of a session, which never fall: the use of ended processes stays counted."""

    __slots__ = ("_last", "_total")

    def __init__(self) -> None:
        self._last = (0.0, 0.0)
        self._total = (0.0, 0.0)

    def add(self, now: tuple[float, float]) -> tuple[float, float]:
        """Add a sample; ``now`` is (user, system) of the living processes, including children they have waited for."""
        user, system = (max(new - old, 0.0) for new, old in zip(now, self._last, strict=True))
        self._last = now
        self._total = (self._total[0] + user, self._total[1] + system)
        return self._total


class UsageMonitor:
    def __init__(self, settings: MiniclusterSettings, clock: Clock) -> None:
        self._enforces_disk = settings.enforce_disk_quota
        self._enforces_memory = isolation.has(settings.isolation, isolation.MEMORY)
        # In real time, whatever the scale, like the processes.
        self._interval_s = settings.usage_interval_s * settings.time_scale
        self._clock = clock
        self._watched: dict[int, tuple[Measured, CpuCount, int | None]] = {}
        self._polling = False

    def watch(self, container: Measured) -> None:
        if container.pid is not None:
            self._watched[container.pid] = (container, CpuCount(), _memory_limit(container.task))
            if not self._polling:
                self._polling = True
                self._clock.call_later(self._interval_s, self._poll)

    def forget(self, container: Measured) -> None:
        if container.pid is not None:
            self._watched.pop(container.pid, None)

    def _poll(self) -> None:
        if not self._watched:
            self._polling = False
            return
        folders = {
            pid: container.directory if self._enforces_disk else None for pid, (container, *_) in self._watched.items()
        }
        # In a thread: the event loop must not wait for a disk.
        future = asyncio.get_running_loop().run_in_executor(None, _measure, folders)
        future.add_done_callback(self._enforce_limits)

    def _enforce_limits(self, future: asyncio.Future[dict[int, _Session]]) -> None:
        if not future.cancelled() and future.exception() is None:
            for pid, session in future.result().items():
                container, count, limit = self._watched.get(pid, (None, None, None))
                if container is None or count is None:
                    continue
                user, system = count.add((session.user_s, session.system_s))
                container.last_usage = Usage(user, system, session.memory, session.at_s)
                memory = session.memory if self._enforces_memory else 0
                fault = limit_fault(container.task.resources, memory, session.disk, limit)
                if fault is not None:
                    container.limit_reached(*fault)
        self._clock.call_later(self._interval_s, self._poll)


@dataclass(slots=True)
class _Session:
    at_s: float
    user_s: float = 0.0
    system_s: float = 0.0
    memory: int = 0
    disk: int = 0


def _measure(watched: dict[int, Path | None]) -> dict[int, _Session]:
    """Measure the use of each session's processes, and the bytes in its sandbox."""
    now_s = time.time()
    sessions = {pid: _Session(now_s) for pid in watched}
    for process in process_table():
        session = sessions.get(process.session)
        if session is not None:
            session.user_s += process.user_s
            session.system_s += process.system_s
            session.memory += process.resident
    for pid, directory in watched.items():
        sessions[pid].disk = disk_bytes(directory)
    return sessions
