"""Access of handlers to blocking storage, and bounds on writes in flight."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from peloton.errors import Reason, ResourceExhausted, Unavailable
from services.telemetry.metrics import counter

T = TypeVar("T")
P = ParamSpec("P")

STORAGE_THREADS = 16
WRITES_MAX = 64
"""Maximum number of writes in flight in one process."""
WRITE_BYTES_MAX = 512 * 2**20
"""Maximum total size of their requests; a single write may be larger."""
RETRY_AFTER_S = 1.0
_refused = counter("peloton.api.refused")


def make_overloaded(rule: str, text: str, retry_after_s: float = RETRY_AFTER_S) -> ResourceExhausted:
    """Return the error that rejects a retryable call, and count it."""
    _refused.add(1, {"rule": rule})
    return ResourceExhausted(f"{text}: try again in {retry_after_s:.1f} s", retry_after_s).because(
        Reason.OVERLOADED, rule=rule
    )


def check_wanted(context: Any) -> None:
    """Raise Unavailable if the caller no longer waits; called right before a commit, so that nothing is stored then."""
    remaining_s: float | None = context.time_remaining()
    if context.cancelled() or (remaining_s is not None and remaining_s <= 0):
        raise Unavailable("the call was cancelled by its caller; nothing has been stored")


class Calls:
    """Thread pool for blocking calls, with bounds on writes."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(STORAGE_THREADS, thread_name_prefix="api-storage")
        self._writes: set[asyncio.Task[object]] = set()
        self._write_bytes = 0

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``call`` in a thread with the caller's context variables."""
        bound = partial(contextvars.copy_context().run, partial(call, *args, **kwargs))
        return await asyncio.get_running_loop().run_in_executor(self._threads, bound)

    async def write(self, size_bytes: int, work: Callable[[], Coroutine[object, object, T]]) -> T:
        """Run ``work()`` to its end even when the caller disconnects, so that every commit is followed up.

        Raises ResourceExhausted, without starting, when too many writes are in flight.
        """
        if len(self._writes) >= WRITES_MAX:
            raise make_overloaded("writes", f"{len(self._writes)} writes are in flight, the bound is {WRITES_MAX}")
        if self._writes and self._write_bytes + size_bytes > WRITE_BYTES_MAX:
            raise make_overloaded(
                "write_bytes",
                f"writes in flight hold {self._write_bytes:,} bytes and this one has {size_bytes:,}, the bound is "
                f"{WRITE_BYTES_MAX:,}",
            )
        return await self.finish(work, size_bytes)

    async def finish(self, work: Callable[[], Coroutine[object, object, T]], size_bytes: int = 0) -> T:
        """Run ``work()`` to its end without a bound, for the commit of work that was admitted before."""
        task = asyncio.create_task(work())
        self._writes.add(task)
        self._write_bytes += size_bytes
        task.add_done_callback(partial(self._forget, size_bytes))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Wait for writes in flight."""
        await asyncio.gather(*self._writes, return_exceptions=True)
        self._threads.shutdown(wait=True)

    def _forget(self, size_bytes: int, task: asyncio.Task[object]) -> None:
        self._writes.discard(task)
        self._write_bytes -= size_bytes
        if not task.cancelled():
            task.exception()  # retrieved, since the caller may have disconnected
