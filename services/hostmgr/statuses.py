"""Status updates: collected from Mesos, committed in batches, acknowledged after the commit.

An update that cannot be committed stays unacknowledged, so Mesos sends it again: that is the back-pressure.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from peloton.model.ids import PodId
from peloton.model.pod import PodStatus
from services.hostmgr.mesos.resources import Json

log = logging.getLogger(__name__)

BATCH_MAX = 1_000
QUEUE_MAX = 100_000
"""Updates beyond this are dropped here and sent again by the agents."""
GATHER_S = 0.02
"""How long a batch waits for company: a commit costs milliseconds whatever its size."""


class StatusCommitter:
    """One thread that owns the way from status updates to storage."""

    def __init__(
        self,
        commit: Callable[[Sequence[PodStatus]], list[PodId]],
        acknowledge: Callable[[list[Json]], None],
        kill_orphans: Callable[[list[PodId]], None],
        translate: Callable[[Json], PodStatus | None],
        missed: Callable[[], None] = lambda: None,
        done: Callable[[Sequence[Json]], None] = lambda statuses: None,
        patience_s: float = 1.0,
    ) -> None:
        """``missed`` is told that an update is lost which Mesos sends only once: the master's own have no uuid;
        ``done`` of those that are committed.
        ``patience_s`` passes after a batch that failed."""
        self._commit = commit
        self._acknowledge = acknowledge
        self._kill_orphans = kill_orphans
        self._translate = translate
        self._missed = missed
        self._done = done
        self._patience_s = patience_s
        self._updates: queue.Queue[Json | None] = queue.Queue(QUEUE_MAX)
        self._counting = threading.Lock()
        self._dropped_count = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status committer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Commit what waits, unless storage is away: then Mesos sends it to whoever leads next."""
        self._stopping.set()
        with suppress(queue.Full):  # then the thread is not waiting, and sees that it is to stop
            self._updates.put_nowait(None)
        self._thread.join()

    def add(self, status: Json) -> None:
        try:
            self._updates.put_nowait(status)
        except queue.Full:
            with self._counting:
                self._dropped_count += 1  # told with the next batch: of a million there would be a million lines
            if not status.get("uuid"):
                self._missed()

    def _run(self) -> None:
        while True:
            batch, is_last = self._gather()
            self._tell_dropped()
            is_last |= self._stopping.is_set() and self._updates.empty()
            try:
                if batch:
                    self._process(batch)
            except Exception:
                log.exception("%d status updates not committed: Mesos sends them again", len(batch))
                if not all(update.get("uuid") for update in batch):
                    self._missed()
                is_last |= self._stopping.wait(self._patience_s)  # storage is away; the queue is bounded
            if is_last:
                return

    def _tell_dropped(self) -> None:
        with self._counting:
            count, self._dropped_count = self._dropped_count, 0
        if count:
            log.warning("%d status updates wait already: %d were left to Mesos to send again", QUEUE_MAX, count)

    def _gather(self) -> tuple[list[Json], bool]:
        first = self._updates.get()
        if first is None:
            return [], True
        batch, deadline = [first], time.monotonic() + GATHER_S
        while len(batch) < BATCH_MAX:
            try:
                update = self._updates.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            if update is None:
                return batch, True
            batch.append(update)
        return batch, False

    def _process(self, batch: list[Json]) -> None:
        translated = [s for update in batch if (s := self._translate(update)) is not None]
        orphans = self._commit(translated) if translated else []
        self._acknowledge([update for update in batch if update.get("uuid")])
        self._done(batch)
        if orphans:
            self._kill_orphans(orphans)
