"""Signals workflows, and starts missing ones, from a queue of keys, with a bounded number of signals in flight.

A workflow is signalled at most once per ``interval_s``, however many changes there are. A signal is retried with a
growing delay until Temporal accepts it. Keys of users' changes come first, and a key never waits for the retries of
others. Signals carry no data. Keys are lost with the process; they are also noted in storage, from which a sweep
repeats them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from weakref import WeakSet

from opentelemetry.metrics import CallbackOptions, Observation
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from peloton.lifecycle.backoff import Backoff
from peloton.model.ids import JobId, RespoolId
from services.storage.storage import Storage
from services.telemetry.metrics import counter, register_gauge
from services.temporal.connection import CAUSE
from services.temporal.task_queues import RPC_TIMEOUT
from services.wakers.failed_workflows import FailedWorkflows
from services.wakers.lifecycles import Lifecycle, StoredLifecycle, start
from services.wakers.wake_line import Due, Rank, WakeLine
from workflows.policies import Policies

log = logging.getLogger(__name__)

SIGNALS_IN_FLIGHT_MAX = 50
SIGNALS_FOR_PEOPLE = 10
"""Signals of the bound that are reserved for changes by users."""
RETRY_S, RETRY_MAX_S = 1.0, 30.0
"""Delay in seconds between attempts to signal a workflow, which doubles each time."""
WARNINGS_EVERY_S = 10.0
"""Seconds between two log lines on failed signals."""


@dataclass(frozen=True, slots=True)
class _Retry:
    """Next attempt to signal a workflow, which has at most one."""

    due: Due
    timer: asyncio.TimerHandle


class Waker:
    """Signals the workflows of one kind by their keys, which any thread may add. Construct it in its event loop."""

    def __init__(
        self,
        row: Lifecycle,
        client: Client,
        stored: Storage,
        policies: Policies,
        *,
        rank: Rank = Rank.CHANGE,
        pool_path: Callable[[RespoolId], str] = str,
        interval_s: float | None = None,
        task_queue: str = "",
    ) -> None:
        """Create the waker. ``rank``: the default rank of added keys. ``interval_s`` and ``task_queue`` replace those
        of the row.
        """
        self._row, self._client, self._stored, self._policies = row, client, stored, policies
        self._rank, self._pool_path, self._task_queue = rank, pool_path, task_queue
        self._interval_s = row.interval_s if interval_s is None else interval_s
        self._failed = FailedWorkflows(client)
        self._line = WakeLine()
        self._lock = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._is_pump_due = self._is_closed = False
        self._in_flight: set[asyncio.Task[None]] = set()
        self._attempts: dict[str, int] = {}  # consecutive failed attempts by key
        self._retries: dict[str, _Retry] = {}
        self._warned_at_s, self._failed_count = float("-inf"), 0
        _WAKERS.add(self)
        _make_gauge()

    async def close(self) -> None:
        self._is_closed = True
        for task in list(self._in_flight):
            task.cancel()
        await asyncio.gather(*self._in_flight, return_exceptions=True)

    @property
    def backlog(self) -> int:
        """Return the number of waiting keys."""
        with self._lock:
            return len(self._line)

    def observe(self) -> Iterable[Observation]:
        with self._lock:
            counts = self._line.counts()
        name = f"{self._row.kind.title().replace('-', '')}Waker"
        return [Observation(counts[rank], {"waker": name, "rank": rank.name.lower()}) for rank in Rank]

    def wake(self, keys: Iterable[str], cause: str = "", rank: Rank | None = None) -> None:
        """Queue a signal to each workflow, without blocking; it is retried until Temporal accepts it."""
        noted = list(keys)
        with self._lock:
            for key in noted:
                self._line.add(key, cause, self._rank if rank is None else rank)
            if self._is_pump_due or not noted:
                return
            self._is_pump_due = True
        with suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(self._pump)

    def jobs_changed(self, job_ids: Iterable[JobId], cause: str = "") -> None:
        """Implement ``ports.Lifecycles``, for a kind whose keys are ids of jobs."""
        self.wake(job_ids, cause)

    async def start(self, key: str) -> None:
        """Start the workflow of an object, if the object needs one and it is not running. A failed workflow is started
        at once for a user's change, and otherwise after its delay (``services/wakers/workflow_restarter.py``). Raises
        RPCError, and errors of storage.
        """
        row = self._row
        if not isinstance(row, StoredLifecycle):
            return
        found = await asyncio.to_thread(row.get, self._stored, key)
        if found is None or not row.needs_workflow(found):
            self._on_needless(key)
            return
        if self._rank is not Rank.PEOPLE and not (await self._failed.evaluate(row.workflow_id(key))).is_due:
            return
        labels = await asyncio.to_thread(row.labels, found, self._pool_path)
        await start(self._client, row, key, found, labels=labels, policies=self._policies, task_queue=self._task_queue)

    def _on_needless(self, key: str) -> None:
        """Note that an object has no workflow, and needs none."""

    async def _signal(self, key: str) -> None:
        """Signal the workflow of a key. Start it if it is missing: it may have failed, or the object was created while
        Temporal did not answer. Raises errors that have to be retried.
        """
        handle = self._client.get_workflow_handle(self._row.workflow_id(key))
        try:
            await handle.signal("changed", rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            await self.start(key)

    def _pump(self) -> None:
        """Send as many signals as the bound permits."""
        while True:
            with self._lock:
                self._is_pump_due = False
                due = None if self._is_closed else self._next()
            if due is None:
                return
            task = self._loop.create_task(self._wake(due))
            self._in_flight.add(task)
            task.add_done_callback(self._on_sent)

    def _next(self) -> Due | None:
        free = SIGNALS_IN_FLIGHT_MAX - len(self._in_flight)
        if free <= 0:
            return None
        return self._line.take(Rank.SWEEP if free > SIGNALS_FOR_PEOPLE else Rank.PEOPLE)

    def _on_sent(self, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        self._pump()

    async def _wake(self, due: Due) -> None:
        """Send one signal, in its own task and therefore in its own context."""
        CAUSE.set("; ".join(sorted(due.causes - {""})))
        try:
            await self._signal(due.key)
            self._attempts.pop(due.key, None)
            self._cancel_retry(due.key)
        except Exception as error:  # errors of Temporal or storage must not end the waker
            self._retry(due, error)
        finally:
            self._loop.call_later(self._interval_s, self._free, due.key)

    def _retry(self, due: Due, error: Exception) -> None:
        failed = self._attempts[due.key] = self._attempts.get(due.key, 0) + 1
        self._failed_count += 1
        _FAILED.add(1)
        if self._loop.time() - self._warned_at_s >= WARNINGS_EVERY_S:
            last = self._row.workflow_id(due.key)
            log.warning("%d signals to workflows failed, the last one to %s: %s", self._failed_count, last, error)
            self._warned_at_s, self._failed_count = self._loop.time(), 0
        if (other := self._cancel_retry(due.key)) is not None:  # of a change that came before the retry
            due = Due(due.key, min(due.rank, other.due.rank), due.causes | other.due.causes)
        delay_s = Backoff(RETRY_S, RETRY_MAX_S).delay_s(failed)
        self._retries[due.key] = _Retry(due, self._loop.call_later(delay_s, self._queue_again, due.key))

    def _cancel_retry(self, key: str) -> _Retry | None:
        """Cancel the retry of the key, and return it if there was one."""
        if (retry := self._retries.pop(key, None)) is not None:
            retry.timer.cancel()
        return retry

    def _queue_again(self, key: str) -> None:
        due = self._retries.pop(key).due
        for cause in due.causes:
            self.wake([key], cause, due.rank)

    def _free(self, key: str) -> None:
        with self._lock:
            self._line.free(key)
        self._pump()


_WAKERS: WeakSet[Waker] = WeakSet()
_HAS_GAUGE = threading.Event()
_FAILED = counter("peloton.wakeups.failed")


def _make_gauge() -> None:
    """Register the gauge ``peloton.wakeups.waiting``, one for all wakers of the process."""
    if not _HAS_GAUGE.is_set():
        _HAS_GAUGE.set()
        register_gauge("peloton.wakeups.waiting", observe_all)


def observe_all(_: CallbackOptions) -> Iterable[Observation]:
    return [one for waker in list(_WAKERS) for one in waker.observe()]
