"""Requests of users, received as workflow updates of Temporal.

A validator refuses a request that the workflow itself finds impossible. A handler calls an activity that does the same
as the API. Both refuse with the sentences of the API, and a refusal fails the request alone, never the workflow. A
handler changes no state of the workflow but requests another turn, so that it may run during any step.

Each handler has a validator with the same parameters: arguments of the wrong type are refused there, and would fail the
workflow task in the handler.

History: 2 events for each request and 6 for its activity; none for one that a validator refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from peloton.errors import PelotonError, Unavailable
    from workflows.policies import REQUEST_CALL, SUMMARY_MAX

R = TypeVar("R")


def refuse(error: PelotonError) -> NoReturn:
    raise ApplicationError(error.message, type=error.code, non_retryable=True)


async def carry_out(step: Callable[..., R], *args: Any, summary: str) -> R:
    """Call an activity for the workflow update that is being handled. Raises ApplicationError with the message of the
    activity's last attempt.
    """
    request = workflow.current_update_info()
    asked = f"{summary}: request {request.id}" if request is not None else summary
    try:
        return await workflow.execute_activity_method(step, args=args, summary=asked[:SUMMARY_MAX], **REQUEST_CALL)
    except ActivityError as error:
        if isinstance(error.cause, ApplicationError):
            raise ApplicationError(error.cause.message, type=error.cause.type, non_retryable=True) from None
        limit_s = REQUEST_CALL["schedule_to_close_timeout"].total_seconds()
        refuse(
            Unavailable(
                f"{summary}: no answer within {limit_s:.0f} s: check whether it was done, then repeat the request"
            )
        )
