"""Validation of objects, with faults as causes of a 422: the faults that a client of batch pods, services and leases
can make.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from services.lab.kubernetes.errors import cause
from services.lab.kubernetes.quantities import amount
from services.lab.kubernetes.resources import DEPLOYMENTS, JOBS, PODS, Json, Resource

NAME_MAX = 253
LABEL_MAX = 63
KEYS_KEPT = 1_000
"""Cached keys of labels and annotations: objects have the same ones again and again."""
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_IS_LABEL = re.compile(_LABEL)
_IS_SUBDOMAIN = re.compile(_SUBDOMAIN)
_IS_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_RESTARTS = ("Always", "Never", "OnFailure")
INVALID, REQUIRED, DUPLICATE = "FieldValueInvalid", "FieldValueRequired", "FieldValueDuplicate"
FORBIDDEN, UNSUPPORTED = "FieldValueForbidden", "FieldValueNotSupported"
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
_KEY_RULE = (
    "a qualified name must consist of alphanumeric characters, '-', '_' or '.', with an optional DNS prefix and '/'"
)


def faults(resource: Resource, body: Json) -> list[Json]:
    found = list(_metadata_faults(body["metadata"]))
    if resource is PODS:
        found += _pod_faults(body["spec"], "spec")
    elif resource in (DEPLOYMENTS, JOBS):
        if not body["spec"].get("selector"):
            found.append(cause("spec.selector", REQUIRED, "Required value"))
        found += _pod_faults(body["spec"]["template"]["spec"], "spec.template.spec")
    return found


def _metadata_faults(metadata: Json) -> Iterator[Json]:
    name = metadata.get("name") or ""
    if not name:
        yield cause("metadata.name", REQUIRED, "Required value: name or generateName is required")
    elif len(name) > NAME_MAX or not _IS_SUBDOMAIN.fullmatch(name):
        yield cause("metadata.name", INVALID, f'Invalid value: "{name}": {_SUBDOMAIN_RULE}')
    for key, value in (metadata.get("labels") or {}).items():
        if not _is_key(key):
            yield cause("metadata.labels", INVALID, f'Invalid value: "{key}": {_KEY_RULE}')
        if len(value) > LABEL_MAX:
            shown = f'Invalid value: "{value}": must be no more than {LABEL_MAX} bytes'
            yield cause("metadata.labels", INVALID, shown)
        elif value and not _IS_QUALIFIED.fullmatch(value):
            yield cause("metadata.labels", INVALID, f'Invalid value: "{value}": {_VALUE_RULE}')
    for key in metadata.get("annotations") or {}:
        if not _is_key(key):
            yield cause("metadata.annotations", INVALID, f'Invalid value: "{key}": {_KEY_RULE}')


@lru_cache(maxsize=KEYS_KEPT)
def _is_key(key: str) -> bool:
    prefix, slash, name = key.lower().rpartition("/")
    is_prefix = not slash or _IS_SUBDOMAIN.fullmatch(prefix) is not None
    return is_prefix and len(name) <= LABEL_MAX and _IS_QUALIFIED.fullmatch(name) is not None


def _pod_faults(spec: Json, at: str) -> Iterator[Json]:
    if not spec.get("containers"):
        yield cause(f"{at}.containers", REQUIRED, "Required value")
        return
    seen: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield from _container_faults(container, f"{at}.{field}[{index}]", seen)
            seen.add(container.get("name") or "")
    if spec.get("restartPolicy") not in _RESTARTS:
        choices = ", ".join(f'"{one}"' for one in _RESTARTS)
        shown = f'Unsupported value: "{spec.get("restartPolicy")}": supported values: {choices}'
        yield cause(f"{at}.restartPolicy", UNSUPPORTED, shown)
    if spec.get("nodeName") and spec.get("schedulingGates"):
        text = "Forbidden: cannot be set until all schedulingGates have been cleared"
        yield cause(f"{at}.nodeName", FORBIDDEN, text)


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
