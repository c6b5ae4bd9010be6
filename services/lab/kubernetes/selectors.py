"""Label selectors and field selectors, as functions of an object."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

from services.lab.kubernetes.errors import bad_request
from services.lab.kubernetes.resources import Json

Matches: TypeAlias = Callable[[Json], bool]

SELECTORS_KEPT = 512
"""Cached parsed selectors: clients send the same few again and again."""
_KEY = r"(?:[a-zA-Z0-9](?:[-a-zA-Z0-9.]*[a-zA-Z0-9])?/)?[a-zA-Z0-9](?:[-\w.]*[a-zA-Z0-9])?"
_VALUE = r"(?:[a-zA-Z0-9](?:[-\w.]*[a-zA-Z0-9])?)?"
_SET = re.compile(rf"\s*({_KEY})\s+(in|notin)\s*\(([^()]*)\)\s*(?:,|$)")
_COMPARED = re.compile(rf"\s*({_KEY})\s*(==|=|!=|>|<)\s*({_VALUE})\s*(?:,|$)")
_EXISTS = re.compile(rf"\s*(!?)\s*({_KEY})\s*(?:,|$)")

FIELDS: dict[str, frozenset[str]] = {
    "pods": frozenset(
        {
            "metadata.name", "metadata.namespace", "spec.nodeName", "spec.restartPolicy", "spec.schedulerName",
            "spec.serviceAccountName", "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName",
        }
    ),
    "nodes": frozenset({"metadata.name", "metadata.namespace", "spec.unschedulable"}),
    "namespaces": frozenset({"metadata.name", "metadata.namespace", "status.phase"}),
    "secrets": frozenset({"metadata.name", "metadata.namespace", "type"}),
    "events": frozenset(
        {
            "metadata.name", "metadata.namespace", "involvedObject.kind", "involvedObject.namespace",
            "involvedObject.name", "involvedObject.uid", "involvedObject.apiVersion",
            "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "source",
            "type",
        }
    ),
}  # fmt: skip
_NAMES = frozenset({"metadata.name", "metadata.namespace"})


@lru_cache(maxsize=SELECTORS_KEPT)
def by_labels(text: str) -> Matches:
    """Return the filter of a label selector. Raises ApiError 400 for an invalid text."""
    wanted: list[Callable[[dict[str, str]], bool]] = []
    at = 0
    while at < len(text):
        if found := _SET.match(text, at):
            values = frozenset(value.strip() for value in found[3].split(","))
            wanted.append(_in_set(found[1], values) if found[2] == "in" else _not_in_set(found[1], values))
        elif found := _COMPARED.match(text, at):
            wanted.append(_compared(found[1], found[2], found[3]))
        elif found := _EXISTS.match(text, at):
            wanted.append(_is_missing(found[2]) if found[1] else _is_there(found[2]))
        else:
            raise bad_request(f"unable to parse requirement: {text[at:]!r} in label selector {text!r}")
        at = found.end()

    return _all(wanted)


def by_requirements(selector: Json | None) -> Matches:
    """Return the filter of a LabelSelector object; a missing one matches no object, an empty one matches all."""
    if selector is None:
        return lambda body: False
    wanted: list[Callable[[dict[str, str]], bool]] = [
        _in_set(key, frozenset({value})) for key, value in (selector.get("matchLabels") or {}).items()
    ]
    for one in selector.get("matchExpressions") or ():
        values = frozenset(one.get("values") or ())
        match one["operator"]:
            case "In":
                wanted.append(_in_set(one["key"], values))
            case "NotIn":
                wanted.append(_not_in_set(one["key"], values))
            case "Exists":
                wanted.append(_is_there(one["key"]))
            case _:
                wanted.append(_is_missing(one["key"]))
    return _all(wanted)


def _all(wanted: list[Callable[[dict[str, str]], bool]]) -> Matches:
    def matches(body: Json) -> bool:
        labels = body["metadata"].get("labels") or {}
        return all(one(labels) for one in wanted)

    return matches


def _in_set(key: str, values: frozenset[str]) -> Callable[[dict[str, str]], bool]:
    return lambda labels: labels.get(key) in values


def _not_in_set(key: str, values: frozenset[str]) -> Callable[[dict[str, str]], bool]:
    return lambda labels: labels.get(key) not in values


def _is_there(key: str) -> Callable[[dict[str, str]], bool]:
    return lambda labels: key in labels


def _is_missing(key: str) -> Callable[[dict[str, str]], bool]:
    return lambda labels: key not in labels


def _compared(key: str, operator: str, value: str) -> Callable[[dict[str, str]], bool]:
    if operator in ("=", "=="):
        return _in_set(key, frozenset({value}))
    if operator == "!=":
        return _not_in_set(key, frozenset({value}))
    if not value.isdigit():
        raise bad_request(f"label {key!r} is compared with {value!r}: for 'Gt', 'Lt' operators, want an integer")
    limit = int(value)

    def matches(labels: dict[str, str]) -> bool:
        have = labels.get(key, "")
        return have.isdigit() and (int(have) > limit if operator == ">" else int(have) < limit)

    return matches


@lru_cache(maxsize=SELECTORS_KEPT)
def by_fields(resource: str, text: str) -> Matches:
    """Return the filter of a field selector. Raises ApiError 400 for an unsupported field."""
    wanted: list[Matches] = []
    for term in text.split(","):
        if not term.strip():
            continue
        found = re.fullmatch(r"\s*([^=!]+?)\s*(==|=|!=)\s*(.*?)\s*", term)
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        field, operator, value = found[1], found[2], found[3]
        if field not in FIELDS.get(resource, _NAMES):
            raise bad_request(
                f'Unable to find "{resource}" that match label selector "", field selector "{text}": '
                f"field label not supported: {field}"
            )
        wanted.append(_field(tuple(field.split(".")), value, operator != "!="))
    if len(wanted) == 1:
        return wanted[0]
    return lambda body: all(one(body) for one in wanted)


def _field(path: tuple[str, ...], value: str, is_equal: bool) -> Matches:
    return lambda body: (field_text(body, path) == value) is is_equal


def field_text(body: Json, path: tuple[str, ...]) -> str:
    """Return the text of a field; of a missing one, an empty text, or false if it is a boolean."""
    found: Any = body
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    if path[0] == "source" and isinstance(found, dict):
        found = found.get("component")
    if path[-1] in ("unschedulable", "hostNetwork"):
        return "true" if found else "false"
    return "" if found is None else str(found)
