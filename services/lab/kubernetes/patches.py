"""Patches: merge (RFC 7386), JSON (RFC 6902) and strategic merge. Each returns a new object that shares unchanged parts
with the old one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from services.lab.kubernetes.errors import ApiError, bad_request, unsupported_media_type
from services.lab.kubernetes.requests import check_object
from services.lab.kubernetes.resources import Json

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json-patch+json"
KINDS = (JSON, MERGE, STRATEGIC)
STEPS_MAX = 10_000
_KEYS: dict[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "conditions": "type",
    "ownerReferences": "uid",
    "schedulingGates": "name",
}
"""Lists that strategic patches merge, and the key of their members; all others are replaced."""


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a merge patch."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def strategically_merged(target: Json, patch: Json) -> Json:
    """Apply a strategic merge patch. Raises ApiError 400 for directives other than the order and deletion of members.

    kubectl adds the order to each list that it merges, so that lists of unknown keys are rejected too.
    """
    result = dict(target)
    for key, value in patch.items():
        if key.startswith("$"):
            if key not in ("$patch", "$retainKeys") and key.removeprefix("$setElementOrder/") not in _KEYS:
                raise bad_request(f"this apiserver has no patches with {key}: replace the object")
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = strategically_merged(result.get(key) or {}, value)
        elif isinstance(value, list) and key in _KEYS:
            result[key] = _merge_members(result.get(key) or [], value, _KEYS[key])
        else:
            result[key] = value
    return result


def _merge_members(members: list[Json], patches: list[Json], key: str) -> list[Json]:
    found = {one[key]: one for one in members}
    for one in patches:
        if one.get("$patch") == "delete":
            found.pop(one[key], None)
        else:
            found[one[key]] = strategically_merged(found.get(one[key], {}), one)
    return list(found.values())


def apply_json_patch(target: Json, steps: Any) -> Json:
    """Apply a JSON patch. Raises ApiError 422 for an impossible step, 400 for an invalid patch."""
    if not isinstance(steps, list) or len(steps) > STEPS_MAX or not all(isinstance(one, dict) for one in steps):
        raise bad_request(f"error decoding patch: a JSON patch is a list of at most {STEPS_MAX} operations")
    result: Any = target
    for step in steps:
        try:
            path = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
            result = _apply_step(result, path, step)
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise ApiError(422, "Invalid", f"the server rejected our request: {step}: {error!r}") from None
    return result  # type: ignore[no-any-return]


def _apply_step(target: Any, path: list[str], step: Json) -> Any:
    """Do a step: add, replace, remove or test. Raises LookupError or ValueError for an impossible one."""
    key: Any = path[0]
    if isinstance(target, list):
        target, key = list(target), len(target) if key == "-" else int(key)
    else:
        target = dict(target)
    if len(path) > 1:
        target[key] = _apply_step(target[key], path[1:], step)
        return target
    match step["op"]:
        case "add" if isinstance(target, list):
            if key > len(target):
                raise IndexError(key)
            target.insert(key, step["value"])
        case "add":
            target[key] = step["value"]
        case "replace":
            target[key]
            target[key] = step["value"]
        case "remove":
            del target[key]
        case "test":
            if target[key] != step["value"]:
                raise ValueError(f"testing value {step['path']} failed")
        case other:
            raise ValueError(f"unknown operation {other!r}")
    return target


def change_of(kind: str, body: bytes) -> Callable[[Json], Json]:
    """Return the change that a body of this media type makes to an object. Raises ApiError 415 or 400."""
    if kind not in KINDS:
        raise unsupported_media_type(KINDS)
    try:
        patch = orjson.loads(body)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {error}") from None
    if kind == JSON:
        return lambda target: check_object(apply_json_patch(target, patch))
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: it is no object")
    merge = merge_patch if kind == MERGE else strategically_merged
    return lambda target: check_object(merge(target, patch))
