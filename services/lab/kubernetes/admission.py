"""Admission of new objects: existing namespaces and priority classes."""

from __future__ import annotations

from services.lab.kubernetes.errors import forbidden, not_found
from services.lab.kubernetes.pods import tolerations
from services.lab.kubernetes.resources import NAMESPACES, PODS, Json, Resource
from services.lab.kubernetes.store import Store


def check_namespace(store: Store, resource: Resource, namespace: str, name: str) -> None:
    """Raises ApiError 404 for a missing namespace, 403 for a terminating one."""
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


def admitted_spec(store: Store, name: str, spec: Json) -> Json:
    """Return the spec of a new pod with its priority and the default tolerations. Raises ApiError 403."""
    priority_class = _priority_class(store, name, spec.get("priorityClassName") or "")
    value = int(priority_class.get("value") or 0)
    if spec.get("priority") not in (None, value):
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority admission "
            f"controller computed {value} from the given PriorityClass name"
        )
        raise forbidden(PODS, name, why)
    admitted = {
        **spec,
        "tolerations": tolerations(spec.get("tolerations") or []),
        "priority": value,
        "preemptionPolicy": priority_class.get("preemptionPolicy", "PreemptLowerPriority"),
    }
    if priority_class:
        admitted["priorityClassName"] = priority_class["metadata"]["name"]
    return admitted


def _priority_class(store: Store, pod: str, name: str) -> Json:
    if name:
        entry = store.get("priorityclasses", "", name)
        if entry is None:
            raise forbidden(PODS, pod, f"no PriorityClass with name {name} was found")
        return entry.body
    defaults = [one for one in store.values("priorityclasses") if one.get("globalDefault")]
    return min(defaults, key=lambda one: int(one.get("value") or 0), default={})
