"""Answers as bytes: a head that is mostly the same, and a body of JSON."""

from __future__ import annotations

from http import HTTPStatus

import orjson

from services.lab.kubernetes.errors import ApiError
from services.lab.kubernetes.resources import Json
from services.lab.shared.http.server import http_date

JSON_TYPE = "application/json"
TEXT_TYPE = "text/plain; charset=utf-8"
_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


def answer(status: int, body: bytes, content_type: str = JSON_TYPE, more: str = "") -> bytes:
    """``more``: header lines, each with its end."""
    head = (
        f"{_LINES[status]}Cache-Control: no-cache, private\r\nContent-Type: {content_type}\r\nDate: {http_date()}\r\n"
        f"{more}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode("latin-1") + body


def json_answer(status: int, body: Json) -> bytes:
    return answer(status, orjson.dumps(body))


def text_answer(status: int, text: str) -> bytes:
    return answer(status, text.encode(), TEXT_TYPE)


def refusal(error: ApiError) -> bytes:
    more = f"Retry-After: {error.retry_after_s}\r\n" if error.retry_after_s is not None else ""
    return answer(error.code, orjson.dumps(error.status()), JSON_TYPE, more)


def success(code: int, details: Json | None = None) -> Json:
    """Return the Status of a request whose answer has no object."""
    body: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return {**body, "details": details} if details is not None else {**body, "code": code}
