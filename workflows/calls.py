"""How a step is called: within the workflow task when it is small, else as an activity; and the alarm."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import FailureError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from workflows.policies import AT_ONCE_CALL, CallOptions

R = TypeVar("R")


async def call(step: Callable[..., R], *args: Any, is_small: bool, summary: str, options: CallOptions) -> R:
    """A small step costs one event as a local activity, and eight with a task of its own as an activity. When it fails
    it is an activity that is tried again as long as it takes: its attempts fill no history."""
    if is_small:
        try:
            return await workflow.execute_local_activity_method(step, args=args, **AT_ONCE_CALL)
        except FailureError as error:
            if is_cancelled_exception(error):
                raise
    return await workflow.execute_activity_method(step, args=args, summary=summary, **options)


class Alarm:
    """Rings once. One that is set to ring earlier already stays as it is: to look too early now and then costs less
    than to start a timer and to cancel it for each wait."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self.rang = False

    def set(self, patience_s: float) -> None:
        loop = asyncio.get_running_loop()  # the workflow's: its time is Temporal's
        self.rang = False
        if self._timer is not None:
            if self._timer.when() <= loop.time() + patience_s:
                return
            self._timer.cancel()
        self._timer = loop.call_later(patience_s, self._ring)

    def _ring(self) -> None:
        self._timer, self.rang = None, True
