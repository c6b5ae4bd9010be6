"""Parsing of requests: path and query, and the object in the body."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

import orjson
import yaml

from services.lab.kubernetes.deletion import DeleteOptions
from services.lab.kubernetes.errors import ApiError, bad_request, no_such_path, unsupported_media_type
from services.lab.kubernetes.forms import OPTIONS, check
from services.lab.kubernetes.resources import SERVED, Json, Resource

QUERIES_KEPT = 1024
"""Cached parsed queries: clients send the same few again and again."""
BODIES = ("application/json", "application/yaml")
_OWN_OF_NAMESPACES = ("status", "finalize")


class Target(NamedTuple):
    """Target of a path below /api/v1 or /apis: a resource, and one object of it if the path has a name."""

    resource: Resource
    namespace: str
    name: str
    subresource: str
    is_watch: bool = False


def target_of(path: str) -> Target:
    """Return the target. Raises ApiError 404."""
    parts = path.split("/")
    if "%" in path:
        parts = [unquote(part) for part in parts]
    if parts[1] == "api" and len(parts) > 3 and parts[2] == "v1":
        group, rest = "", parts[3:]
    elif parts[1] == "apis" and len(parts) > 4:
        group, rest = parts[2], parts[4:]
    else:
        raise no_such_path()
    is_watch = rest[0] == "watch" and len(rest) > 1
    if is_watch:
        rest = rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and (len(rest) > 3 or rest[2] not in _OWN_OF_NAMESPACES):
        namespace, rest = rest[1], rest[2:]
    resource = SERVED.get((group, rest[0]))
    if resource is None or len(rest) > 3 or (group and parts[3] != resource.version):
        raise no_such_path()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if (namespace and not resource.namespaced) or (name and resource.namespaced and not namespace):
        raise no_such_path()
    if subresource and subresource not in resource.subresources and subresource not in _OWN_OF_NAMESPACES:
        raise no_such_path()
    return Target(resource, namespace, name, subresource, is_watch)


@lru_cache(maxsize=QUERIES_KEPT)
def query_of(text: str) -> dict[str, str]:
    """Return the parsed query, from a cache: the caller must not change it."""
    return dict(parse_qsl(text, keep_blank_values=True))


def is_true(query: dict[str, str], name: str) -> bool:
    return query.get(name, "").lower() in ("true", "1", "t")


def is_dry_run(query: dict[str, str]) -> bool:
    """Return whether the query requests a dry run. Raises ApiError 400."""
    value = query.get("dryRun", "")
    if value not in ("", "All"):
        raise bad_request(f'dryRun: Unsupported value: "{value}": supported values: "All"')
    return value == "All"


def whole_number(query: dict[str, str], name: str) -> int | None:
    """Return an integer of the query. Raises ApiError 400 for any other text than an integer of at least 0."""
    text = query.get(name, "")
    if not text:
        return None
    if not text.isdigit():
        raise bad_request(f'{name}: Invalid value: "{text}": want a whole number')
    return int(text)


def media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def object_of(body: bytes, content_type: str) -> Json:
    """Return the object in the body. Raises ApiError 415 for another format, 400 for any other value."""
    kind = media_type(content_type) or BODIES[0]
    if kind not in BODIES:
        raise unsupported_media_type(BODIES)
    decoded = _decoded(body, kind)
    if not isinstance(decoded, dict):
        raise bad_request("the body of the request is no object")
    return decoded


def _decoded(body: bytes, kind: str) -> object:
    try:
        return yaml.safe_load(body) if kind.endswith("yaml") else orjson.loads(body)
    except (ValueError, yaml.YAMLError) as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None


def described_as(body: Json, resource: Resource) -> Json:
    """Return the object with its kind, which must be this one. Raises ApiError 400."""
    if body.get("kind", resource.kind) != resource.kind:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): it is a {body['kind']}"
        )
    version = body.get("apiVersion", resource.api_version)
    if version != resource.api_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
        )
    metadata = body.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise bad_request("metadata is no object")
    return body


def delete_options(body: bytes, content_type: str, query: dict[str, str]) -> DeleteOptions:
    """Return the options in body or query. Raises ApiError 400."""
    return options_of(object_of(body, content_type) if body else {}, query)


def options_of(given: Json, query: dict[str, str]) -> DeleteOptions:
    """Return the options of a DeleteOptions object, with defaults from the query. Raises ApiError 400."""
    check("DeleteOptions", given, OPTIONS)
    wanted = given.get("preconditions") or {}
    grace_s = given.get("gracePeriodSeconds")
    if grace_s is None and query.get("gracePeriodSeconds"):
        try:
            grace_s = int(query["gracePeriodSeconds"])
        except ValueError:
            raise bad_request(f"gracePeriodSeconds: {query['gracePeriodSeconds']!r} is no whole number") from None
    if grace_s is not None and (isinstance(grace_s, bool) or not isinstance(grace_s, int)):
        raise bad_request(f"gracePeriodSeconds: {grace_s!r} is no whole number")
    is_dry = is_dry_run(query) or given.get("dryRun") == ["All"]
    return DeleteOptions(grace_s, wanted.get("uid") or "", wanted.get("resourceVersion") or "", is_dry)


def accepts_json(accept: str) -> bool:
    return not accept or "json" in accept or "*/*" in accept or "application/*" in accept


def not_acceptable() -> ApiError:
    return ApiError(406, "NotAcceptable", "only the following media types are accepted: application/json")
