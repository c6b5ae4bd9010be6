"""What the processes of containers use, read from /proc; a container beyond its memory limit is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from services.emulation.clock import Clock
from services.emulation.processes import Process, process_table


@dataclass(slots=True)
class Usage:
    """Of one container; cpu seconds never fall."""

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
        """``pid``: of the leader of a session; ``limit`` in bytes, 0 for none."""
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
        future = asyncio.get_running_loop().run_in_executor(None, process_table)
        future.add_done_callback(self._judge)

    def _judge(self, future: asyncio.Future[list[Process]]) -> None:
        if not future.cancelled() and future.exception() is None:
            sums: dict[int, tuple[float, int]] = {}
            for process in future.result():
                if process.session in self._watched:
                    cpu_s, memory = sums.get(process.session, (0.0, 0))
                    sums[process.session] = cpu_s + process.user_s + process.system_s, memory + process.resident
            for pid, (cpu_s, memory) in sums.items():
                if (usage := self._watched.get(pid)) is not None:
                    usage.add(cpu_s, memory)
        self._clock.call_later(self._interval_s, self._poll)
