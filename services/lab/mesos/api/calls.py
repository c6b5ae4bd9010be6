"""Shared parts of the scheduler, operator and agent APIs: method, content types, JSON of a message."""

from __future__ import annotations

import orjson

from services.lab.mesos.api.schema import ConversionError, convert
from services.lab.mesos.resources import Json
from services.lab.shared.http.server import TEXT, Request, Response, plain

JSON_TYPE = "application/json"
PROTOBUF_TYPE = "application/x-protobuf"


def read_call(request: Request, message: str) -> Json | Response:
    """Parse a call, or return the rejection of a request without a valid message of this type."""
    fault = content_fault(request)
    if fault is not None:
        return fault
    call = _parse(request.body, message)
    return plain(400, call) if isinstance(call, str) else call


def _parse(body: bytes, message: str) -> Json | str:
    """Return the call as a dict, or the text of the 400."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        # The real master's text ends with the input after the place of the fault.
        tail = body.decode("utf-8", "replace")[error.pos :] if error.pos < len(body) else ""
        return f"Failed to parse body into JSON: syntax error at line {error.lineno} near: {tail}"
    try:
        return convert(value, message)
    except ConversionError as error:
        return f"Failed to convert JSON into Call protobuf: {error}"


def method_fault(request: Request) -> Response:
    text = f"405 Method Not Allowed. Expecting one of {{ 'POST' }}, but received '{request.method}'."
    return Response(405, text.encode(), (("Allow", "POST"), ("Content-Type", TEXT)))


def content_fault(request: Request) -> Response | None:
    """Check the method and Content-Type."""
    if request.method != "POST":
        return method_fault(request)
    content_type = request.headers.get("content-type")
    if content_type is None:
        return plain(400, "Expecting 'Content-Type' to be present")
    if content_type == PROTOBUF_TYPE:
        # minicluster does not support protobuf.
        return plain(400, "Failed to parse body into Call protobuf")
    if content_type != JSON_TYPE:
        return plain(415, f"Expecting 'Content-Type' of {JSON_TYPE} or {PROTOBUF_TYPE}")
    return None


def accepts_json(request: Request) -> bool:
    accept = request.headers.get("accept")
    if not accept:
        return True
    kinds = [item.partition(";")[0].strip() for item in accept.split(",")]
    return any(kind in (JSON_TYPE, "application/*", "*/*") for kind in kinds)
