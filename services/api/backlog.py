"""Back-pressure: calls that add work are delayed under a large backlog, and rejected with a retry time under a larger
one.

The backlog is counted in storage, which all apis share, at most every ``POLL_S`` and only while such calls arrive. In
between, an api adds the calls that it has admitted itself: a single api never exceeds a bound, and several exceed it at
most by the calls admitted between two counts. Reads, and calls that end things, are never rejected here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

from opentelemetry.metrics import CallbackOptions, Observation

from peloton.errors import Reason
from services.api.calls import Calls, make_overloaded
from services.api.v1.lockdown import LOCKABLE
from services.servers.grpc_handlers import AroundCalls, within
from services.storage.jobs.search import Backlog
from services.telemetry.metrics import register_gauge

POLL_S = 0.25
READ_SHARE = 0.05
"""Share of time that counting may take: a slow count is repeated less often."""
PACE_S = 0.25
PACE_MAX_S = 5.0
"""Longest delay of a call in seconds, well below the timeout of any client."""
RETRY_S = 1.0
RETRY_MAX_S = 30.0
ADDS = ("Create", "Update", "Replace", "Patch")
"""Prefixes of methods that add jobs or pods."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds at which calls that add work are rejected; at ``jobs_paced`` they are delayed."""

    jobs_paced: int = 40
    jobs_waiting: int = 10_000
    jobs_active: int = 100_000
    pods_active: int = 2_000_000


def excess(found: Backlog, bounds: Bounds) -> tuple[str, str] | None:
    """Return the name of the first bound that is reached, and a text with the numbers; None if there is none."""
    rules = (
        ("jobs_waiting", "jobs wait to be started", found.jobs_waiting, bounds.jobs_waiting),
        ("jobs_active", "jobs have not ended", found.jobs_active, bounds.jobs_active),
        ("pods_active", "pods are wanted by jobs that have not ended", found.pods_active, bounds.pods_active),
    )
    return next(((rule, f"{n:,} {text}, the bound is {most:,}") for rule, text, n, most in rules if n >= most), None)


class Backlogs(Protocol):
    """Source of backlog counts."""

    def backlog(self) -> Backlog: ...

    def jobs_waiting(self) -> int:
        """Return this part of the backlog, which is counted quickly."""
        ...


class BacklogGate(AroundCalls):
    """Interceptor that rejects or delays calls; it runs inside ErrorsToStatus, which turns a rejection into a
    status."""

    def __init__(
        self,
        records: Backlogs,
        calls: Calls,
        bounds: Bounds,
        clock_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._records = records
        self._calls = calls
        self._bounds = bounds
        self._clock_s = clock_s
        self._sleep = sleep
        self._counting_lock = asyncio.Lock()
        self._turn = asyncio.Lock()  # of delayed calls, which proceed in the order in which they came
        self._stored = Backlog()
        self._read_at_s = self._due_s = self._all_due_s = -float("inf")
        self._in_flight = 0
        self._uncounted = 0  # admitted, and possibly not counted yet
        self._admitted = self._refused = 0  # since the last count
        self._rate = 0.0  # admitted per second before it
        register_gauge("peloton.api.backlog", self._observe)

    async def enter(self) -> None:
        """Wait for a slot before adding work; ``leave`` must follow. Raises ResourceExhausted."""
        until_s = self._clock_s() + PACE_MAX_S
        async with self._turn:
            await self._refresh_counts()
            while self._stored.jobs_waiting + self._uncounted >= self._bounds.jobs_paced and self._clock_s() < until_s:
                await self._sleep(PACE_S)
                await self._refresh_counts()
        stored, unseen = self._stored, self._uncounted
        found = replace(stored, jobs_waiting=stored.jobs_waiting + unseen, jobs_active=stored.jobs_active + unseen)
        if (reached := excess(found, self._bounds)) is not None:
            # Retries are spread over time at the rate at which calls were admitted.
            wait_s = min(RETRY_S + self._refused / max(self._rate, 1.0), RETRY_MAX_S)
            self._refused += 1
            raise make_overloaded(*reached, wait_s).because(Reason.QUEUE_FULL, rule=reached[0])
        self._admitted += 1
        self._uncounted += 1
        self._in_flight += 1

    def leave(self) -> None:
        self._in_flight -= 1

    async def _refresh_counts(self) -> None:
        async with self._counting_lock:  # no call enters meanwhile
            began_s = self._clock_s()
            if began_s < self._due_s:
                return
            unseen = self._in_flight  # maybe stored already: counted twice rather than not at all
            if began_s >= self._all_due_s:
                self._stored = await self._calls.run(self._records.backlog)
                self._all_due_s = self._next_s(began_s)
                self._due_s = began_s + POLL_S
            else:
                waiting = await self._calls.run(self._records.jobs_waiting)
                active = self._stored.jobs_active + self._uncounted - unseen  # some of which may have ended
                self._stored = replace(self._stored, jobs_waiting=waiting, jobs_active=active)
                self._due_s = self._next_s(began_s)
            self._rate = self._admitted / (began_s - self._read_at_s)
            self._uncounted, self._admitted, self._refused = unseen, 0, 0
            self._read_at_s = began_s

    def _next_s(self, began_s: float) -> float:
        """Return when a count is repeated."""
        now_s = self._clock_s()
        return max(began_s + POLL_S, now_s + (now_s - began_s) / READ_SHARE)

    def _observe(self, _: CallbackOptions) -> Iterable[Observation]:
        found = self._records.backlog()
        for field in fields(Backlog):
            yield Observation(getattr(found, field.name), {"of": field.name})

    def wrap(self, method: str, handler: Any) -> Any:
        service, _, name = method.removeprefix("/").rpartition("/")
        if service not in LOCKABLE or not name.startswith(ADDS):
            return handler

        @asynccontextmanager
        async def admit(request: Any, _: Any) -> AsyncIterator[Any]:
            await self.enter()
            try:
                yield request
            finally:
                self.leave()

        return within(handler, admit, handler.request_deserializer)
