"""OpenAPI document of the API as JSON over HTTP, generated from the descriptors and comments of the .proto files.

A service that is served under several names appears once, under the name that clients use.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import metadata
from typing import Any, TypeAlias

import orjson
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, MethodDescriptor, ServiceDescriptor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from peloton.api.comments import comment_of
from peloton.api.service_names import SPELLINGS, service_of
from services.web.bodies import TIMEOUT_S_MAX
from services.web.faults import HTTP_STATUSES

Schema = dict[str, Any]
# Two unrelated classes implement descriptors, and messages are typed as having either.
Field: TypeAlias = Any

TIMESTAMP = "google.protobuf.Timestamp"
ERROR = "Error"
ABOUT = """Every method of the public gRPC API as `POST /api/SERVICE/METHOD`, with protobuf JSON.

Keys are in camelCase; in requests they may also be spelled as in the .proto files, and enums may be given by number.
What is zero, empty or not set is left out of answers. 64-bit integers are text. Errors have an HTTP status and
`{"code": ..., "message": ...}` as in Connect's unary protocol; errors that the v0 API puts into its answers stay there,
with status 200."""

_K = FieldDescriptor
_SPECIAL_NUMBERS = ["NaN", "Infinity", "-Infinity"]
_NUMBER: Schema = {"anyOf": [{"type": "number"}, {"enum": _SPECIAL_NUMBERS}]}
_SCALARS: dict[int, Schema] = {
    _K.CPPTYPE_INT32: {"type": "integer", "format": "int32", "minimum": -(2**31), "maximum": 2**31 - 1},
    _K.CPPTYPE_UINT32: {"type": "integer", "format": "int64", "minimum": 0, "maximum": 2**32 - 1},
    _K.CPPTYPE_INT64: {"type": ["string", "integer"], "format": "int64", "pattern": "^-?[0-9]+$"},
    _K.CPPTYPE_UINT64: {"type": ["string", "integer"], "format": "uint64", "pattern": "^[0-9]+$"},
    _K.CPPTYPE_DOUBLE: _NUMBER,
    _K.CPPTYPE_FLOAT: _NUMBER,
    _K.CPPTYPE_BOOL: {"type": "boolean"},
}


def route() -> Route:
    return Route("/api/openapi.json", _answer, methods=["GET"])


async def _answer(_: Request) -> Response:
    return Response(_encode(), media_type="application/json")


@cache
def _encode() -> bytes:
    return orjson.dumps(document())


def document() -> Schema:
    """Build the document in OpenAPI 3.1."""
    schemas: dict[str, Schema] = {ERROR: _error_schema()}
    paths = {}
    for names in SPELLINGS:
        for method in _find_documented(names).methods:
            paths[f"/api/{names[0]}/{method.name}"] = {"post": _operation(names[0], method)}
            _add(schemas, method.input_type)
            _add(schemas, method.output_type)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Peloton", "version": metadata.version("peloton-temporal"), "description": ABOUT},
        "servers": [{"url": "/"}],
        "tags": [{"name": names[0], "description": _about_service(names)} for names in SPELLINGS],
        "paths": paths,
        "components": {"schemas": schemas, "parameters": {"timeout": _timeout()}},
    }


def _find_documented(names: tuple[str, ...]) -> ServiceDescriptor:
    """Return the descriptor that has the comments: the service in the package of its messages."""
    return service_of(names[1] if len(names) > 1 else names[0])


def _about_service(names: tuple[str, ...]) -> str:
    service = _find_documented(names)
    heading = comment_of(service.file.name)
    if len(names) > 1:
        return f"{heading}\n\nAlso called {' and '.join(names[1:])}."
    return "\n\n".join(filter(None, (heading, comment_of(service.full_name))))


def _operation(service: str, method: MethodDescriptor) -> Schema:
    streams = []
    if method.client_streaming:
        streams.append("The body has one such message per line.")
    if method.server_streaming:
        streams.append("The answer has one object per line, with such a message as `result` or an `error`.")
    request, answer = ({"schema": _ref(kind.full_name)} for kind in (method.input_type, method.output_type))
    if method.server_streaming:
        answer = {"schema": {"type": "object", "properties": {"result": answer["schema"], "error": _ref(ERROR)}}}
    failed = {"description": "An error.", "content": {"application/json": {"schema": _ref(ERROR)}}}
    return {
        "operationId": f"{service}.{method.name}",
        "tags": [service],
        "description": "\n\n".join(text for text in (comment_of(method.full_name), *streams) if text),
        "parameters": [{"$ref": "#/components/parameters/timeout"}],
        "requestBody": {"required": True, "content": {_media(method.client_streaming): request}},
        "responses": {
            "200": {"description": "The answer.", "content": {_media(method.server_streaming): answer}},
            "default": failed,
        },
    }


def _media(is_stream: bool) -> str:
    return "application/x-ndjson" if is_stream else "application/json"


def _timeout() -> Schema:
    return {
        "name": "Connect-Timeout-Ms",
        "in": "header",
        "description": "Milliseconds after which the call is given up.",
        "schema": {"type": "integer", "minimum": 1, "maximum": int(TIMEOUT_S_MAX * 1000)},
    }


def _error_schema() -> Schema:
    codes = {"type": "string", "enum": list(HTTP_STATUSES)}
    properties = {"code": codes, "message": {"type": "string"}}
    return {"type": "object", "required": ["code", "message"], "properties": properties}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _add(schemas: dict[str, Schema], kind: Descriptor) -> None:
    """Add a message and all types that it contains."""
    waiting = [kind]
    while waiting:
        one = waiting.pop()
        if one.full_name in schemas:
            continue
        schemas[one.full_name] = _message_schema(one)
        fields: list[Field] = list(one.fields) if one.full_name != TIMESTAMP else []
        for field in fields:
            value = field.message_type.fields_by_name["value"] if _is_map(field) else field
            if value.message_type is not None:
                waiting.append(value.message_type)
            elif value.enum_type is not None:
                schemas[value.enum_type.full_name] = _enum_schema(value.enum_type)


def _message_schema(kind: Descriptor) -> Schema:
    if kind.full_name == TIMESTAMP:
        return {"type": "string", "format": "date-time"}
    properties = {field.json_name: _field_schema(field) for field in kind.fields}
    schema: Schema = {"type": "object", "properties": properties}
    if about := "\n\n".join(text for text in (comment_of(kind.full_name), *_choices(kind)) if text):
        schema["description"] = about
    if required := [field.json_name for field in kind.fields if field.is_required]:
        schema["required"] = required
    return schema


def _choices(kind: Descriptor) -> Iterator[str]:
    for oneof in kind.oneofs:
        if len(oneof.fields) > 1:
            yield f"Only one of {', '.join(field.json_name for field in oneof.fields)}."


def _enum_schema(kind: EnumDescriptor) -> Schema:
    names = [value.name for value in kind.values]
    comments = {name: comment_of(f"{kind.full_name}.{name}") for name in names}
    about = [comment_of(kind.full_name), *(f"{name}: {text}" for name, text in comments.items() if text)]
    text = "\n\n".join(filter(None, about))
    return {"type": "string", "enum": names} | ({"description": text} if text else {})


def _field_schema(field: Field) -> Schema:
    if _is_map(field):
        schema: Schema = {
            "type": "object",
            "additionalProperties": _one_schema(field.message_type.fields_by_name["value"]),
        }
    elif field.is_repeated:
        schema = {"type": "array", "items": _one_schema(field)}
    else:
        schema = dict(_one_schema(field))
    if text := comment_of(field.full_name):
        schema["description"] = text
    if field.GetOptions().deprecated:
        schema["deprecated"] = True
    return schema


def _one_schema(field: Field) -> Schema:
    if field.message_type is not None:
        return _ref(field.message_type.full_name)
    if field.enum_type is not None:
        return _ref(field.enum_type.full_name)
    if field.type == _K.TYPE_STRING:
        return {"type": "string"}
    if field.type == _K.TYPE_BYTES:
        return {"type": "string", "contentEncoding": "base64"}
    return _SCALARS[field.cpp_type]


def _is_map(field: Field) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)
