"""Memory and disk limits by polling: one look at /proc per interval for all tasks of the minicluster."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from services.minicluster.clock import Clock
from services.minicluster.processes import process_table
from services.minicluster.resources import THOUSAND, Resources, scalars
from services.minicluster.settings import MiniclusterSettings

if TYPE_CHECKING:
    from services.minicluster.executor import Container

_MB = 1024 * 1024
# A sandbox with more entries than this is too dear to measure at every poll.
_MAX_ENTRIES = 20_000


class Limits:
    def __init__(self, settings: MiniclusterSettings, clock: Clock) -> None:
        self._enabled = settings.enforce_limits
        # Polled in real time whatever the scale: the processes run in real time too.
        self._interval_s = settings.limits_interval_s * settings.time_scale
        self._clock = clock
        self._watched: dict[int, Container] = {}
        self._polling = False

    def watch(self, container: Container) -> None:
        if self._enabled and container.pid is not None:
            self._watched[container.pid] = container
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
        watched = {pid: container.directory for pid, container in self._watched.items()}
        # /proc and the sandboxes are read beside the loop: answers must not wait for a disk.
        future = asyncio.get_running_loop().run_in_executor(None, _measure, watched)
        future.add_done_callback(self._judge)

    def _judge(self, future: asyncio.Future[dict[int, tuple[int, int]]]) -> None:
        if not future.cancelled() and future.exception() is None:
            for pid, (memory, disk) in future.result().items():
                container = self._watched.get(pid)
                if container is not None:
                    _check(container, memory, disk)
        self._clock.call_later(self._interval_s, self._poll)


def _check(container: Container, memory: int, disk: int) -> None:
    allowed: Resources = container.task.resources
    amounts = scalars(allowed)
    mem = amounts.get("mem", 0) * _MB // THOUSAND
    if mem and memory > mem:
        container.limit_reached(
            "REASON_CONTAINER_LIMITATION_MEMORY",
            f"Memory limit exceeded: Requested: {mem // _MB}MB Maximum Used: {-(-memory // _MB)}MB",
        )
        return
    quota = amounts.get("disk", 0) * _MB // THOUSAND
    if quota and disk > quota:
        container.limit_reached(
            "REASON_CONTAINER_LIMITATION_DISK",
            f"Disk usage ({-(-disk // _MB)}MB) exceeds quota ({quota // _MB}MB)",
        )


def _measure(watched: dict[int, Path | None]) -> dict[int, tuple[int, int]]:
    """Resident bytes per session, and bytes in the sandbox."""
    memory = dict.fromkeys(watched, 0)
    for _, session, resident in process_table():
        if session in memory:
            memory[session] += resident
    return {pid: (memory[pid], _disk(directory)) for pid, directory in watched.items()}


def _disk(directory: Path | None) -> int:
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
