"""Environment of a container: literal values, fields of the pod, secrets and config maps of the store."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping

from services.lab.kubernetes.nodes.amounts import CPU, amount
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
        prefix = source.get("prefix", "")
        for kind, resource in (("secretRef", "secrets"), ("configMapRef", "configmaps")):
            if (reference := source.get(kind)) is not None:
                values = texts_of(store, resource, namespace, reference)
                found |= {f"{prefix}{key}": value for key, value in values.items()}
    for row in container.get("env", ()):
        if "valueFrom" in row:
            value = _from(pod, container, row["valueFrom"], store)
            if value is not None:
                found[row["name"]] = value
        else:
            found[row["name"]] = expanded(row.get("value", ""), found)
    return found


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Replace $(NAME) by defined variables; $$ becomes $, and undefined names remain."""

    def one(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name == "$" else variables.get(name[1:-1], match[0])

    return _REFERENCE.sub(one, text)


def texts_of(store: Store, resource: str, namespace: str, reference: Json) -> dict[str, str]:
    """Return all keys of a secret or a config map as text. Raises Missing unless it is optional."""
    data = data_of(store, resource, namespace, reference)
    return {key: value.decode(errors="replace") for key, value in data.items()}


def data_of(store: Store, resource: str, namespace: str, reference: Json) -> dict[str, bytes]:
    """Return all keys of a secret or a config map as bytes. Raises Missing unless it is optional."""
    entry = store.get(resource, namespace, reference["name"])
    if entry is None:
        if reference.get("optional"):
            return {}
        kind = "secret" if resource == "secrets" else "configmap"
        raise Missing(f'{kind} "{reference["name"]}" not found')
    data = entry.body.get("data") or {}
    if resource == "secrets":
        texts = entry.body.get("stringData") or {}
        return {key: b64decode(value) for key, value in data.items()} | _encoded(texts)
    return _encoded(data)


def _encoded(texts: Mapping[str, str]) -> dict[str, bytes]:
    return {key: value.encode() for key, value in texts.items()}


def _from(pod: Json, container: Json, source: Json, store: Store) -> str | None:
    if (field := source.get("fieldRef")) is not None:
        return _field(pod, field["fieldPath"])
    if (resource := source.get("resourceFieldRef")) is not None:
        kind, _, name = resource["resource"].partition(".")
        text = container.get("resources", {}).get(kind, {}).get(name, "0")
        value = amount(name, text)
        return str(-(-value // 1000) if name == CPU else value)
    for kind, of in (("secretKeyRef", "secrets"), ("configMapKeyRef", "configmaps")):
        if (reference := source.get(kind)) is not None:
            values = texts_of(store, of, pod["metadata"]["namespace"], reference)
            if reference["key"] not in values and not reference.get("optional"):
                raise Missing(f"couldn't find key {reference['key']} in {reference['name']}")
            return values.get(reference["key"])
    return None


def _field(pod: Json, path: str) -> str:
    metadata, spec = pod["metadata"], pod["spec"]
    known = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.podIP": ADDRESS,
        "status.podIPs": ADDRESS,
        "status.hostIP": ADDRESS,
        "status.hostIPs": ADDRESS,
    }
    if path in known:
        return str(known[path])
    keyed = _KEYED.fullmatch(path)
    return "" if keyed is None else str(metadata.get(keyed[1], {}).get(keyed[2], ""))
