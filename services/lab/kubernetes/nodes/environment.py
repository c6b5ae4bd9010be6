"""Environment of a container: literal values, fields of the pod, secrets and config maps of the store."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping

from services.lab.kubernetes.nodes.pod_status import ADDRESS
from services.lab.kubernetes.resources import Json
from services.lab.kubernetes.store import Store

_REFERENCE = re.compile(r"\$(\$|\([A-Za-z_.-][\w.-]*\))", re.ASCII)
_KEYED = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


class Missing(Exception):
    """Raised for a missing secret or config map: the container cannot be created yet."""


def variables_of(pod: Json, container: Json, store: Store) -> dict[str, str]:
    """Return the environment variables. Raises Missing."""
    found: dict[str, str] = {}
    namespace = pod["metadata"]["namespace"]
    for source in container.get("envFrom", ()):
        for kind, resource in (("secretRef", "secrets"), ("configMapRef", "configmaps")):
            if (reference := source.get(kind)) is not None:
                values = data_of(store, resource, namespace, reference)
                found |= {f"{source.get('prefix', '')}{key}": _text(value) for key, value in values.items()}
    for row in container.get("env", ()):
        source = row.get("valueFrom") or {}
        if (field := source.get("fieldRef")) is not None:
            found[row["name"]] = _field(pod, field["fieldPath"])
        for kind, resource in (("secretKeyRef", "secrets"), ("configMapKeyRef", "configmaps")):
            if (reference := source.get(kind)) is not None:
                data = data_of(store, resource, namespace, reference)
                if reference["key"] in data:
                    found[row["name"]] = _text(data[reference["key"]])
                elif not reference.get("optional"):
                    raise Missing(f"couldn't find key {reference['key']} in {reference['name']}")
        if not source:
            found[row["name"]] = expand(row.get("value", ""), found)
    return found


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace $(NAME) by defined variables; $$ becomes $, and undefined names remain."""

    def one(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name == "$" else variables.get(name[1:-1], match[0])

    return _REFERENCE.sub(one, text)


def data_of(store: Store, resource: str, namespace: str, reference: Json) -> dict[str, bytes]:
    """Return all keys of a secret or a config map. Raises Missing unless it is optional."""
    entry = store.get(resource, namespace, reference["name"])
    if entry is None:
        if reference.get("optional"):
            return {}
        kind = "secret" if resource == "secrets" else "configmap"
        raise Missing(f'{kind} "{reference["name"]}" not found')
    data = entry.body.get("data") or {}
    return {key: b64decode(value) if resource == "secrets" else value.encode() for key, value in data.items()}


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _field(pod: Json, path: str) -> str:
    """Return a field of the pod: its name, a label, its node, or an address."""
    if path.endswith(("IP", "IPs")):
        return ADDRESS
    if keyed := _KEYED.fullmatch(path):
        return str(pod["metadata"].get(keyed[1], {}).get(keyed[2], ""))
    part, _, field = path.partition(".")
    return str(pod.get(part, {}).get(field, ""))
