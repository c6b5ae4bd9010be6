"""Definition of activities: their errors, the deadline of their calls, and their end after a cancellation."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from peloton.errors import Aborted, AlreadyExists, InvalidArgument, NotFound, PelotonError, ResourceExhausted
from peloton.ports import CALL_DEADLINE_S

P = ParamSpec("P")
R = TypeVar("R")

_FINAL = (InvalidArgument, NotFound, AlreadyExists)
_REFUSALS = (*_FINAL, Aborted)
"""Errors that are final answers to a user, who reads the state before another attempt."""
ANSWER_S = 0.5
"""Seconds that an activity reserves for its answer. One of its calls still under way when Temporal makes the next
attempt would run concurrently with that attempt.
"""


def define_activity(
    name: str, *, is_request: bool = False, may_refuse: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Define the activity ``name``; ``is_request``: it does what a person asks for, and a refusal is its answer;
    ``may_refuse``: it refuses work that cannot be done. Neither refusal counts as a failure of the worker.

    It raises ``ApplicationError`` with the error's code as its type instead of a PelotonError, and its calls to ports
    end before its deadline. No exception is thrown into its thread, where it might interrupt a transaction: a long
    activity ends at its next ``report_progress``.
    """

    def define(method: Callable[P, R]) -> Callable[P, R]:
        @wraps(method)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            token = CALL_DEADLINE_S.set(_deadline_s())
            try:
                return method(*args, **kwargs)
            except PelotonError as error:
                final = isinstance(error, _REFUSALS if is_request else _FINAL) or (may_refuse and _is_too_much(error))
                is_benign = final and (is_request or may_refuse)
                kind = ApplicationErrorCategory.BENIGN if is_benign else ApplicationErrorCategory.UNSPECIFIED
                raise ApplicationError(error.message, type=error.code, non_retryable=final, category=kind) from error
            finally:
                CALL_DEADLINE_S.reset(token)

        return activity.defn(name=name, no_thread_cancel_exception=True)(wrapper)

    return define


def _is_too_much(error: PelotonError) -> bool:
    """Return whether work exceeds a limit whatever the load is, such as the quota of a user."""
    return isinstance(error, ResourceExhausted) and error.retry_after_s is None


def _deadline_s() -> float | None:
    """Return the deadline; None outside a worker, as in tests that call the method itself, and when Temporal sets no
    limit.
    """
    limit = activity.info().start_to_close_timeout if activity.in_activity() else None
    return None if limit is None else time.monotonic() + limit.total_seconds() - ANSWER_S


def report_progress(*details: int) -> None:
    """Send a heartbeat. Raises ApplicationError, after which Temporal makes another attempt, when this one is cancelled
    or its worker is shut down."""
    activity.heartbeat(*details)
    if activity.is_cancelled() or activity.is_worker_shutdown():
        raise ApplicationError("interrupted between two transactions", type="INTERRUPTED")
