"""Turns our errors into Temporal's: what is worth repeating is retried, what is not fails the step at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from temporalio.exceptions import ApplicationError

from peloton.errors import AlreadyExists, InvalidArgument, NotFound, PelotonError

P = ParamSpec("P")
R = TypeVar("R")

_FINAL = (InvalidArgument, NotFound, AlreadyExists)


def translated(call: Callable[P, R]) -> Callable[P, R]:
    """Raise ``ApplicationError`` with the error's code as its type instead of a PelotonError."""

    @wraps(call)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except PelotonError as error:
            raise ApplicationError(error.message, type=error.code, non_retryable=isinstance(error, _FINAL)) from error

    return wrapper
