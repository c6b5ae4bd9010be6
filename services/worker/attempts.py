"""Counts attempts of activities, and reports repeatedly failing ones to storage, where users can see them.

Temporal cannot list workflows by their pending activities, but the worker that executes the attempts sees each of them.
While activities fail, the worker reports them every two seconds, at most NAMED_MAX by name.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from peloton.lifecycle.workflow_problems import ATTEMPTS, error_text
from peloton.model.times import unix_ns
from peloton.model.workflow_trouble import FailingActivity
from services.telemetry.log_context import about
from services.telemetry.metrics import histogram

log = logging.getLogger(__name__)

REPORT_S = 2.0
NAMED_MAX = 20
"""Maximum of the activities that a report names. The others are only counted."""
TRACKED_MAX = 10_000
"""Maximum of the failing activities in memory. Further ones are ignored until some of these have ended."""
NEXT_ATTEMPT_S = 20.0
"""Seconds within which the next attempt is expected on this worker. After that another worker has it, or the workflow
has ended.
"""

_OF_JOBS = {"job", "gang", "update", "daemon"}
"""Kinds of workflows whose ids have the id of a job after the first slash."""
_DURATIONS = histogram("peloton.activity.duration")

Report = Callable[[Sequence[FailingActivity], int], None]
"""Receives the first failing activities, and their count."""


@dataclass(slots=True)
class _Failing:
    seen: FailingActivity
    ends_s: float  # latest end of the last attempt


class Attempts(Interceptor):
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failing: dict[tuple[str, str], _Failing] = {}  # by run and activity id

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Counted(next, self)

    def begin(self, info: activity.Info) -> None:
        key, known = _key(info), self._failing.get(_key(info))
        if info.attempt < ATTEMPTS - 1 or (known is None and len(self._failing) >= TRACKED_MAX):
            return
        error = known.seen.error if known is not None else ""
        since_ns = unix_ns(info.scheduled_time)
        seen = FailingActivity(info.workflow_id or "", info.activity_type, info.attempt, error, since_ns)
        limit = info.start_to_close_timeout
        self._failing[key] = _Failing(seen, self._clock() + limit.total_seconds() if limit else inf)

    def end(self, info: activity.Info, error: str) -> None:
        """Record the end of an attempt, unless a later one has begun; an empty ``error`` means success."""
        key, known = _key(info), self._failing.get(_key(info))
        if known is None or known.seen.attempt > info.attempt:
            return
        if not error:
            del self._failing[key]
        else:
            known.seen, known.ends_s = replace(known.seen, error=error), min(known.ends_s, self._clock())

    def report(self) -> tuple[list[FailingActivity], int]:
        """Return the activities that have failed longest, and the count of all failing ones."""
        until_s = self._clock() - NEXT_ATTEMPT_S
        self._failing = {key: one for key, one in self._failing.items() if one.ends_s > until_s}
        failing = [one.seen for one in self._failing.values() if one.seen.attempt >= ATTEMPTS]
        return sorted(failing, key=lambda one: one.since_ns)[:NAMED_MAX], len(failing)


class _Counted(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, attempts: Attempts) -> None:
        super().__init__(next)
        self._attempts = attempts

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        began_s, outcome = time.perf_counter(), "failed"
        try:
            with about(**_fields_of(info.workflow_id or "")):
                result = await self._count(input, info)
            outcome = "done"
            return result
        finally:
            labels = {"activity": info.activity_type, "outcome": outcome}
            _DURATIONS.record(time.perf_counter() - began_s, labels)

    async def _count(self, input: ExecuteActivityInput, info: activity.Info) -> Any:
        if info.is_local:  # its attempts are bounded
            return await super().execute_activity(input)
        self._attempts.begin(info)
        began_s = time.monotonic()
        try:
            result = await super().execute_activity(input)
        except BaseException as error:
            message = error.message if isinstance(error, ApplicationError) else str(error)
            self._attempts.end(info, error_text(message) or type(error).__name__)
            raise
        self._attempts.end(info, _lateness_error(info, time.monotonic() - began_s))
        return result


def _fields_of(workflow_id: str) -> dict[str, str]:
    """Return what log lines of the activities of a workflow are about."""
    kind, _, rest = workflow_id.partition("/")
    return {"workflow": workflow_id} | ({"job": rest.partition("/")[0]} if kind in _OF_JOBS else {})


def _lateness_error(info: activity.Info, duration_s: float) -> str:
    """Return the error of an attempt whose result came too late for Temporal to accept it, or "" if it came in time."""
    limit = info.start_to_close_timeout
    return f"it did not end within {limit.total_seconds():g} s" if limit and duration_s > limit.total_seconds() else ""


def _key(info: activity.Info) -> tuple[str, str]:
    return info.workflow_run_id or "", info.activity_id


@asynccontextmanager
async def reporting(attempts: Attempts, report: Report, period_s: float = REPORT_S) -> AsyncIterator[None]:
    """Run the reports until the block ends: while activities fail, and once more when none fails."""

    async def run() -> None:
        had_some = True  # an earlier process of the same name may have reported some
        while True:
            found, count = attempts.report()
            if count or had_some:
                try:
                    await asyncio.to_thread(report, found, count)
                    had_some = count > 0
                except Exception as error:  # error of storage: the next report replaces this one
                    log.debug("failing activities not reported, retrying: %s", error)
            await asyncio.sleep(period_s)

    task = asyncio.create_task(run(), name="reports of failing activities")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
