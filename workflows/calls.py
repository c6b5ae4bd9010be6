"""Calls of steps: small ones within the workflow task, others as activities. Also the timer of a wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from workflows.policies import LOCAL_CALL, READ_CALL, RECORDS_CALL, SUMMARY_MAX, CallOptions

R = TypeVar("R")


async def run_local(step: Callable[..., R], *args: Any, summary: str) -> R:
    """Run a step on storage. A few attempts are made within the workflow task, which must report while it waits and
    fills the history. When they fail, an activity waits for storage, whose attempts add no events.
    """
    try:
        return await workflow.execute_local_activity_method(step, args=args, summary=summary, **READ_CALL)
    except FailureError as error:
        if is_cancelled_exception(error) or is_final(error):
            raise
    return await workflow.execute_activity_method(step, args=args, summary=summary, **RECORDS_CALL)


def is_final(error: FailureError) -> bool:
    """Return whether another attempt would fail as well. A history has the error of a local activity without its
    wrapper.
    """
    fault = error if isinstance(error, ApplicationError) else error.cause
    return isinstance(fault, ApplicationError) and fault.non_retryable


async def call(step: Callable[..., R], *args: Any, is_small: bool, summary: str, options: CallOptions) -> R:
    """Run a step: a small one costs one event as a local activity, and eight with a task of its own as an activity.
    When a local activity fails, an activity is retried without limit: its attempts add no events.
    """
    if is_small:
        try:
            return await workflow.execute_local_activity_method(step, args=args, summary=summary, **LOCAL_CALL)
        except FailureError as error:
            if is_cancelled_exception(error):
                raise
    return await workflow.execute_activity_method(step, args=args, summary=summary, **options)


class WakeTimer:
    """Timer that fires once. A timer that would fire earlier is kept: an occasional early wake-up costs less than to
    cancel and start a timer for each wait.
    """

    def __init__(self) -> None:
        self._timer: asyncio.Task[None] | None = None
        self._fires_at_s = 0.0
        self.fired = False

    def set(self, delay_s: float, summary: str) -> None:
        fires_at_s = workflow.time() + delay_s
        self.fired = False
        if self._timer is not None:
            if self._fires_at_s <= fires_at_s:
                return
            self._timer.cancel()
        self._fires_at_s = fires_at_s
        self._timer = asyncio.create_task(self._fire_after(delay_s, summary[:SUMMARY_MAX]))

    async def _fire_after(self, delay_s: float, summary: str) -> None:
        await workflow.sleep(delay_s, summary=summary)
        self._timer, self.fired = None, True


async def stoppable(loop: Coroutine[Any, Any, R], stop: Callable[[], Awaitable[None]]) -> R:
    """Run ``loop`` to its end. A cancellation of the workflow, as in the Web UI, is passed on as a request by ``stop``.
    No step is interrupted; the workflow ends, or continues as new, after the request was made.
    """
    running = asyncio.create_task(loop)
    while True:
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await stop()
