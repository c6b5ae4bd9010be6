"""Deletion of old records by the leader of the resource manager, archived before where an archive is set.

A round visits each class until nothing of it is too old. A transaction deletes few rows, and a pause in proportion to
its time follows, so that other writers do not feel it; while the database is slow the round ends. Everything may be
interrupted at any moment: what was not committed is found again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from peloton.errors import Unavailable
from peloton.lifecycle.retention import (
    AUDIT,
    HISTORY,
    HOST_EVENTS,
    JOBS,
    POD_EVENTS,
    PODS,
    PRUNED_JOBS,
    ROWS_MIN,
    RUNS,
    SERVICE_NAMES,
    WATCH_LOG,
    Cursor,
    cutoff_ns,
    is_slow,
    next_size,
    pause_s,
    plan_batch,
)
from peloton.model.times import NS_PER_S
from services.retention.archive import Archive
from services.storage.retention.lines import Line, lines_of_hosts
from services.storage.retention.records import Progress, Written
from services.storage.storage import Storage
from services.telemetry.metrics import counter, histogram
from services.ticks import ticking

log = logging.getLogger(__name__)

_DELETED = counter("peloton.retention.deleted")
_ARCHIVED = counter("peloton.retention.archived")
_STEPS = histogram("peloton.retention.transaction")
_FAILURES = counter("peloton.retention.failures")
CLASS_S_MAX = 600.0
"""Time after which a round leaves a class to the next round."""
RUNS_EVERY_S = 86_400.0
"""Time between two searches for earlier runs, which read the events of all pods of services."""
SLOW_NOTE = "the database is slow"
CHUNK_PAUSE_S = 0.2
"""Pause between the transactions that delete a job of more than ROWS_MAX instances."""
DUE_MAX = 10_000
HALF_DELETED_MAX = 100
"""Number of interrupted deletions that one round ends."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Ages in days, 0 for ever; ``changes_kept`` is a number of rows."""

    period_s: float = 600.0
    days: Mapping[str, int] = field(default_factory=dict)
    changes_kept: int = 1_000_000


@dataclass(slots=True)
class StepResult:
    """Result of one step: deleted rows, archived bytes, and the seconds within its ``with`` blocks, which use the
    database; ``has_more`` if more may follow."""

    deleted: int = 0
    archived: int = 0
    took_s: float = 0.0
    has_more: bool = False
    _began_s: float = 0.0

    def __enter__(self) -> None:
        self._began_s = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.took_s += time.perf_counter() - self._began_s


