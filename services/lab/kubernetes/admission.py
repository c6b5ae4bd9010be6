"""Admission of new objects: existing namespaces, priority classes, and quotas of the number of pods."""

from __future__ import annotations

from services.lab.kubernetes.errors import forbidden, not_found
from services.lab.kubernetes.pods import is_over, tolerations
from services.lab.kubernetes.quantities import amount
from services.lab.kubernetes.resources import NAMESPACES, PODS, QUOTAS, Json, Resource
from services.lab.kubernetes.store import Store


def check_namespace(store: Store, resource: Resource, namespace: str, name: str) -> None:
    """Raise ApiError 404 for a missing namespace, 403 for a terminating one."""
    entry = store.get("namespaces", "", namespace)
    if entry is None:
        raise not_found(NAMESPACES, namespace)
    if entry.body["metadata"].get("deletionTimestamp"):
        text = f"unable to create new content in namespace {namespace} because it is being terminated"
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
        raise forbidden(resource, name, text, [cause])


def check_quota(store: Store, pod: Json) -> None:
    """Raise ApiError 403 for a pod beyond the number of pods of a quota. Other limits of quotas are not enforced."""
    metadata = pod["metadata"]
    for entry in store.entries(QUOTAS.plural, metadata["namespace"]):
        limit = (entry.body["spec"].get("hard") or {}).get("pods")
        if limit is None:
            continue
        used = sum(not is_over(one.body) for one in store.entries("pods", metadata["namespace"]))
        if used >= amount(limit):
            numbers = f"requested: pods=1, used: pods={used}, limited: pods={limit}"
            raise forbidden(PODS, metadata["name"], f"exceeded quota: {entry.body['metadata']['name']}, {numbers}")


def admit_spec(store: Store, name: str, spec: Json) -> Json:
    """Return the spec of a new pod with its priority and the default tolerations. Raises ApiError 403."""
    priority_class = _priority_class(store, name, spec.get("priorityClassName") or "")
    value = int(priority_class.get("value") or 0)
    if spec.get("priority") not in (None, value):
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority admission "
            f"controller computed {value} from the given PriorityClass name"
        )
        raise forbidden(PODS, name, why)
    return {
        **spec,
        "tolerations": tolerations(spec.get("tolerations") or []),
        "priority": value,
        "preemptionPolicy": priority_class.get("preemptionPolicy", "PreemptLowerPriority"),
    }


def _priority_class(store: Store, pod: str, name: str) -> Json:
    entry = store.get("priorityclasses", "", name) if name else None
    if name and entry is None:
        raise forbidden(PODS, pod, f"no PriorityClass with name {name} was found")
    return {} if entry is None else entry.body
