"""Calls of a ``PelotonExecutor``: those that wait, and what becomes of those that were handed to an instance."""

from __future__ import annotations

import pickle
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, Future
from dataclasses import dataclass, field
from typing import Any

CALLS_MAX = 1_000_000
"""Calls that wait or run at once."""
CALL_BYTES_MAX = 1 << 30
BATCH_MAX = 1_000
BATCH_BYTES_MAX = 16 << 20
BATCH_S = 0.2
"""Calls are handed out in batches that take about this long."""
SPREAD = 4
"""Each worker gets at most this part of its share of the waiting calls, so that all end at about the same time."""
WEIGHT = 0.3
"""Weight of a new batch in the mean duration of a call."""

Result = tuple[int, bool, bytes, str]
"""Position in the batch, success, pickled value or error, traceback."""


class CallLost(RuntimeError):
    """The instances that ran a call were lost too often."""


class RemoteTraceback(Exception):
    """Cause of an error of a call: its traceback in the pod."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


@dataclass(eq=False)
class Call:
    """A call and its future. ``losses`` counts instances that were lost with it."""

    function: bytes
    arguments: bytes
    future: Future[Any] = field(default_factory=Future)
    is_started: bool = False
    losses: int = 0

    @property
    def size_bytes(self) -> int:
        return len(self.function) + len(self.arguments)


class Calls:
    """The queue of calls, shared by the threads of the executor."""

    def __init__(self, repeats_max: int) -> None:
        self.is_closed = False
        self._repeats_max = repeats_max
        self._changed = threading.Condition()
        self._waiting: deque[Call] = deque()
        self._running = 0
        self._mean_s: float | None = None
        self._broken: str = ""

    def put(self, call: Call) -> None:
        """Queue a call. Raises BrokenExecutor, or RuntimeError after ``close``, or ValueError for what is too large."""
        if call.size_bytes > CALL_BYTES_MAX:
            raise ValueError(f"the call has {call.size_bytes} bytes when pickled, limit {CALL_BYTES_MAX}")
        with self._changed:
            if self._broken:
                raise BrokenExecutor(self._broken)
            if self.is_closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if len(self._waiting) + self._running >= CALLS_MAX:
                raise ValueError(f"{CALLS_MAX} calls wait or run, which is the limit: wait for results")
            self._waiting.append(call)
            self._changed.notify()

    def outstanding(self) -> int:
        """Return how many calls wait or run; without cancelled ones once no more come."""
        with self._changed:
            if self.is_closed:
                self._waiting = deque(call for call in self._waiting if not call.future.cancelled())
            return len(self._waiting) + self._running

    def take(self, worker_count: int, wait_s: float) -> list[Call]:
        """Return the next batch, which is empty if no call comes within ``wait_s``."""
        with self._changed:
            if not self._waiting:
                self._changed.wait(wait_s)
            batch: list[Call] = []
            size, size_bytes = self._batch_size(worker_count), 0
            while self._waiting and len(batch) < size and size_bytes < BATCH_BYTES_MAX:
                if batch and self._waiting[0].losses:
                    break
                call = self._waiting.popleft()
                if not call.is_started and not call.future.set_running_or_notify_cancel():
                    continue
                call.is_started = True
                batch.append(call)
                size_bytes += call.size_bytes
                if call.losses:  # alone: if it is what kills the worker, it takes no other call along
                    break
            self._running += len(batch)
            return batch

    def settle(self, batch: Sequence[Call], results: Sequence[Result], seconds: float) -> None:
        """Store the results of a batch, and queue the calls again that its worker did not come to."""
        for position, is_success, content, text in results:
            set_result(batch[position].future, is_success, content, text)
        done = {position for position, *_ in results}
        self.put_back([call for position, call in enumerate(batch) if position not in done])
        with self._changed:
            self._running -= len(results)
            if results:
                mean_s = seconds / len(results)
                self._mean_s = mean_s if self._mean_s is None else self._mean_s + WEIGHT * (mean_s - self._mean_s)

    def put_back(self, calls: Sequence[Call]) -> None:
        """Queue calls first that were taken and have not begun."""
        with self._changed:
            self._running -= len(calls)
            if not self._broken:
                self._waiting.extendleft(reversed(calls))
                self._changed.notify(len(calls))
                return
        fail(calls, BrokenExecutor(self._broken))

    def lose(self, batch: Sequence[Call], instance: int) -> None:
        """Queue the calls again that were lost with their instance, except those that were lost too often."""
        for call in batch:
            call.losses += 1
        given_up = [call for call in batch if call.losses > self._repeats_max]
        with self._changed:
            self._running -= len(given_up)
        for call in given_up:
            text = f"the call was lost with its instance {call.losses} times, limit {self._repeats_max}"
            fail([call], CallLost(f"{text}; the last one was instance {instance}"))
        self.put_back([call for call in batch if call.losses <= self._repeats_max])

    def close(self, cancel: bool = False) -> None:
        """Take no more calls, and cancel the waiting ones if that is wanted."""
        with self._changed:
            self.is_closed = True
            cancelled = list(self._waiting) if cancel else []
            if cancel:
                self._waiting.clear()
            self._changed.notify_all()
        for call in cancelled:
            if call.is_started:
                fail([call], CallLost("the executor was shut down after the instance of the call was lost"))
            elif call.future.cancel():
                call.future.set_running_or_notify_cancel()

    def break_off(self, text: str) -> None:
        """Fail the waiting calls, and all that come later."""
        with self._changed:
            self._broken = text
            waiting, self._waiting = list(self._waiting), deque()
        fail(
            [call for call in waiting if call.is_started or call.future.set_running_or_notify_cancel()],
            BrokenExecutor(text),
        )

    def _batch_size(self, worker_count: int) -> int:
        if not self._mean_s:
            return 1
        by_share = len(self._waiting) // (SPREAD * max(worker_count, 1))
        return max(1, min(by_share, int(BATCH_S / self._mean_s), BATCH_MAX))


def fail(calls: Sequence[Call], error: BaseException) -> None:
    for call in calls:
        call.future.set_exception(error)


def set_result(future: Future[Any], is_success: bool, content: bytes, text: str) -> None:
    """Set the value or the error of a call, an error of unpickling it included."""
    try:
        value = pickle.loads(content)  # noqa: S301
    except Exception as error:
        future.set_exception(error)
        return
    if is_success:
        future.set_result(value)
    else:
        value.__cause__ = RemoteTraceback(text)
        future.set_exception(value)
