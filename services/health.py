"""Health of this process: the ticks of its loops, the answers of storage, and the state of each role."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from peloton.lifecycle.liveness import LOOP_BOUND_S, find_hung
from services import health_file, ticks
from services.health_file import CHECK_PERIOD_S, WRITE_PERIOD_S, Health

log = logging.getLogger(__name__)

TICK_S = 1.0
PROBE_PERIOD_S = 5.0
PROBE_LATE_S = 10.0
"""Seconds without an answer after which storage counts as unavailable."""
STARTS = "it starts"


class ProcessHealth:
    """Evaluates the health of this process. Thread-safe."""

    def __init__(self, roles: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waits = dict.fromkeys(roles, STARTS)
        self._answered_s = self._since_s = clock()
        self._is_probed, self._is_unavailable = False, False
        self._lock = threading.Lock()

    def note(self, role: str, waits: str) -> None:
        """Note what a role waits for; empty when it is ready."""
        with self._lock:
            self._waits[role] = waits

    def note_answer(self, is_answer: bool) -> None:
        """Note whether storage has answered a probe."""
        with self._lock:
            now_s = self._clock()
            if is_answer and (self._is_unavailable or now_s - self._answered_s > PROBE_LATE_S):
                self._since_s = now_s
            if is_answer:
                self._answered_s = now_s
            self._is_probed, self._is_unavailable = True, not is_answer

    def evaluate(self) -> Health:
        with self._lock:
            now_s = self._clock()
            is_unavailable = self._is_unavailable or (self._is_probed and now_s - self._answered_s > PROBE_LATE_S)
            waits = [f"{role}: {waits}" for role, waits in self._waits.items() if waits]
            since_s = now_s if is_unavailable else self._since_s
        if is_unavailable:
            waits.append("storage does not answer")
        return Health(os.getpid(), find_hung(ticks.list_loops(), since_s, now_s), "; ".join(waits))


@asynccontextmanager
async def heartbeat(health: ProcessHealth, path: Path) -> AsyncIterator[None]:
    """Write the health of the process to the file until the block ends; then remove the file."""
    stopping = threading.Event()
    writer = threading.Thread(target=_write, args=(health, path, stopping), name="heartbeat", daemon=True)
    writer.start()
    ticker = asyncio.create_task(_tick(), name="ticks of the event loop")
    try:
        yield
    finally:
        ticker.cancel()
        stopping.set()
        await asyncio.to_thread(writer.join)
        await asyncio.to_thread(path.unlink, missing_ok=True)


@asynccontextmanager
async def probing(health: ProcessHealth, ask: Callable[[], object]) -> AsyncIterator[None]:
    """Ask storage regularly until the block ends. The thread is not waited for: storage may never answer."""
    stopping = threading.Event()
    threading.Thread(target=_probe, args=(health, ask, stopping), name="probe of storage", daemon=True).start()
    try:
        yield
    finally:
        stopping.set()


async def _tick() -> None:
    with ticks.ticking("event loop", bound_s=LOOP_BOUND_S, has_dependencies=False) as loop:
        while True:
            loop.tick()
            await asyncio.sleep(TICK_S)


def _probe(health: ProcessHealth, ask: Callable[[], object], stopping: threading.Event) -> None:
    while not stopping.is_set():
        try:
            ask()
            health.note_answer(True)
        except Exception as error:
            log.debug("storage does not answer: %s", error)
            health.note_answer(False)
        stopping.wait(PROBE_PERIOD_S)


def _write(health: ProcessHealth, path: Path, stopping: threading.Event) -> None:
    was_hung = is_unwritable = False
    written, written_s = None, 0.0
    while not stopping.is_set():
        now, now_s = health.evaluate(), time.monotonic()
        if now.hung and not was_hung:
            log.error("%s; the stacks of all threads:\n%s", now.hung, _stacks())
        was_hung = bool(now.hung)
        if now == written and now_s - written_s < WRITE_PERIOD_S:
            stopping.wait(CHECK_PERIOD_S)
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            health_file.write(path, now)
            written, written_s, is_unwritable = now, now_s, False
        except OSError as error:
            if not is_unwritable:
                log.warning("health file %s cannot be written: %s", path, error.strerror)
            is_unwritable = True
        stopping.wait(CHECK_PERIOD_S)


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, ident)}: {traceback.format_stack(frame)[-1].strip()}"
        for ident, frame in sys._current_frames().items()
    )
