"""Measurements of time and memory in benchmark cases."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class Missing(Exception):
    """Raised when a requirement of a case is missing on this machine: the case is skipped."""


class Times:
    """Wall and CPU times of the same work, several times over."""

    def __init__(self) -> None:
        # As roles do: a collection before each time that visits all that was imported would leave cold caches.
        gc.collect()
        gc.freeze()
        self.wall_ms: list[float] = []
        self.cpu_ms: list[float] = []

    def take(self, work: Callable[..., T]) -> T:
        with self._measure():
            return work()

    async def take_async(self, work: Callable[..., Awaitable[T]]) -> T:
        with self._measure():
            return await work()

    @contextmanager
    def _measure(self) -> Iterator[None]:
        gc.collect()
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        yield
        self.cpu_ms.append((time.process_time() - cpu_s) * 1000)
        self.wall_ms.append((time.perf_counter() - wall_s) * 1000)

    def figures(self, name: str = "", target_ms: float | None = None) -> dict[str, float]:
        """Return the figures. The target is for the CPU time: on a busy machine the wall time includes other
        processes.
        """
        start = f"{name}_" if name else ""
        cpu_ms = statistics.median(self.cpu_ms)
        found = {
            f"{start}median_ms": round(statistics.median(self.wall_ms), 2),
            f"{start}p90_ms": round(sorted(self.wall_ms)[int(len(self.wall_ms) * 0.9)], 2),
            f"{start}cpu_median_ms": round(cpu_ms, 2),
        }
        return found if target_ms is None else found | {f"{start}ratio_to_target": round(cpu_ms / target_ms, 3)}


def rss_mib() -> float:
    """Return the memory of this process."""
    gc.collect()
    return status_kib("VmRSS") / 1024


def peak_rss_mib() -> float:
    return status_kib("VmHWM") / 1024


def status_kib(key: str, process: int | str = "self") -> int:
    with open(f"/proc/{process}/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def cpu_s(pid: int, digits: int = 1) -> float:
    """Return the CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return round((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), digits)
