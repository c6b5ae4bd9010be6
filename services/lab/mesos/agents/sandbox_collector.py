"""Retention of sandboxes of ended runs, for reading their logs, within a bound on disk space.

A real agent does the same with --gc_delay, a week by default, which it shortens as its disk fills.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import time
from collections import Counter, deque
from collections.abc import Iterable, Set
from pathlib import Path
from typing import NamedTuple

from services.lab.mesos.agents.sandboxes import disk_bytes
from services.lab.shared.clock import Clock, Timer

log = logging.getLogger(__name__)

SANDBOXES_MAX = 100_000
"""Maximum number of sandboxes kept, whatever their size."""


class Sandbox(NamedTuple):
    directory: Path
    age_s: float
    size: int


class Collector:
    """Collector of a minicluster. It reads and deletes sandboxes in a thread, one at a time."""

    def __init__(self, clock: Clock, retention_s: float, bytes_max: int) -> None:
        self._clock = clock
        self._retention_s = retention_s
        self._bytes_max = bytes_max
        # (expiry, folder, bytes), the oldest first.
        self._kept: deque[tuple[float, Path, int]] = deque()
        self._bytes = 0
        self._ended: list[Path] = []
        self._unwanted: list[Path] = []
        self._changed = asyncio.Event()
        self._timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, data_dir: Path) -> None:
        """Start before agents are created: takes over the sandboxes of a predecessor, whose agents had other ids."""
        predecessors = list(data_dir.glob("slaves/*"))
        self._task = asyncio.create_task(self._run(predecessors), name="collector of sandboxes")

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def keep(self, directory: Path) -> None:
        """Keep the sandbox of a run that has ended."""
        self._ended.append(directory)
        self._changed.set()

    def counts(self, cut: int) -> Counter[str]:
        """Count kept sandboxes by the id of their executor without its last ``cut`` dash-separated parts."""
        return Counter(_executor_of(directory, cut) for _, directory, _ in self._kept)

    def remove(self, executors: Set[str], cut: int) -> int:
        """Delete the sandboxes of ``executors``, named as in `counts`; returns their number."""
        unwanted = [kept for kept in self._kept if _executor_of(kept[1], cut) in executors]
        self._kept = deque(kept for kept in self._kept if _executor_of(kept[1], cut) not in executors)
        self._bytes -= sum(size for _, _, size in unwanted)
        self._unwanted += [directory for _, directory, _ in unwanted]
        self._changed.set()
        return len(unwanted)

    async def _run(self, predecessors: list[Path]) -> None:
        self._keep(await asyncio.to_thread(_find_left_behind, predecessors))
        while True:
            await asyncio.to_thread(_remove, self._surplus())
            if self._kept:
                until_s = self._kept[0][0]
                self._timer = self._clock.call_later(until_s - self._clock.now(), self._changed.set)
            await self._changed.wait()
            self._changed.clear()
            if self._timer is not None:
                self._timer.cancel()
            ended, self._ended = self._ended, []
            self._keep(await asyncio.to_thread(_measure, ended))

    def _keep(self, more: Iterable[Sandbox]) -> None:
        now_s = self._clock.now()
        for directory, age_s, size in more:
            self._kept.append((now_s + self._retention_s - age_s, directory, size))
            self._bytes += size

    def _surplus(self) -> list[Path]:
        """Return sandboxes to delete: requested by `remove`, expired, or the oldest beyond a bound."""
        gone, self._unwanted = self._unwanted, []
        now_s = self._clock.now()
        while self._kept and (
            self._kept[0][0] <= now_s or self._bytes > self._bytes_max or len(self._kept) > SANDBOXES_MAX
        ):
            _, directory, size = self._kept.popleft()
            self._bytes -= size
            gone.append(directory)
        if gone:
            log.info("sandboxes of %d runs that have ended are removed", len(gone))
        return gone


def _executor_of(directory: Path, cut: int) -> str:
    return directory.parent.parent.name.rsplit("-", cut)[0]


def _measure(directories: list[Path]) -> list[Sandbox]:
    return [Sandbox(directory, 0.0, disk_bytes(directory)) for directory in directories]


def _find_left_behind(agents: list[Path]) -> list[Sandbox]:
    """Find the sandboxes of former agents, the oldest first."""
    now_s = time.time()
    found = []
    for path in (path for agent in agents for path in agent.glob("frameworks/*/executors/*/runs/*")):
        with contextlib.suppress(OSError):
            if not path.is_symlink():
                found.append(Sandbox(path, now_s - path.stat().st_mtime, disk_bytes(path)))
    return sorted(found, key=lambda sandbox: -sandbox.age_s)


def _remove(directories: list[Path]) -> None:
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)
        runs = directory.parent
        with contextlib.suppress(OSError):  # another run of the same executor exists
            if not (runs / "latest").exists():
                (runs / "latest").unlink(missing_ok=True)
            os.rmdir(runs)
            os.rmdir(runs.parent)