class Retention:
    """Deletion of the records that ``policy`` does not keep; ``once`` runs a single round."""

    def __init__(
        self,
        storage: Storage,
        policy: RetentionPolicy,
        archive: Archive | None = None,
        clock_ns: Callable[[], int] = time.time_ns,
        sleep_s: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        self._storage, self._records, self._archive = storage, storage.retention, archive
        self.policy = policy
        self._clock_ns, self._sleep_s = clock_ns, sleep_s
        self._rows = ROWS_MIN
        self._cursors: dict[str, Cursor] = {}
        self._runs_after: tuple[str, int] = ("", 0)
        self._task: asyncio.Task[None] | None = None
        self._is_closing = threading.Event()

    def start(self) -> None:
        if self.policy.period_s:
            self._task = asyncio.create_task(self._run(), name="retention")

    async def close(self) -> None:
        self._is_closing.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        with ticking("retention", CLASS_S_MAX * len(self._steps())) as loop:
            while True:
                await asyncio.sleep(self.policy.period_s)
                loop.tick()
                try:
                    await self.once()
                except Exception:  # of any kind: the next round may succeed
                    log.warning("retention failed, trying again in the next round", exc_info=True)

    async def once(self) -> dict[str, int]:
        """Run one round; returns the deleted rows by class. A class that fails is tried again in the next round."""
        progress = await asyncio.to_thread(self._begin_round)
        deleted: dict[str, int] = {}
        for name, step in self._steps().items():
            ran_ns = progress[name].ran_ns if name in progress else 0
            if name == RUNS and self._clock_ns() - ran_ns < RUNS_EVERY_S * NS_PER_S:
                continue
            try:
                note = await self._drain(name, step, deleted)
            except Exception as error:  # of any kind, such as of a full disk: it holds up this class alone
                _FAILURES.add(1, {"class": name})
                log.warning("retention of %s failed, trying again in the next round", name, exc_info=True)
                note = str(error) or type(error).__name__
            is_done = not note or name != RUNS
            await asyncio.to_thread(self._records.note, name, self._clock_ns() if is_done else ran_ns, note)
            if note == SLOW_NOTE:
                log.info("retention waits for the next round: %s", note)
                break
        return deleted

    def read_progress(self) -> Mapping[str, Progress]:
        return self._records.progress()

    def count_due(self) -> dict[str, int]:
        """Count the jobs, or rows, that are old enough now, by class, up to DUE_MAX."""
        progress, found = self._records.progress(), dict[str, int]()
        for name in (POD_EVENTS, PODS, JOBS):
            cursor = progress[name].cursor if name in progress and name != JOBS else Cursor()
            found[name] = self._records.count_ended(cursor, self._before_ns(name), DUE_MAX)
        found[PRUNED_JOBS] = self._records.count_pruned(self._before_ns(PRUNED_JOBS), DUE_MAX)
        found[HOST_EVENTS] = self._storage.host_events.count_old(self._before_ns(HOST_EVENTS), DUE_MAX)
        return found

    def _begin_round(self) -> Mapping[str, Progress]:
        """Read the cursors, and end deletions that were interrupted."""
        for job_id in self._records.half_deleted(HALF_DELETED_MAX):
            self._storage.jobs.delete(job_id, self._rest)
        progress = self._records.progress()
        self._cursors = {name: one.cursor for name, one in progress.items()}
        self._cursors.pop(JOBS, None)  # deleted jobs are gone: those that an earlier round passed over are read again
        return progress

    async def _drain(self, name: str, step: Callable[[int], StepResult], deleted: dict[str, int]) -> str:
        """Repeat a step until nothing is left; returns why it ended early, empty if it did not."""
        end_s, deleted[name] = time.monotonic() + CLASS_S_MAX, 0
        while True:
            rows = self._rows
            done = await asyncio.to_thread(step, rows)
            deleted[name] += done.deleted
            _DELETED.add(done.deleted, {"class": name})
            _ARCHIVED.add(done.archived, {"class": name})
            _STEPS.record(done.took_s, {"class": name})
            if not done.has_more:
                break
            if is_slow(rows, done.took_s):
                return SLOW_NOTE
            self._rows = next_size(rows, done.took_s)
            if time.monotonic() > end_s:
                return "more is left for the next round"
            await self._sleep_s(pause_s(done.took_s))
        if deleted[name]:
            log.info("deleted %d rows of %s", deleted[name], name)
        return ""

    def _rest(self, _: int) -> None:
        """Pause between the chunks of a large job. Raises Unavailable when the process ends."""
        if self._is_closing.wait(CHUNK_PAUSE_S):
            raise Unavailable("the process ends")

    # -- steps, each in a thread

    def _steps(self) -> dict[str, Callable[[int], StepResult]]:
        return {
            POD_EVENTS: partial(self._delete_ended, POD_EVENTS),
            PODS: partial(self._delete_ended, PODS),
            JOBS: partial(self._delete_ended, JOBS),
            RUNS: self._delete_runs,
            HOST_EVENTS: self._delete_host_events,
            PRUNED_JOBS: partial(self._delete_rows, PRUNED_JOBS, self._records.forget_pruned),
            SERVICE_NAMES: partial(self._delete_rows, SERVICE_NAMES, self._records.forget_names),
            HISTORY: partial(self._delete_rows, HISTORY, self._prune_history),
            AUDIT: partial(self._delete_rows, AUDIT, self._storage.audit.prune),
            WATCH_LOG: partial(self._delete_rows, WATCH_LOG, self._trim_watch_log),
        }

    def _before_ns(self, name: str) -> int:
        return cutoff_ns(self.policy.days.get(name, 0), self._clock_ns())

    def _delete_ended(self, name: str, rows: int) -> StepResult:
        """Delete records of the ended jobs that follow the cursor."""
        after, before_ns = self._cursors.get(name, Cursor()), self._before_ns(name)
        done = StepResult()
        with done:
            found = self._records.list_ended(after, before_ns, rows)
        batch = plan_batch(name, found, after, before_ns, rows)
        if batch.parts:
            first = batch.parts[0]
            lines = self._records.lines(name, batch.parts)
            written = self._write(done, name, first.job.ended_ns, f"{first.job.job_id}-{first.start}", lines)
            with done:
                jobs = [part.job.job_id for part in batch.parts] if name == JOBS else []
                remote = self._storage.secrets.find_remote(jobs)
                done.deleted, large = self._records.delete(name, batch, written, self._clock_ns())
            for job_id in large:
                self._storage.jobs.delete(job_id, self._rest)
            self._storage.secrets.forget_deleted(remote)
        self._cursors[name] = batch.after
        done.has_more = bool(found)
        return done

    def _delete_runs(self, rows: int) -> StepResult:
        """Delete events of earlier runs of the next instances of jobs that live."""
        done = StepResult()
        with done:
            runs = self._records.old_runs(self._runs_after, self._before_ns(POD_EVENTS), rows)
        if runs is not None and runs.keys:
            instance, revision = runs.keys[0]
            lines = self._records.lines_of_runs(runs)
            written = self._write(done, RUNS, runs.first_ns, f"{runs.job_id}-{instance}-{revision}", lines)
            with done:
                self._records.delete_runs(runs, written)
            done.deleted = len(runs.keys)
        self._runs_after = runs.after if runs is not None else ("", 0)
        done.has_more = runs is not None
        return done

    def _delete_host_events(self, rows: int) -> StepResult:
        done = StepResult()
        with done:
            events = self._storage.host_events.list_old(self._before_ns(HOST_EVENTS), rows)
        if events:
            lines = lines_of_hosts(events)
            written = self._write(done, HOST_EVENTS, events[0].at_ns, str(events[0].seq), lines)
            with done:
                done.deleted = self._storage.host_events.forget([event.seq for event in events])
                self._records.add(HOST_EVENTS, done.deleted, written)
        done.has_more = bool(events)
        return done

    def _delete_rows(self, name: str, delete: Callable[[int, int], int], rows: int) -> StepResult:
        """Delete rows that are not archived. ``delete`` takes the time before which they are too old, and a limit."""
        done = StepResult()
        with done:
            done.deleted = delete(self._before_ns(name), rows)
            if done.deleted:
                self._records.add(name, done.deleted, None)
        done.has_more = done.deleted == rows
        return done

    def _write(self, done: StepResult, group: str, first_ns: int, key: str, lines: Iterable[Line]) -> Written | None:
        """Write lines to the archive, if there is one; its time does not count as the database's."""
        written = self._archive.write(group, first_ns, key, lines) if self._archive is not None else None
        done.archived = written.size if written is not None else 0
        return written

    def _prune_history(self, before_ns: int, rows: int) -> int:
        now_s = self._clock_ns() // NS_PER_S
        return self._storage.history.prune(now_s, now_s - before_ns // NS_PER_S if before_ns else 0, rows)

    def _trim_watch_log(self, _: int, rows: int) -> int:
        return self._storage.watch_log.trim(self.policy.changes_kept, rows)
