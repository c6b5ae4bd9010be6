"""What tasks use: one look at /proc per interval for all tasks of the minicluster. Limits are kept by the same look."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from services.minicluster.clock import Clock
from services.minicluster.limits import fault
from services.minicluster.processes import process_table
from services.minicluster.settings import MiniclusterSettings

if TYPE_CHECKING:
    from services.minicluster.executor import Container

# A sandbox with more entries than this is too dear to measure at every poll.
_MAX_ENTRIES = 20_000


@dataclass(frozen=True, slots=True)
class Usage:
    """Cpu seconds since the start of a task, its resident bytes, and the moment (unix seconds) of the look."""

    user_s: float
    system_s: float
    memory: int
    at_s: float

    @property
    def cpu_s(self) -> float:
        return self.user_s + self.system_s


class CpuCount:
    """Cpu seconds of a session that never fall: what a process used that ended unseen stays counted."""

    __slots__ = ("_last", "_total")

    def __init__(self) -> None:
        self._last = (0.0, 0.0)
        self._total = (0.0, 0.0)

    def add(self, now: tuple[float, float]) -> tuple[float, float]:
        """``now`` is (user, system) of the processes that live, with the children they have waited for."""
        user, system = (max(new - old, 0.0) for new, old in zip(now, self._last, strict=True))
        self._last = now
        self._total = (self._total[0] + user, self._total[1] + system)
        return self._total


class UsageMonitor:
    def __init__(self, settings: MiniclusterSettings, clock: Clock) -> None:
        self._enforces_disk = settings.enforce_disk_quota
        # Polled in real time whatever the scale: the processes run in real time too.
        self._interval_s = settings.usage_interval_s * settings.time_scale
        self._clock = clock
        self._watched: dict[int, tuple[Container, CpuCount]] = {}
        self._polling = False

    def watch(self, container: Container) -> None:
        if container.pid is not None:
            self._watched[container.pid] = (container, CpuCount())
            if not self._polling:
                self._polling = True
                self._clock.call_later(self._interval_s, self._poll)

    def forget(self, container: Container) -> None:
        if container.pid is not None:
            self._watched.pop(container.pid, None)

    def _poll(self) -> None:
        if not self._watched:
            self._polling = False
            return
        folders = {
            pid: container.directory if self._enforces_disk else None for pid, (container, _) in self._watched.items()
        }
        # /proc and the sandboxes are read beside the loop: answers must not wait for a disk.
        future = asyncio.get_running_loop().run_in_executor(None, _measure, folders)
        future.add_done_callback(self._judge)

    def _judge(self, future: asyncio.Future[dict[int, _Session]]) -> None:
        if not future.cancelled() and future.exception() is None:
            for pid, session in future.result().items():
                container, count = self._watched.get(pid, (None, None))
                if container is None or count is None:
                    continue
                user, system = count.add((session.user_s, session.system_s))
                container.last_usage = Usage(user, system, session.memory, session.at_s)
                found = fault(container.task.resources, session.memory, session.disk)
                if found is not None:
                    container.limit_reached(*found)
        self._clock.call_later(self._interval_s, self._poll)


@dataclass(slots=True)
class _Session:
    at_s: float
    user_s: float = 0.0
    system_s: float = 0.0
    memory: int = 0
    disk: int = 0


def _measure(watched: dict[int, Path | None]) -> dict[int, _Session]:
    """What the processes of each session use, and the bytes in its sandbox."""
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


def disk_bytes(directory: Path | None) -> int:
    """0 for one with too many entries."""
    total = entries = 0
    stack = [directory] if directory is not None else []
    while stack:
        try:
            with os.scandir(stack.pop()) as rows:
                for row in rows:
                    entries += 1
                    if entries > _MAX_ENTRIES:
                        return 0
                    if row.is_dir(follow_symlinks=False):
                        stack.append(Path(row.path))
                    else:
                        total += row.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue
    return total
