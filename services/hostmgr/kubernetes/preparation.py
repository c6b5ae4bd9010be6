"""What our pods need of a cluster, made if we may: their namespace and their priority class."""

from __future__ import annotations

from typing import Any

import orjson

from peloton.errors import InvalidArgument
from services.hostmgr.kubernetes.settings import KubernetesSettings
from services.hostmgr.kubernetes.wire import ApiServer, Request

Json = dict[str, Any]
PRIORITY = 1_000_000
"""Above that of pods that name no class, so that kube-scheduler evicts none of ours for them."""
_NAMESPACES = "/api/v1/namespaces"
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
FORBIDDEN, NOT_FOUND, CONFLICT = 403, 404, 409


def prepare(api: ApiServer, settings: KubernetesSettings) -> None:
    """Raises OSError, and InvalidArgument with what an administrator has to do."""
    namespace, name = settings.namespace, settings.priority_class
    body: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    _ensure(api, _NAMESPACES, namespace, body, f"kubectl create namespace {namespace}")
    if name:
        body = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": PRIORITY,
            "preemptionPolicy": "Never",
            "description": "Pods that Peloton places. Peloton decides which of them give way.",
        }
        command = f"kubectl create priorityclass {name} --value={PRIORITY} --preemption-policy=Never"
        _ensure(api, _CLASSES, name, body, command)


def _ensure(api: ApiServer, path: str, name: str, body: Json, command: str) -> None:
    """A user that may not even look is believed to have been given what it needs."""
    found = api.ask(Request("GET", f"{path}/{name}"))
    if found.is_ok or found.status == FORBIDDEN:
        return
    if found.status != NOT_FOUND:
        raise OSError(f"{path}/{name}: {found.message}")
    made = api.ask(Request("POST", path, orjson.dumps(body)))
    if made.is_ok or made.status == CONFLICT:
        return
    if made.status == FORBIDDEN:
        lacking = f"{body['kind']} {name} is not there, and we may not create it ({made.message})"
        raise InvalidArgument(f"{lacking}: let an administrator do `{command}`")
    raise OSError(f"{path}/{name}: {made.message}")
