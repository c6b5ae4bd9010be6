"""Rejection of calls while reads or writes are locked down.

Locks are stored, so they apply to every process and survive restarts. Locks on Kill, Launch and GoalStateEngine are
checked by the processes that do these things.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from peloton.api.service_names import (
    BULK_SERVICE,
    JOB_MANAGER,
    JOB_SERVICE,
    LOOKUP_SERVICE,
    POD_SERVICE,
    SCHEDULE_SERVICE,
    TASK_MANAGER,
    UPDATE_SERVICE,
    WATCH_SERVICE,
)
from peloton.errors import Reason, Unavailable
from services.api.calls import Calls
from services.servers.grpc_handlers import AroundCalls, within
from services.storage.lockdowns import Lockdowns, refusal_text

LOCKED_AGE_MAX_S = 1.0
"""Maximum delay after which a lockdown set by another process applies here, in seconds."""

READS = ("Get", "Query", "List", "Browse", "Find")
WRITES = (
    "Create",
    "Delete",
    "Start",
    "Stop",
    "Restart",
    "Refresh",
    "Update",
    "Pause",
    "Resume",
    "Pulse",
    "Rollback",
    "Abort",
    "Replace",
    "Patch",
    "Trigger",
    "Backfill",
)
LOCKABLE = frozenset(
    {
        *JOB_MANAGER,
        *TASK_MANAGER,
        *BULK_SERVICE,
        *LOOKUP_SERVICE,
        *SCHEDULE_SERVICE,
        *UPDATE_SERVICE,
        *JOB_SERVICE,
        *POD_SERVICE,
        *WATCH_SERVICE,
    }
)
"""Services of jobs. Pools and hosts can be viewed and managed while jobs are locked down."""


class Locks:
    """Current locks, read at most once in LOCKED_AGE_MAX_S."""

    def __init__(self, stored: Lockdowns, calls: Calls, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._stored = stored
        self._calls = calls
        self._clock_s = clock_s
        self._locked: frozenset[str] | None = None  # not read yet
        self._read_at_s = 0.0

    async def check(self, kind: str) -> None:
        """Raise Unavailable when calls of this kind, Read or Write, are rejected."""
        if kind in await self._read_known():
            raise Unavailable(refusal_text(kind)).because(Reason.LOCKED_DOWN, kind=kind)

    async def set(self, component: str, locked: bool) -> None:
        await self._calls.run(self._stored.set, component, locked)
        self._locked = None

    async def all(self) -> frozenset[str]:
        """Return the locked components."""
        return frozenset(await self._calls.run(self._stored.read_locked))

    async def _read_known(self) -> frozenset[str]:
        now_s = self._clock_s()
        known = self._locked
        if known is None or now_s - self._read_at_s >= LOCKED_AGE_MAX_S:
            self._read_at_s = now_s  # before the call: others use the old value meanwhile
            known = self._locked = frozenset(await self._calls.run(self._stored.read_locked))
        return known


def _kind(method: str) -> str:
    """Return Read or Write, or "" for methods that are never locked."""
    service, _, name = method.removeprefix("/").rpartition("/")
    if service not in LOCKABLE:
        return ""
    if service in WATCH_SERVICE or name.startswith(READS):
        return "Read"
    return "Write" if name.startswith(WRITES) else ""


class LockdownGate(AroundCalls):
    """Interceptor that rejects locked calls; it runs inside ErrorsToStatus, which turns the error into a status."""

    def __init__(self, locks: Locks) -> None:
        self._locks = locks

    def wrap(self, method: str, handler: Any) -> Any:
        kind = _kind(method)
        if not kind:
            return handler

        @asynccontextmanager
        async def check(request: Any, _: Any) -> AsyncIterator[Any]:
            await self._locks.check(kind)
            yield request

        return within(handler, check, handler.request_deserializer)
