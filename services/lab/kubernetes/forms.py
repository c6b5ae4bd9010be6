"""Structural checks of a body: the types of all fields that this code reads.

A null counts as a missing field, and fields without a form are not checked.
"""

from __future__ import annotations

from typing import Any

from services.lab.kubernetes.errors import bad_request
from services.lab.kubernetes.quantities import amount
from services.lab.kubernetes.resources import Json, Resource

# A type, a form of each member in a list, or forms by the names of fields: "*" is any, and "!" marks a required one.
Form = Any


def _is_amount(value: object) -> bool:
    try:
        amount(value)
    except ValueError:
        return False
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _is_number_or_text(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


_TEXTS = {"*": str}
_AMOUNTS = {"*": _is_amount}
_SELECTOR = {"matchLabels": _TEXTS, "matchExpressions": [{"key!": str, "operator!": str, "values": [str]}]}
_METADATA = {
    **dict.fromkeys(("name", "generateName", "namespace", "uid", "resourceVersion"), str),
    **dict.fromkeys(("labels", "annotations"), _TEXTS),
    "finalizers": [str],
    "ownerReferences": [{"uid!": str, "kind": str, "name": str}],
}
_CONDITIONS = [{"type!": str, "status!": str}]
_RESOURCES = {"requests": _AMOUNTS, "limits": _AMOUNTS}
_PROBES: dict[str, Form] = {key: {"httpGet": {}} for key in ("livenessProbe", "readinessProbe", "startupProbe")}
_CONTAINER = {
    **dict.fromkeys(("name", "image", "imagePullPolicy"), str),
    **{key: [str] for key in ("command", "args")},
    "env": [{"name": str, "value": str}],
    "ports": [{"containerPort": int, "hostPort": int}],
    "volumeMounts": [{"name": str, "mountPath": str}],
    "resources": _RESOURCES,
    **_PROBES,
}
_STATES = [{"name": str, "state": {"running": {}, "waiting": {}, "terminated": {}}, "restartCount": int}]
_SOURCES: dict[str, Form] = {key: {} for key in ("configMap", "secret", "projected", "downwardAPI", "emptyDir")}
_POD = {
    **dict.fromkeys(("nodeName", "restartPolicy", "schedulerName", "priorityClassName"), str),
    **dict.fromkeys(("priority", "terminationGracePeriodSeconds", "activeDeadlineSeconds"), int),
    **{key: [_CONTAINER] for key in ("containers", "initContainers")},
    "nodeSelector": _TEXTS,
    "schedulingGates": [{"name!": str}],
    "tolerations": [{"key": str, "operator": str, "value": str, "effect": str, "tolerationSeconds": int}],
    "volumes": [{"name!": str, **_SOURCES}],
}
_SCOPES = {"matchExpressions": [{"scopeName!": str, "operator!": str, "values": [str]}]}
_FORMS: dict[str, Form] = {
    "pods": {
        "spec": _POD,
        "status": {
            "phase": str,
            "conditions": _CONDITIONS,
            **dict.fromkeys(("containerStatuses", "initContainerStatuses"), _STATES),
        },
    },
    "nodes": {
        "spec": {"taints": [{"key!": str, "effect!": str, "value": str}], "unschedulable": bool},
        "status": {
            "conditions": _CONDITIONS,
            "capacity": _AMOUNTS,
            "allocatable": _AMOUNTS,
            "addresses": [{"type!": str, "address!": str}],
            "nodeInfo": {},
        },
    },
    "poddisruptionbudgets": {
        "spec": {"minAvailable": _is_number_or_text, "maxUnavailable": _is_number_or_text, "selector": _SELECTOR},
    },
    "resourcequotas": {"spec": {"hard": _AMOUNTS, "scopes": [str], "scopeSelector": _SCOPES}},
    "priorityclasses": {"value": int, "preemptionPolicy": str},
    "configmaps": {"data": _TEXTS},
    "secrets": {"data": _TEXTS, "stringData": _TEXTS, "type": str},
    "leases": {"spec": {"holderIdentity": str}},
    "events": {"involvedObject": {}, "source": {}, "message": str, "type": str, "reason": str},
}


class _Fields:
    """Form of an object by the names of fields, parsed once."""

    __slots__ = ("every", "named", "needed")

    def __init__(self, form: dict[str, Form]) -> None:
        self.every = _read(form.get("*"))
        self.named = {name.removesuffix("!"): _read(inner) for name, inner in form.items() if name != "*"}
        self.needed = [name.removesuffix("!") for name in form if name.endswith("!")]


def _read(form: Form) -> Form:
    if isinstance(form, dict):
        return _Fields(form)
    return [_read(form[0])] if isinstance(form, list) else form


def _object(form: dict[str, Form]) -> _Fields:
    return _Fields({"metadata": _METADATA, "spec": {}, "status": {}, **form})


_OPTIONS = {"preconditions": {"uid": str, "resourceVersion": str}}
_OBJECTS = {plural: _object(form) for plural, form in _FORMS.items()}
_ANY_OBJECT = _object({})
BINDING = _Fields({"metadata": _METADATA, "target": {"kind": str, "name": str}})
OPTIONS = _Fields(_OPTIONS)
EVICTION = _Fields({"metadata": _METADATA, "deleteOptions": _OPTIONS})


def check_object(resource: Resource, body: Json) -> None:
    """Check an object of the resource. Raises ApiError 400 naming the field."""
    check(resource.kind, body, _OBJECTS.get(resource.plural, _ANY_OBJECT))


def check(kind: str, body: Json, form: _Fields) -> None:
    """Check a body against a form. Raises ApiError 400 naming the field."""
    if fault := _fault(body, form):
        raise bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {fault}')


def _fault(value: Any, form: Form) -> str:
    """Return path and text of the first fault, or an empty text. The path is assembled on the way back."""
    if value is None:
        return ""
    if isinstance(form, type):
        is_right = isinstance(value, form) and not (form is int and isinstance(value, bool))
        return "" if is_right else _wrong(value, f"of type {form.__name__}")
    if isinstance(form, _Fields):
        return _fault_of_fields(value, form) if isinstance(value, dict) else _wrong(value, "an object")
    if isinstance(form, list):
        return _fault_of_members(value, form[0]) if isinstance(value, list) else _wrong(value, "a list")
    return "" if form(value) else _wrong(value, "an amount or number")


def _fault_of_members(value: list[Any], form: Form) -> str:
    for index, one in enumerate(value):
        if fault := _wrong(one, "a value") if one is None else _fault(one, form):
            return _within(f"[{index}]", fault)
    return ""


def _fault_of_fields(value: Json, form: _Fields) -> str:
    for key, one in value.items():
        inner = form.named.get(key, form.every)
        if inner is not None and (fault := _fault(one, inner)):
            return _within(key, fault)
    return next((f"{name} is missing" for name in form.needed if value.get(name) is None), "")


def _within(place: str, fault: str) -> str:
    return f"{place}{fault}" if fault.startswith((":", "[")) else f"{place}.{fault}"


def _wrong(value: object, wanted: str) -> str:
    return f": {value!r:.60} is not {wanted}"
