"""Reports of pods: collected from the cluster, committed in batches, acknowledged after the commit.

A report that cannot be committed stays unacknowledged, so it comes again: that is the back-pressure.
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
from services.hostmgr.driver import PodReport, Token

log = logging.getLogger(__name__)

BATCH_MAX = 1_000
QUEUE_MAX = 100_000
"""Reports beyond this are dropped here, and come again."""
GATHER_S = 0.02
"""How long a batch waits for company: a commit costs milliseconds whatever its size."""


class ReportQueue:
    """One thread that owns the way from reports to storage."""

    def __init__(
        self,
        commit: Callable[[Sequence[PodStatus]], list[PodId]],
        acknowledge: Callable[[list[Token]], None],
        kill_orphans: Callable[[list[PodId]], None],
        missed: Callable[[], None] = lambda: None,
        done: Callable[[Sequence[PodReport]], None] = lambda reports: None,
        patience_s: float = 1.0,
    ) -> None:
        """``missed`` is told that a report is lost which comes only once; ``done`` of those that are committed.
        ``patience_s`` passes after a batch that failed."""
        self._commit = commit
        self._acknowledge = acknowledge
        self._kill_orphans = kill_orphans
        self._missed = missed
        self._done = done
        self._patience_s = patience_s
        self._reports: queue.Queue[PodReport | None] = queue.Queue(QUEUE_MAX)
        self._counting = threading.Lock()
        self._dropped_count = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status committer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Commit what waits, unless storage is away: then it comes to whoever leads next."""
        self._stopping.set()
        with suppress(queue.Full):  # then the thread is not waiting, and sees that it is to stop
            self._reports.put_nowait(None)
        self._thread.join()

    def add(self, report: PodReport) -> None:
        try:
            self._reports.put_nowait(report)
        except queue.Full:
            with self._counting:
                self._dropped_count += 1  # told with the next batch: of a million there would be a million lines
            if not report.token:
                self._missed()

    def _run(self) -> None:
        while True:
            batch, is_last = self._gather()
            self._tell_dropped()
            is_last |= self._stopping.is_set() and self._reports.empty()
            try:
                if batch:
                    self._process(batch)
            except Exception:
                log.exception("%d reports of pods not committed: they come again", len(batch))
                if not all(report.token for report in batch):
                    self._missed()
                is_last |= self._stopping.wait(self._patience_s)  # storage is away; the queue is bounded
            if is_last:
                return

    def _tell_dropped(self) -> None:
        with self._counting:
            count, self._dropped_count = self._dropped_count, 0
        if count:
            log.warning("%d reports of pods wait already: %d were left to come again", QUEUE_MAX, count)

    def _gather(self) -> tuple[list[PodReport], bool]:
        first = self._reports.get()
        if first is None:
            return [], True
        batch, deadline = [first], time.monotonic() + GATHER_S
        while len(batch) < BATCH_MAX:
            try:
                report = self._reports.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            if report is None:
                return batch, True
            batch.append(report)
        return batch, False

    def _process(self, batch: list[PodReport]) -> None:
        statuses = [status for report in batch if (status := report.status) is not None]
        orphans = self._commit(statuses) if statuses else []
        self._acknowledge([report.token for report in batch if report.token])
        self._done(batch)
        if orphans:
            self._kill_orphans(orphans)
