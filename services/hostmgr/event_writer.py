"""Writes events of hosts that a host manager decides in memory: in batches, on a thread of its own, so that decisions
do not wait for storage."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

from peloton.model.host_event import HostEvent
from services.ticks import ticking

log = logging.getLogger(__name__)

BATCH_MAX = 500
"""Limit of events in one transaction."""
GATHER_S = 0.5
"""Seconds for which events are gathered into one batch."""
RETRY_S = 5.0
"""Seconds after a failed write until the next attempt."""
WAITING_MAX = 10_000
"""Limit of events that wait for storage. The oldest are dropped: hosts work without their history."""


class EventWriter:
    def __init__(
        self, write: Callable[[Sequence[HostEvent]], None], gather_s: float = GATHER_S, retry_s: float = RETRY_S
    ) -> None:
        self._write, self._gather_s, self._retry_s = write, gather_s, retry_s
        self._waiting: deque[HostEvent] = deque()
        self._lock = threading.Lock()
        self._dropped_count = 0
        self._due, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="host events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write queued events, unless storage is unavailable, and stop."""
        self._stopping.set()
        self._due.set()
        self._thread.join()

    def add(self, event: HostEvent) -> None:
        """Queue an event. Any thread may call."""
        with self._lock:
            self._waiting.append(event)
            self._keep_bound()
        self._due.set()

    def _keep_bound(self) -> None:
        while len(self._waiting) > WAITING_MAX:
            self._waiting.popleft()
            self._dropped_count += 1

    def _run(self) -> None:
        is_last = False
        with ticking("events of hosts") as loop:
            while not is_last:
                loop.rest()
                self._due.wait()
                self._stopping.wait(self._gather_s)
                loop.tick()
                self._due.clear()
                is_last = self._stopping.is_set()
                if not self._flush():
                    self._stopping.wait(self._retry_s)
                    self._due.set()

    def _flush(self) -> bool:
        """Write queued events; return whether all were stored."""
        while batch := self._take():
            try:
                self._write(batch)
            except Exception as error:
                log.warning("%d host events not stored, retrying: %s", len(batch), error)
                with self._lock:
                    self._waiting.extendleft(reversed(batch))
                    self._keep_bound()
                return False
        return True

    def _take(self) -> list[HostEvent]:
        with self._lock:
            batch = [self._waiting.popleft() for _ in range(min(BATCH_MAX, len(self._waiting)))]
            dropped, self._dropped_count = self._dropped_count, 0
        if dropped:
            log.warning("queue of host events is full (%d): dropped the %d oldest", WAITING_MAX, dropped)
        return batch
