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
_COMPARED = re.compile(rf"\s*({_KEY})\s*(==|=|!=)\s*({_VALUE})\s*(?:,|$)")
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
    wanted: list[tuple[str, frozenset[str | None], bool]] = []  # key, values (None: no label), whether to be among them
    at = 0
    while at < len(text):
        if found := _SET.match(text, at):
            values = frozenset(value.strip() for value in found[3].split(","))
            wanted.append((found[1], values, found[2] == "in"))
        elif found := _COMPARED.match(text, at):
            wanted.append((found[1], frozenset({found[3]}), found[2] != "!="))
        elif found := _EXISTS.match(text, at):
            wanted.append((found[2], frozenset({None}), bool(found[1])))
        else:
            raise bad_request(f"unable to parse requirement: {text[at:]!r} in label selector {text!r}")
        at = found.end()

    def matches(body: Json) -> bool:
        labels = body["metadata"].get("labels") or {}
        return all((labels.get(key) in values) is is_among for key, values, is_among in wanted)

    return matches


def by_requirements(selector: Json | None) -> Matches:
    """Return the filter of a LabelSelector object; a missing one matches no object, an empty one matches all."""
    if selector is None:
        return lambda body: False
    terms = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for one in selector.get("matchExpressions") or ():
        key, operator = one["key"], one["operator"]
        values = ",".join(one.get("values") or ())
        terms.append({"Exists": key, "DoesNotExist": f"!{key}"}.get(operator) or f"{key} {operator.lower()} ({values})")
    return by_labels(",".join(terms))


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
