"""Error responses over HTTP, with the codes and statuses of the Connect protocol."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any

import grpc
import grpc.aio
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from starlette.responses import JSONResponse

from peloton.api.error_details import DOMAIN, list_messages
from peloton.api.limits import RETRY_AFTER, code_of, is_connection_failure
from peloton.errors import PelotonError, Reason
from peloton.model.times import NS_PER_S

HTTP_STATUSES = {
    "canceled": 499,
    "unknown": 500,
    "invalid_argument": 400,
    "deadline_exceeded": 504,
    "not_found": 404,
    "already_exists": 409,
    "permission_denied": 403,
    "resource_exhausted": 429,
    "failed_precondition": 400,
    "aborted": 409,
    "out_of_range": 400,
    "unimplemented": 501,
    "internal": 500,
    "unavailable": 503,
    "data_loss": 500,
    "unauthenticated": 401,
}


class Refusal(Exception):
    """Error response. ``status`` overrides the status of the code; ``headers`` are added to the response."""

    def __init__(
        self,
        code: str,
        message: str,
        status: int = 0,
        headers: Mapping[str, str] | None = None,
        details: Iterable[Message] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status or HTTP_STATUSES[code]
        self.headers = dict(headers or {})
        self.details = list(details)

    def content(self) -> dict[str, Any]:
        """Return the body as defined by Connect. Each detail is repeated in readable form as ``debug``."""
        details = [
            {
                "type": one.DESCRIPTOR.full_name,
                "value": b64encode(one.SerializeToString()).decode().rstrip("="),
                "debug": MessageToDict(one),
            }
            for one in self.details
        ]
        return {"code": self.code, "message": self.message} | ({"details": details} if details else {})

    def response(self) -> JSONResponse:
        return JSONResponse(self.content(), self.status, self.headers)


def connect_code(status: str | grpc.StatusCode) -> str:
    """Return the Connect code of a gRPC status, which may be given by name."""
    name = status if isinstance(status, str) else status.name
    return "canceled" if name == "CANCELLED" else name.lower()


def refusal(word: str, message: str) -> JSONResponse:
    return Refusal(word, message).response()


def answer_refusal(error: PelotonError) -> JSONResponse:
    return refusal_of(error).response()


def too_busy(message: str, retry_after_s: float) -> Refusal:
    """Return the error of a call that was not started, so that the client can retry it."""
    headers = {"Retry-After": str(math.ceil(retry_after_s))}
    wait = RetryInfo()
    wait.retry_delay.FromNanoseconds(round(retry_after_s * NS_PER_S))
    details = [ErrorInfo(reason=Reason.OVERLOADED, domain=DOMAIN), wait]
    text = f"{message}: try again in {retry_after_s:g} s"
    return Refusal("resource_exhausted", text, headers=headers, details=details)


def refusal_of(error: BaseException) -> Refusal:
    """Convert an error. The message of an unexpected error is not sent to the client."""
    match error:
        case Refusal():
            return error
        case PelotonError():
            info = ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=error.metadata)
            return Refusal(connect_code(error.code), error.message, details=[info])
        case grpc.aio.AioRpcError():
            return _refusal_of_call(error)
    return Refusal("internal", f"internal error: {type(error).__name__}; see the log of role web")


def _refusal_of_call(error: grpc.aio.AioRpcError) -> Refusal:
    details = error.details() or ""
    if error.code() is grpc.StatusCode.UNAVAILABLE and is_connection_failure(error):
        return Refusal("unavailable", f"the api does not answer: {details}")
    waits_ms = [int(value) for key, value in error.trailing_metadata() if key == RETRY_AFTER]
    headers = {"Retry-After": str(math.ceil(waits_ms[0] / 1000))} if waits_ms else {}
    return Refusal(
        connect_code(code_of(error)), details, headers=headers, details=list_messages(error.trailing_metadata())
    )
