"""Validation of objects, with faults as causes of a 422: the faults that a client of batch pods, services and leases
can make.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from services.lab.kubernetes.errors import cause
from services.lab.kubernetes.quantities import amount
from services.lab.kubernetes.resources import PODS, PRIORITY_CLASSES, Json, Resource

NAME_MAX = 253
PRIORITY_MAX = 1_000_000_000
SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
LABEL_MAX = 63
KEYS_KEPT = 1_000
"""Cached keys of labels and annotations: objects have the same ones again and again."""
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_IS_LABEL = re.compile(_LABEL)
_IS_SUBDOMAIN = re.compile(_SUBDOMAIN)
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_IS_QUALIFIED = re.compile(_QUALIFIED)
_IS_VALUE = re.compile(rf"({_QUALIFIED})?")
_IS_PATH_NAME = re.compile(r"[^/%]+")
_RESTARTS = ("Always", "Never", "OnFailure")
_PATH_NAMES = ("clusterroles", "clusterrolebindings", "roles", "rolebindings")
INVALID, REQUIRED, DUPLICATE = "FieldValueInvalid", "FieldValueRequired", "FieldValueDuplicate"
FORBIDDEN, UNSUPPORTED = "FieldValueForbidden", "FieldValueNotSupported"


def metadata_faults(resource: Resource, metadata: Json) -> Iterator[Json]:
    name = metadata.get("name") or ""
    if not name:
        yield cause("metadata.name", REQUIRED, "Required value: name or generateName is required")
    elif text := _name_fault(resource, name):
        yield cause("metadata.name", INVALID, f'Invalid value: "{name}": {text}')
    for key, value in (metadata.get("labels") or {}).items():
        if text := _key_fault(key):
            yield cause("metadata.labels", INVALID, f'Invalid value: "{key}": {text}')
        if not isinstance(value, str) or len(value) > LABEL_MAX:
            shown = f'Invalid value: "{value}": must be no more than {LABEL_MAX} bytes'
            yield cause("metadata.labels", INVALID, shown)
        elif not _IS_VALUE.fullmatch(value):
            yield cause("metadata.labels", INVALID, f'Invalid value: "{value}": {_VALUE_RULE}')
    for key in metadata.get("annotations") or {}:
        if text := _key_fault(key.lower()):
            yield cause("metadata.annotations", INVALID, f'Invalid value: "{key}": {text}')
    for finalizer in metadata.get("finalizers") or ():
        if not _IS_QUALIFIED.fullmatch(finalizer.rpartition("/")[2]):
            yield cause("metadata.finalizers", INVALID, f'Invalid value: "{finalizer}": name part {_NAME_PART_RULE}')


_EXAMPLE = "and must start and end with an alphanumeric character (e.g."
_LABEL_RULE = (
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_EXAMPLE} 'my-name',  or "
    f"'123-abc', regex used for validation is '{_LABEL}')"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    f"{_EXAMPLE} 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    f"{_EXAMPLE} 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_NAME_PART_RULE = (
    f"must consist of alphanumeric characters, '-', '_' or '.', {_EXAMPLE} 'MyName',  or 'my.name',  or '123-abc', "
    "regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def _name_fault(resource: Resource, name: str) -> str:
    if resource.plural in _PATH_NAMES:
        return "" if _IS_PATH_NAME.fullmatch(name) and name not in (".", "..") else "may not contain '/' or '%'"
    if resource.plural == "namespaces":
        if len(name) > LABEL_MAX:
            return f"must be no more than {LABEL_MAX} bytes"
        return "" if _IS_LABEL.fullmatch(name) else _LABEL_RULE
    if len(name) > NAME_MAX:
        return f"must be no more than {NAME_MAX} bytes"
    return "" if _IS_SUBDOMAIN.fullmatch(name) else _SUBDOMAIN_RULE


@lru_cache(maxsize=KEYS_KEPT)
def _key_fault(key: str) -> str:
    prefix, slash, name = key.rpartition("/")
    if slash and not _IS_SUBDOMAIN.fullmatch(prefix):
        return f"prefix part {_SUBDOMAIN_RULE}"
    if len(name) > LABEL_MAX:
        return f"name part must be no more than {LABEL_MAX} bytes"
    return "" if _IS_QUALIFIED.fullmatch(name) else f"name part {_NAME_PART_RULE}"


def pod_faults(spec: Json) -> Iterator[Json]:
    containers = spec.get("containers")
    if not containers:
        yield cause("spec.containers", REQUIRED, "Required value")
        return
    seen: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield from _container_faults(container, f"spec.{field}[{index}]", seen)
            seen.add(container.get("name") or "")
    if spec.get("restartPolicy") not in _RESTARTS:
        choices = ", ".join(f'"{one}"' for one in _RESTARTS)
        shown = f'Unsupported value: "{spec.get("restartPolicy")}": supported values: {choices}'
        yield cause("spec.restartPolicy", UNSUPPORTED, shown)
    if spec.get("nodeName") and spec.get("schedulingGates"):
        text = "Forbidden: cannot be set until all schedulingGates have been cleared"
        yield cause("spec.nodeName", FORBIDDEN, text)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline < 2**31:
        shown = f"Invalid value: {deadline}: must be between 1 and 2147483647, inclusive"
        yield cause("spec.activeDeadlineSeconds", INVALID, shown)
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
            effect = toleration.get("effect", "")
            shown = f"Invalid value: \"{effect}\": effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield cause(f"spec.tolerations[{index}].effect", INVALID, shown)


def _container_faults(container: Json, at: str, seen: set[str]) -> Iterator[Json]:
    name = container.get("name") or ""
    if not name:
        yield cause(f"{at}.name", REQUIRED, "Required value")
    elif not _IS_LABEL.fullmatch(name) or len(name) > LABEL_MAX:
        yield cause(f"{at}.name", INVALID, f'Invalid value: "{name}": {_LABEL_RULE}')
    elif name in seen:
        yield cause(f"{at}.name", DUPLICATE, f'Duplicate value: "{name}"')
    if not container.get("image"):
        yield cause(f"{at}.image", REQUIRED, "Required value")
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    for field in ("limits", "requests"):
        for kind, value in (resources.get(field) or {}).items():
            where = f"{at}.resources.{field}[{kind}]"
            if amount(value) < 0:
                yield cause(where, INVALID, f'Invalid value: "{value}": must be greater than or equal to 0')
            elif field == "requests" and kind in limits and amount(value) > amount(limits[kind]):
                shown = f'Invalid value: "{value}": must be less than or equal to {kind} limit of {limits[kind]}'
                yield cause(f"{at}.resources.requests", INVALID, shown)


def priority_class_faults(body: Json) -> Iterator[Json]:
    name, value = body["metadata"].get("name") or "", body.get("value") or 0
    if name not in SYSTEM_CLASSES and value > PRIORITY_MAX:
        text = f"Forbidden: maximum allowed value of a user defined priority is {PRIORITY_MAX}"
        yield cause("value", FORBIDDEN, text)
    policy = body.get("preemptionPolicy", "PreemptLowerPriority")
    if policy not in ("Never", "PreemptLowerPriority"):
        text = f'Unsupported value: "{policy}": supported values: "Never", "PreemptLowerPriority"'
        yield cause("preemptionPolicy", UNSUPPORTED, text)


def priority_class_changes(old: Json, new: Json) -> list[Json]:
    changed = [field for field in ("value", "preemptionPolicy") if old.get(field) != new.get(field)]
    return [cause(field, FORBIDDEN, "Forbidden: may not be changed in an update.") for field in changed]


def faults(resource: Resource, body: Json) -> list[Json]:
    found = list(metadata_faults(resource, body["metadata"]))
    if resource is PRIORITY_CLASSES:
        found += priority_class_faults(body)
    if resource is PODS:
        found += pod_faults(body["spec"])
    return found
