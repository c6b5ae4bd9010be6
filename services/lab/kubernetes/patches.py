"""Patches: merge (RFC 7386), JSON (RFC 6902) and strategic merge. Each returns a new object that shares unchanged parts
with the old one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from services.lab.kubernetes.errors import ApiError, bad_request, unsupported_media_type
from services.lab.kubernetes.resources import Json

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
KINDS = (JSON, MERGE, STRATEGIC, APPLY)
STEPS_MAX = 10_000

_KEYS: dict[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "conditions": "type",
    "addresses": "type",
    "env": "name",
    "ports": "containerPort",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "secrets": "name",
}
"""Lists that strategic patches merge, and the key of their members; all others are replaced. `spec.taints` of a node
and `spec.tolerations` of a pod are replaced by the real one too."""
_SETS = frozenset({"finalizers"})
"""Lists of plain values that strategic patches unite."""


def merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def strategically_merged(target: Json, patch: Json) -> Json:
    """Apply a strategic merge patch. Raises ApiError 400 for unknown directives."""
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"unknown $patch directive {directive!r}")
    result = dict(target)
    kept = patch.get("$retainKeys")
    if kept is not None:
        result = {key: value for key, value in result.items() if key in kept}
    for key, value in patch.items():
        if key in ("$patch", "$retainKeys") or key.startswith("$setElementOrder/"):
            continue
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            result[field] = [one for one in result.get(field) or () if one not in value]
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            found = result.get(key)
            result[key] = strategically_merged(found if isinstance(found, dict) else {}, value)
        elif isinstance(value, list):
            result[key] = _merged_list(key, result.get(key) or [], value)
        else:
            result[key] = value
    return result


def _merged_list(field: str, target: list[Any], patch: list[Any]) -> list[Any]:
    if field in _SETS:
        return [*target, *(one for one in patch if one not in target)]
    key = _KEYS.get(field)
    if key is None or not all(isinstance(one, dict) for one in patch):
        return patch
    if any(set(one) == {"$patch"} and one["$patch"] == "replace" for one in patch):
        return [one for one in patch if "$patch" not in one]
    result = list(target)
    for one in patch:
        if key not in one:
            raise bad_request(f"map: {one} does not contain declared merge key: {key}")
        at = next((index for index, member in enumerate(result) if member.get(key) == one[key]), None)
        if one.get("$patch") == "delete":
            if at is not None:
                del result[at]
        elif at is None:
            result.append(strategically_merged({}, one))
        else:
            result[at] = strategically_merged(result[at], one)
    return result


def stepped(target: Json, steps: Any) -> Json:
    """Apply a JSON patch. Raises ApiError 422 for an impossible step, 400 for an invalid patch."""
    if not isinstance(steps, list) or len(steps) > STEPS_MAX or not all(isinstance(one, dict) for one in steps):
        raise bad_request(f"error decoding patch: a JSON patch is a list of at most {STEPS_MAX} operations")
    result: Any = target
    for step in steps:
        try:
            result = _step(result, step)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ApiError(422, "Invalid", f"the server rejected our request: {step}: {error!r}") from None
    if not isinstance(result, dict):
        raise bad_request("the patched object is no object")
    return result


def _step(target: Any, step: Json) -> Any:
    kind, path = step["op"], _pointer(step["path"])
    match kind:
        case "add":
            return _added(target, path, step["value"])
        case "replace":
            _at(target, path)
            return _added(_removed(target, path), path, step["value"]) if path else step["value"]
        case "remove":
            return _removed(target, path)
        case "move":
            source = _pointer(step["from"])
            return _added(_removed(target, source), path, _at(target, source))
        case "copy":
            return _added(target, path, _at(target, _pointer(step["from"])))
        case "test":
            if _at(target, path) != step["value"]:
                raise ValueError(f"testing value {step['path']} failed")
            return target
    raise ValueError(f"unknown operation {kind!r}")


def _pointer(text: str) -> list[str]:
    if not text:
        return []
    if not text.startswith("/"):
        raise ValueError(f"{text!r} is no JSON pointer")
    return [step.replace("~1", "/").replace("~0", "~") for step in text[1:].split("/")]


def _at(target: Any, path: list[str]) -> Any:
    for step in path:
        target = target[_index(step, len(target))] if isinstance(target, list) else target[step]
    return target


def _index(step: str, length: int) -> int:
    if not step.isdigit() or int(step) > length:
        raise IndexError(f"no index {step} in a list of {length}")
    return int(step)


def _added(target: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(target, list):
        if rest:
            at = _index(step, len(target) - 1)
            return [*target[:at], _added(target[at], rest, value), *target[at + 1 :]]
        at = len(target) if step == "-" else _index(step, len(target))
        return [*target[:at], value, *target[at:]]
    return {**target, step: _added(target[step], rest, value) if rest else value}


def _removed(target: Any, path: list[str]) -> Any:
    step, rest = path[0], path[1:]
    if isinstance(target, list):
        at = _index(step, len(target) - 1)
        between = [_removed(target[at], rest)] if rest else []
        return [*target[:at], *between, *target[at + 1 :]]
    if rest:
        return {**target, step: _removed(target[step], rest)}
    if step not in target:
        raise KeyError(step)
    return {key: value for key, value in target.items() if key != step}


def change_of(kind: str, body: bytes) -> Callable[[Json], Json]:
    """Return the change that a body of this media type makes to an object. Raises ApiError 415 or 400."""
    if kind not in KINDS:
        raise unsupported_media_type(KINDS)
    if kind == APPLY:
        raise ApiError(415, "UnsupportedMediaType", "this apiserver has no server-side apply: send a merge patch")
    try:
        patch = orjson.loads(body)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {error}") from None
    if kind == JSON:
        return lambda target: stepped(target, patch)
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: it is no object")
    if kind == MERGE:
        return lambda target: merged(target, patch)
    return lambda target: strategically_merged(target, patch)
