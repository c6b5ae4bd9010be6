"""Errors of an apiserver, each a Status object with a code, a reason and details."""

from __future__ import annotations

from collections.abc import Sequence

from services.lab.kubernetes.resources import Json, Resource


class ApiError(Exception):
    def __init__(
        self, code: int, reason: str, message: str, details: Json | None = None, retry_after_s: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after_s = retry_after_s

    def status(self) -> Json:
        body: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body


def _details(resource: Resource, name: str, kind: str = "") -> Json:
    group = {"group": resource.group} if resource.group else {}
    return {"name": name, **group, "kind": kind or resource.plural}


def not_found(resource: Resource, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', _details(resource, name))


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(resource: Resource, name: str) -> ApiError:
    return ApiError(409, "AlreadyExists", f'{resource.qualified} "{name}" already exists', _details(resource, name))


def conflict(resource: Resource, name: str, why: str, subresource: str = "", kind: str = "") -> ApiError:
    plural = kind or (f"{resource.plural}/{subresource}" if subresource else resource.plural)
    called = kind or (plural if subresource else resource.qualified)
    text = f'Operation cannot be fulfilled on {called} "{name}": {why}'
    return ApiError(409, "Conflict", text, _details(resource, name, plural))


def was_modified(resource: Resource, name: str) -> ApiError:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def forbidden(resource: Resource, name: str, why: str, causes: Sequence[Json] = ()) -> ApiError:
    details = _details(resource, name)
    if causes:
        details["causes"] = list(causes)
    return ApiError(403, "Forbidden", f'{resource.qualified} "{name}" is forbidden: {why}', details)


def cause(field: str, reason: str, message: str) -> Json:
    """Return one fault of an object: ``reason`` is FieldValueInvalid, FieldValueRequired, FieldValueForbidden, ..."""
    return {"reason": reason, "message": message, "field": field}


def invalid(resource: Resource, name: str, causes: Sequence[Json]) -> ApiError:
    texts = [f"{one['field']}: {one['message']}" for one in causes]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = {**_details(resource, name, resource.kind), "causes": list(causes)}
    subject = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    return ApiError(422, "Invalid", f'{subject} "{name}" is invalid: {text}', details)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def method_not_allowed() -> ApiError:
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    text = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return ApiError(415, "UnsupportedMediaType", text)


def resource_expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def too_old(version: int, oldest: int) -> ApiError:
    """Return the error of a watch from a version before the window of events."""
    return resource_expired(f"too old resource version: {version} ({oldest})")


def too_large(version: int, current: int) -> ApiError:
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    text = f"Timeout: Too large resource version: {version}, current: {current}"
    return ApiError(504, "Timeout", text, {"causes": causes, "retryAfterSeconds": 1}, retry_after_s=1)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")
