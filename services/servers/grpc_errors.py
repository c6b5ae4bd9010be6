"""Peloton's errors on gRPC and back: the code is the status, the message its text, the reason in its details."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc

from peloton.api import error_details
from peloton.api.error_details import Details
from peloton.api.limits import OWN_CODE, RETRY_AFTER
from peloton.errors import ERRORS, Aborted, Internal, PelotonError, ResourceExhausted, Unavailable
from peloton.model.text import cut
from peloton.ports import CALL_DEADLINE_S
from services.telemetry.metrics import counter, histogram
from services.telemetry.traces import calling

R = TypeVar("R")

DETAILS_BYTES_MAX = 6_000
"""Bytes of the text of a status as sent. It travels in a header, and clients refuse headers above 8 KiB at random, and
above 16 KiB always."""


REPEATED_BYTES_MAX = 800
"""Bytes of the text as sent above which it is cut where the details of the status repeat it."""
_OK, _UNKNOWN = grpc.StatusCode.OK.name, grpc.StatusCode.UNKNOWN.name
_PEER_CALLS, _PEER_DURATIONS = counter("peloton.grpc.peer_calls"), histogram("peloton.grpc.peer_duration")
RETRY_KEYS = (RETRY_AFTER, "grpc-retry-pushback-ms")
"""Trailing metadata that give the delay before a retry: Peloton's key, and the one that gRPC's own retries read."""


def status_of(error: PelotonError) -> grpc.StatusCode:
    """Return the gRPC status that the error's code names, or the one that clients of the original expect."""
    return grpc.StatusCode[error.status if isinstance(error, Aborted) else error.code]


def trailing_of(error: PelotonError) -> tuple[tuple[str, str | bytes], ...]:
    """Return the trailing metadata of the status: its details, the delay before a retry, and the code of an error whose
    status is another one.
    """
    retry_after_s = error.retry_after_s if isinstance(error, ResourceExhausted) else None
    details = Details(error.reason, error.metadata, retry_after_s)
    status, text = status_of(error), fit_header(error.message, REPEATED_BYTES_MAX)
    trailing: list[tuple[str, str | bytes]] = [
        (error_details.KEY, error_details.encode(status.value[0], text, details)),
    ]
    if retry_after_s is not None:
        trailing += ((key, str(round(retry_after_s * 1000))) for key in RETRY_KEYS)
    if status.name != error.code:
        trailing.append((OWN_CODE, error.code))
    return tuple(trailing)


def abort(context: Any, error: PelotonError) -> Any:
    """Abort a call of a synchronous server with the status of the error."""
    context.set_trailing_metadata(trailing_of(error))
    context.abort(status_of(error), details_of(error))


def details_of(error: PelotonError) -> str:
    """Return the text of the status. It fits a header: errors quote little of the rejected value."""
    return fit_header(error.message)


def fit_header(text: str, bytes_max: int = DETAILS_BYTES_MAX) -> str:
    """Return the text, or as much of its beginning as fits a header together with a count of its characters."""
    if _count_fitting(text, bytes_max) == len(text):
        return text
    return cut(text, _count_fitting(text, bytes_max - len(cut(text, 0))))


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


def from_grpc(error: grpc.RpcError, what: str) -> PelotonError:
    """Return the error that a client raises: the code and text of the answer, or Unavailable when no answer came in
    time.
    """
    code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
    details = (error.details() if isinstance(error, grpc.Call) else "") or str(error)
    if code in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
        return Unavailable(f"{what} did not answer in time: {details}")
    found = error_details.details_of(error.trailing_metadata() if isinstance(error, grpc.Call) else ())
    translated = ERRORS.get(code.name, Internal)(f"{what}: {details}")
    return translated.because(found.reason, **found.metadata) if found.reason else translated


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


def call_peer(what: str, method: Callable[..., R], request: object, bound_s: float) -> R:
    """Call a method of ``what`` within the bound and the caller's remaining time. Raises Peloton's errors."""
    began_s, code = time.perf_counter(), _OK
    try:
        with calling(what) as metadata:
            return method(request, timeout=timeout_s(bound_s), metadata=metadata)
    except grpc.RpcError as error:
        code = error.code().name if isinstance(error, grpc.Call) else _UNKNOWN
        raise from_grpc(error, what) from error
    finally:
        _PEER_CALLS.add(1, {"peer": what, "code": code})
        _PEER_DURATIONS.record(time.perf_counter() - began_s, {"peer": what})
