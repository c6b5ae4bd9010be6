"""Reports of pods, from the cluster to storage: committed in batches, and acknowledged after the commit.

A report that cannot be committed stays unacknowledged, so the cluster sends it again: this provides back-pressure.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from opentelemetry.metrics import Observation

from peloton.model.ids import PodId
from peloton.model.pod import PodState, PodStatus
from peloton.ports import PodLifecycles
from services.hostmgr.driver import PodReport, Token
from services.hostmgr.hosts.host_cache import HostCache
from services.hostmgr.metrics import BATCHES, DROPPED, LAUNCH_TIMES
from services.storage.pods.host_pods import HostPods
from services.telemetry.metrics import register_gauge
from services.ticks import ticking

log = logging.getLogger(__name__)

BATCH_MAX = 1_000
QUEUE_MAX = 100_000
"""Limit of queued reports; further reports are dropped, and the cluster repeats them."""
GATHER_S, GATHER_MAX_S = 0.02, 0.1
"""Seconds without a report after which a batch is complete, and the maximum for a batch: a commit costs milliseconds
whatever its size."""


class ReportQueue:
    """Queue of reports; one thread commits them to storage."""

    def __init__(
        self,
        commit: Callable[[Sequence[PodStatus]], list[PodId]],
        acknowledge: Callable[[list[Token]], None],
        kill_orphans: Callable[[list[PodId]], None],
        missed: Callable[[], None] = lambda: None,
        done: Callable[[Sequence[PodReport]], None] = lambda reports: None,
        retry_s: float = 1.0,
    ) -> None:
        """``missed`` is called when a report is lost that is not repeated, ``done`` with committed reports. After a
        failed batch the thread pauses for ``retry_s``."""
        self._commit = commit
        self._acknowledge = acknowledge
        self._kill_orphans = kill_orphans
        self._missed = missed
        self._done = done
        self._retry_s = retry_s
        self._reports: queue.SimpleQueue[PodReport | None] = queue.SimpleQueue()
        self._counting = threading.Lock()
        self._dropped_count = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status committer", daemon=True)
        register_gauge("peloton.status.waiting", lambda _: [Observation(self._reports.qsize())])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Commit the queue, unless storage is unavailable: then the cluster sends the reports to the next leader."""
        self._stopping.set()
        self._reports.put(None)
        self._thread.join()

    def add(self, report: PodReport) -> None:
        if self._reports.qsize() < QUEUE_MAX:
            self._reports.put(report)
            return
        with self._counting:
            self._dropped_count += 1  # logged with the next batch, in one line for all
        if not report.token:
            self._missed()

    def _run(self) -> None:
        with ticking("status committer") as loop:
            while True:
                loop.rest()
                batch, is_last = self._gather()
                loop.tick()
                self._log_dropped()
                is_last |= self._stopping.is_set() and self._reports.empty()
                try:
                    if batch:
                        self._process(batch)
                except Exception:
                    log.exception("%d status updates not stored, the cluster will resend them", len(batch))
                    if not all(report.token for report in batch):
                        self._missed()
                    is_last |= self._stopping.wait(self._retry_s)  # storage is unavailable; the queue is bounded
                if is_last:
                    return

    def _log_dropped(self) -> None:
        with self._counting:
            count, self._dropped_count = self._dropped_count, 0
        if count:
            DROPPED.add(count)
            log.warning(
                "queue of status updates is full (%d): %d dropped, the cluster will resend them", QUEUE_MAX, count
            )

    def _gather(self) -> tuple[list[PodReport], bool]:
        first = self._reports.get()
        if first is None:
            return [], True
        batch, deadline = [first], time.monotonic() + GATHER_MAX_S
        while len(batch) < BATCH_MAX:
            try:
                report = self._reports.get(timeout=min(max(deadline - time.monotonic(), 0.0), GATHER_S))
            except queue.Empty:
                break
            if report is None:
                return batch, True
            batch.append(report)
        return batch, False

    def _process(self, batch: list[PodReport]) -> None:
        statuses = [status for report in batch if (status := report.status) is not None]
        BATCHES.record(len(batch))
        orphans = self._commit(statuses) if statuses else []
        self._acknowledge([report.token for report in batch if report.token])
        self._done(batch)
        if orphans:
            self._kill_orphans(orphans)


class StatusWriter:
    """Applies reports: to storage first, then to the host manager's memory; then wakes workflows."""

    def __init__(
        self,
        pods: HostPods,
        cluster: str,
        cache: HostCache,
        lifecycles: PodLifecycles,
        committed: Callable[[Sequence[PodStatus]], None],
        clock: Callable[[], float],
    ) -> None:
        """``clock`` is the monotonic one."""
        self._pods = pods
        self._cluster = cluster
        self._cache = cache
        self._lifecycles = lifecycles
        self._committed = committed
        self._clock = clock

    def commit(self, statuses: Sequence[PodStatus]) -> list[PodId]:
        """Commit statuses. Returns runs that are not wanted, to be killed on their hosts."""
        now_ns = time.time_ns()
        timed = [s if s.time_ns else replace(s, time_ns=now_ns) for s in statuses]
        outcome = self._pods.apply_status(timed, self._cluster, self._bound_to_host(timed))
        LAUNCH_TIMES.take(statuses)
        self._cache.avoidances.take(outcome.ends, self._clock())
        waiting = self._cache.pods_ended(outcome.ended)
        self._lifecycles.pods_changed(outcome.changed_jobs, "pods changed on their hosts")
        self._lifecycles.jobs_changed(waiting, "hosts that the job waits for have free resources")
        self._committed(statuses)
        return list(outcome.orphans)

    def _bound_to_host(self, statuses: Sequence[PodStatus]) -> set[PodId]:
        """Return the failing runs of batch pods that would return to the host on which they fail."""
        if not self._pods.batch_backoff.waits:
            return set()
        return self._cache.bound_to_host(self._pods.retries([s for s in statuses if s.state is PodState.FAILED]))
