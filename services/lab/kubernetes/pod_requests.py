"""Subresources of pods for clients other than their owner: binding, which sets the node of a pod once, and eviction,
which disruption budgets may refuse.
"""

from __future__ import annotations

from services.lab.kubernetes.answers import json_answer, success
from services.lab.kubernetes.deletion import check_preconditions
from services.lab.kubernetes.errors import ApiError, bad_request, cause, conflict, invalid
from services.lab.kubernetes.pods import is_over, is_ready, node_of, with_condition
from services.lab.kubernetes.registry import Registry, check_uid
from services.lab.kubernetes.requests import Target, delete_options, object_of
from services.lab.kubernetes.resources import BUDGETS, PODS, Json
from services.lab.kubernetes.selectors import by_requirements
from services.lab.kubernetes.times import stamp
from services.lab.shared.http.server import Request

EVICTED = "EvictionByEvictionAPI"
_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."


class PodRequests:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def bind(self, request: Request, target: Target, query: dict[str, str]) -> bytes:
        body = object_of(request)
        metadata, node = body.get("metadata") or {}, (body.get("target") or {}).get("name") or ""
        if metadata.get("name", target.name) != target.name:
            raise bad_request("name in URL does not match name in Binding object")
        if not node:
            raise invalid(PODS, target.name, [cause("target.name", "FieldValueRequired", "Required value")])
        pod = self._registry.read(PODS, target.namespace, target.name)
        check_uid(PODS, pod, metadata.get("uid") or "")
        bind(self._registry, pod, node, metadata.get("annotations") or {})
        return json_answer(201, success(201))

    def evict(self, request: Request, target: Target, query: dict[str, str]) -> bytes:
        """Evict a pod. Raises ApiError: 404, 409 for a precondition, 429 when a budget refuses it."""
        body = object_of(request)
        if (body.get("metadata") or {}).get("name", target.name) != target.name:
            raise bad_request("name in URL does not match name in Eviction object")
        options = delete_options(body.get("deleteOptions") or {}, query)
        pod = self._registry.read(PODS, target.namespace, target.name)
        check_preconditions(PODS, pod, options)
        is_going = "deletionTimestamp" in pod["metadata"]
        if not is_over(pod) and pod["status"].get("phase") != "Pending" and not is_going:
            self._check_budgets(pod)
        if not is_going:
            self._registry.disrupt(pod, EVICTED, "Eviction API: evicting")
        self._registry.delete(PODS, target.namespace, target.name, options)
        return json_answer(201, success(201))

    def _check_budgets(self, pod: Json) -> None:
        """Raise ApiError 429 when a budget needs the pod. A budget without a number of pods allows no eviction: the
        expected number is unknown.
        """
        store, namespace = self._registry.store, pod["metadata"]["namespace"]
        for entry in store.entries(BUDGETS.plural, namespace):
            spec = entry.body["spec"]
            matches, wanted = by_requirements(spec.get("selector")), spec.get("minAvailable")
            if not matches(pod):
                continue
            chosen = [one.body for one in store.entries("pods", namespace) if matches(one.body)]
            healthy = sum(is_ready(one) and "deletionTimestamp" not in one["metadata"] for one in chosen)
            needed = wanted if isinstance(wanted, int) else len(chosen)
            if healthy - is_ready(pod) < needed:
                name = entry.body["metadata"]["name"]
                text = f"The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
                causes = [{"reason": "DisruptionBudget", "message": text}]
                raise ApiError(429, "TooManyRequests", _REFUSED, {"causes": causes})


def bind(registry: Registry, pod: Json, node: str, annotations: Json) -> None:
    """Set the node of a pod. Raises ApiError 409 for one that cannot be bound."""
    if why := _refusal(pod):
        raise conflict(PODS, pod["metadata"]["name"], why, "binding")
    metadata = pod["metadata"]
    if annotations:
        metadata = {**metadata, "annotations": {**(metadata.get("annotations") or {}), **annotations}}
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": stamp()}
    status = with_condition(pod["status"], scheduled)
    registry.store.update(
        "pods", {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": node}, "status": status}
    )


def _refusal(pod: Json) -> str:
    """Return why the pod cannot be bound; empty if it can."""
    name = pod["metadata"]["name"]
    if "deletionTimestamp" in pod["metadata"]:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if node_of(pod):
        return f'pod {name} is already assigned to node "{node_of(pod)}"'
    return f"pod {name} has non-empty .spec.schedulingGates" if pod["spec"].get("schedulingGates") else ""
