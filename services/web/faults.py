"""Refusals over HTTP: the code words and statuses of the Connect protocol."""

from __future__ import annotations

import grpc
from starlette.responses import JSONResponse

from peloton.errors import PelotonError

HTTP_STATUSES = {
    "canceled": 499,
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
    "unavailable": 503,
    "unauthenticated": 401,
}
"""All other codes are 500."""


def code_word(status: str | grpc.StatusCode) -> str:
    """Of a gRPC status, or of its name."""
    name = status if isinstance(status, str) else status.name
    return "canceled" if name == "CANCELLED" else name.lower()


def refusal(word: str, message: str) -> JSONResponse:
    return JSONResponse({"code": word, "message": message}, HTTP_STATUSES.get(word, 500))


def refused(error: PelotonError) -> JSONResponse:
    return refusal(code_word(error.code), error.message)
