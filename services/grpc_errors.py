"""Peloton's errors on gRPC and back: the code is the status, the message is the details."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

import grpc

from peloton.errors import ERRORS, Internal, PelotonError, Unavailable
from peloton.model.text import cut
from peloton.ports import CALL_DEADLINE_S

log = logging.getLogger(__name__)
R = TypeVar("R")

DETAILS_BYTES_MAX = 6_000
"""Bytes of the text of a status as sent. It travels in a header, and clients refuse headers above 8 KiB at random, and
above 16 KiB always."""


def status_of(error: PelotonError) -> grpc.StatusCode:
    """Return the gRPC status that the error's code names."""
    return grpc.StatusCode[error.code]


def details_of(error: PelotonError) -> str:
    """Return the text of the status. It fits a header: errors quote little of the rejected value."""
    return fit_header(error.message)


def fit_header(text: str) -> str:
    """Return the text, or as much of its beginning as fits a header together with a count of its characters."""
    if _count_fitting(text, DETAILS_BYTES_MAX) == len(text):
        return text
    return cut(text, _count_fitting(text, DETAILS_BYTES_MAX - len(cut(text, 0))))


def _count_fitting(text: str, bytes_max: int) -> int:
    """Return how many characters fit in ``bytes_max`` bytes. Headers are percent-encoded: each byte of UTF-8 that is
    not printable ASCII, or is "%", is sent as three.
    """
    left = bytes_max
    for count, character in enumerate(text):
        is_sent_as_is = " " <= character <= "~" and character != "%"
        left -= 1 if is_sent_as_is else 3 * len(character.encode(errors="surrogatepass"))
        if left < 0:
            return count
    return len(text)


def abort_on_error(method: Callable[..., R]) -> Callable[..., R]:
    """Wrap a method of a synchronous servicer so that a PelotonError becomes the call's status."""

    @wraps(method)
    def wrapper(self: Any, request: Any, context: grpc.ServicerContext) -> R:
        try:
            return method(self, request, context)
        except PelotonError as error:
            context.abort(status_of(error), details_of(error))
        except Exception:
            log.exception("%s failed", method.__name__)
            context.abort(grpc.StatusCode.INTERNAL, f"{method.__name__} failed; the server's log says why")
        raise AssertionError("abort raises")

    return wrapper


def from_grpc(error: grpc.RpcError, what: str) -> PelotonError:
    """Return the error that a client raises: the code and text of the answer, or Unavailable when no answer came in
    time.
    """
    code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
    details = (error.details() if isinstance(error, grpc.Call) else "") or str(error)
    if code in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
        return Unavailable(f"{what} did not answer in time: {details}")
    return ERRORS.get(code.name, Internal)(f"{what}: {details}")


def timeout_s(bound_s: float) -> float:
    """Return the timeout of a call: the bound, or the caller's remaining time when that is shorter. Raises Unavailable
    when no time remains.
    """
    deadline_s = CALL_DEADLINE_S.get()
    left_s = bound_s if deadline_s is None else min(bound_s, deadline_s - time.monotonic())
    if left_s <= 0:
        raise Unavailable("no time is left for another call")
    return left_s


@contextmanager
def translate_rpc_errors(what: str) -> Iterator[None]:
    """Raise gRPC errors of a client's call to ``what`` as Peloton's errors."""
    try:
        yield
    except grpc.RpcError as error:
        raise from_grpc(error, what) from error
