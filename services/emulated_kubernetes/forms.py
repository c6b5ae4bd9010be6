"""Whether a body has the form of its kind, as far as anything here looks at it: a list where a list belongs, and so on.

What is null counts as left out, and what is not named may be anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from services.emulated_kubernetes.errors import bad_request
from services.emulated_kubernetes.quantities import amount
from services.emulated_kubernetes.resources import Json, Resource

# A type, a form of each member in a list, or forms by the names of fields: "*" is any, and "!" says that it is needed.
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
    "secrets": {"data": _TEXTS, "type": str},
    "leases": {"spec": {"holderIdentity": str}},
    "events": {"involvedObject": {}, "source": {}, "message": str, "type": str, "reason": str},
}
BINDING: Form = {"metadata": _METADATA, "target": {"kind": str, "name": str}}
OPTIONS: Form = {"preconditions": {"uid": str, "resourceVersion": str}}
EVICTION: Form = {"metadata": _METADATA, "deleteOptions": OPTIONS}


def check_object(resource: Resource, body: Json) -> None:
    """Raises ApiError 400 naming the field."""
    check(resource.kind, body, {"metadata": _METADATA, "spec": {}, "status": {}, **_FORMS.get(resource.plural, {})})


def check(kind: str, body: Json, form: Form) -> None:
    """Raises ApiError 400 naming the field."""
    for fault in _faults(body, form, ""):
        raise bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {fault}')


def _faults(value: Any, form: Form, at: str) -> Iterator[str]:
    if value is None:
        return
    if isinstance(form, dict):
        if isinstance(value, dict):
            yield from _faults_of_fields(value, form, at)
        else:
            yield _wrong(value, at, "an object")
    elif isinstance(form, list):
        if isinstance(value, list):
            for index, one in enumerate(value):
                if one is None:
                    yield _wrong(one, f"{at}[{index}]", "a value")
                yield from _faults(one, form[0], f"{at}[{index}]")
        else:
            yield _wrong(value, at, "a list")
    elif isinstance(form, type):
        if not isinstance(value, form) or (form is int and isinstance(value, bool)):
            yield _wrong(value, at, f"of type {form.__name__}")
    else:
        is_right: Callable[[object], bool] = form
        if not is_right(value):
            yield _wrong(value, at, "an amount or number")


def _faults_of_fields(value: Json, form: dict[str, Form], at: str) -> Iterator[str]:
    every = form.get("*")
    for key, one in value.items():
        inner = form.get(key, form.get(f"{key}!", every))
        if inner is not None:
            yield from _faults(one, inner, f"{at}.{key}" if at else key)
    for key in form:
        if key.endswith("!") and value.get(key[:-1]) is None:
            yield f"{at}.{key[:-1]} is missing"


def _wrong(value: object, at: str, wanted: str) -> str:
    return f"{at}: {value!r:.60} is not {wanted}"
