"""Parsing of requests: path and query, and the object in the body."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

import orjson
import yaml

from services.lab.kubernetes.deletion import DeleteOptions
from services.lab.kubernetes.errors import bad_request, no_such_path, unsupported_media_type
from services.lab.kubernetes.resources import SERVED, Json, Resource
from services.lab.shared.http.server import Request

QUERIES_KEPT = 1024
"""Cached parsed queries: clients send the same few again and again."""
BODIES = ("application/json", "application/yaml")


class Target(NamedTuple):
    """Target of a path below /api/v1 or /apis: a resource, and one object of it if the path has a name."""

    resource: Resource
    namespace: str
    name: str
    subresource: str


def target_of(path: str) -> Target:
    """Return the target. Raises ApiError 404."""
    parts = [unquote(part) for part in path.split("/")] if "%" in path else path.split("/")
    if parts[1] == "api" and len(parts) > 3 and parts[2] == "v1":
        group, rest = "", parts[3:]
    elif parts[1] == "apis" and len(parts) > 4:
        group, rest = parts[2], parts[4:]
    else:
        raise no_such_path()
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and (len(rest) > 3 or rest[2] != "status"):
        namespace, rest = rest[1], rest[2:]
    resource = SERVED.get((group, rest[0]))
    name, subresource = (*rest[1:3], "", "")[:2]
    if (
        resource is None
        or len(rest) > 3
        or (group and parts[3] != resource.version)
        or (namespace and not resource.namespaced)
        or (name and resource.namespaced and not namespace)
        or (subresource and subresource not in resource.subresources)
    ):
        raise no_such_path()
    return Target(resource, namespace, name, subresource)


@lru_cache(maxsize=QUERIES_KEPT)
def query_of(text: str) -> dict[str, str]:
    """Return the parsed query, from a cache: the caller must not change it."""
    return dict(parse_qsl(text, keep_blank_values=True))


def is_true(query: dict[str, str], name: str) -> bool:
    return query.get(name, "").lower() in ("true", "1", "t")


def whole_number(query: dict[str, str], name: str) -> int | None:
    """Return an integer of the query. Raises ApiError 400 for any other text than an integer of at least 0."""
    text = query.get(name, "")
    if not text:
        return None
    if not text.isdigit():
        raise bad_request(f'{name}: Invalid value: "{text}": want a whole number')
    return int(text)


def media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def object_of(request: Request) -> Json:
    """Return the object in the body. Raises ApiError 415 for another format, 400 for any other value."""
    kind = media_type(request) or BODIES[0]
    if kind not in BODIES:
        raise unsupported_media_type(BODIES)
    try:
        decoded = yaml.safe_load(request.body) if kind.endswith("yaml") else orjson.loads(request.body)
    except (ValueError, yaml.YAMLError) as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None
    return check_object(decoded)


def check_object(body: object) -> Json:
    """Return an object whose largest parts are objects. Raises ApiError 400."""
    if not isinstance(body, dict):
        raise bad_request("the body of the request is no object")
    for field in ("metadata", "spec", "status"):
        if not isinstance(body.get(field) or {}, dict):
            raise bad_request(f"{field} is no object")
    return body


def check_kind(body: Json, resource: Resource) -> Json:
    """Return the object, whose kind must be this one. Raises ApiError 400."""
    if body.get("kind", resource.kind) != resource.kind:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): it is a {body['kind']}"
        )
    version = body.get("apiVersion", resource.api_version)
    if version != resource.api_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
        )
    return body


def delete_options(given: Json, query: dict[str, str]) -> DeleteOptions:
    """Return the options of a DeleteOptions object, with defaults from the query. Raises ApiError 400."""
    grace_s = given.get("gracePeriodSeconds", query.get("gracePeriodSeconds") or None)
    try:
        grace_s = None if grace_s is None else int(grace_s)
    except (TypeError, ValueError):
        raise bad_request(f"gracePeriodSeconds: {grace_s!r} is no whole number") from None
    wanted = given.get("preconditions") or {}
    return DeleteOptions(grace_s, wanted.get("uid") or "", wanted.get("resourceVersion") or "")


def accepts_json(accept: str) -> bool:
    return not accept or "json" in accept or "*/*" in accept or "application/*" in accept
