"""Usage of containers' processes, read from /proc, and detection of exceeded memory limits."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass

from services.lab.shared.clock import Clock
from services.lab.shared.processes import Process, process_table


@dataclass(slots=True)
class Usage:
    """Usage of one container; CPU seconds never decrease."""

    cpu_s: float = 0.0
    memory: int = 0
    limit: int = 0
    on_limit: Callable[[], None] | None = None
    last_s: float = 0.0

    def add(self, cpu_s: float, memory: int) -> None:
        self.cpu_s += max(cpu_s - self.last_s, 0.0)
        self.last_s, self.memory = cpu_s, memory
        if self.limit and memory > self.limit and self.on_limit is not None:
            self.on_limit()


class UsageMonitor:
    def __init__(self, clock: Clock, interval_s: float) -> None:
        self._clock = clock
        self._interval_s = interval_s
        self._watched: dict[int, Usage] = {}
        self._is_polling = False

    def watch(self, pid: int, limit: int, on_limit: Callable[[], None]) -> Usage:
        """Monitor a session. ``pid``: its leader; ``limit`` in bytes, 0 for none."""
        usage = self._watched[pid] = Usage(limit=limit, on_limit=on_limit)
        if not self._is_polling:
            self._is_polling = True
            self._clock.call_later(self._interval_s, self._poll)
        return usage

    def forget(self, pid: int) -> None:
        self._watched.pop(pid, None)

    def _poll(self) -> None:
        if not self._watched:
            self._is_polling = False
            return
        # In a thread: a machine may have many processes.
        future = asyncio.get_running_loop().run_in_executor(None, _measure, frozenset(self._watched))
        future.add_done_callback(self._record)

    def _record(self, future: asyncio.Future[dict[int, tuple[float, int]]]) -> None:
        if not future.cancelled() and future.exception() is None:
            for pid, (cpu_s, memory) in future.result().items():
                if (usage := self._watched.get(pid)) is not None:
                    usage.add(cpu_s, memory)
        self._clock.call_later(self._interval_s, self._poll)


def _measure(sessions: frozenset[int]) -> dict[int, tuple[float, int]]:
    """Return CPU seconds and bytes of memory of each session."""
    found: dict[int, tuple[float, int]] = {}
    for process in process_table():
        if process.session in sessions:
            cpu_s, memory = found.get(process.session, (0.0, 0))
            found[process.session] = cpu_s + process.user_s + process.system_s, memory + _own_memory(process)
    return found


def _own_memory(process: Process) -> int:
    """Return the memory without pages shared with other processes, such as the code of libraries: a control group
    counts these at most once.
    """
    try:
        with open(f"/proc/{process.pid}/statm", "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return 0  # it has ended
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
