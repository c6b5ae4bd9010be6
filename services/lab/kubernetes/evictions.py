"""POST pods/NAME/eviction: a deletion that disruption budgets may refuse."""

from __future__ import annotations

from services.lab.kubernetes.controllers.budgets import Budgets, is_ready
from services.lab.kubernetes.deletion import DeleteOptions, check_preconditions
from services.lab.kubernetes.errors import ApiError, not_found
from services.lab.kubernetes.pods import is_over
from services.lab.kubernetes.registry import Registry
from services.lab.kubernetes.resources import PODS, Json

EVICTED = "EvictionByEvictionAPI"
_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."


def evict(registry: Registry, budgets: Budgets, namespace: str, name: str, options: DeleteOptions) -> None:
    """Evict a pod. Raises ApiError: 404, 409 for a precondition, 429 when a budget refuses it."""
    entry = registry.store.get("pods", namespace, name)
    if entry is None:
        raise not_found(PODS, name)
    pod = entry.body
    check_preconditions(PODS, pod, options)
    if not _passes_any_budget(pod):
        _claim(budgets, pod, options.dry_run)
    if options.dry_run:
        return
    if "deletionTimestamp" not in pod["metadata"]:
        registry.disrupt(pod, EVICTED, "Eviction API: evicting")
    registry.delete(PODS, namespace, name, options)


def _passes_any_budget(pod: Json) -> bool:
    return is_over(pod) or pod["status"].get("phase") == "Pending" or "deletionTimestamp" in pod["metadata"]


def _claim(budgets: Budgets, pod: Json, is_dry: bool) -> None:
    found = budgets.of(pod)
    if not found:
        return
    if len(found) > 1:
        text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise ApiError(500, "InternalError", text)
    budget = found[0]
    status = budget["status"]
    if not is_ready(pod):
        policy = budget["spec"].get("unhealthyPodEvictionPolicy", "IfHealthyBudget")
        healthy, wanted = status["currentHealthy"], status["desiredHealthy"]
        if policy == "AlwaysAllow" or (healthy >= wanted and wanted > 0):
            return
    if status["disruptionsAllowed"] <= 0:
        name = budget["metadata"]["name"]
        needs = (
            f"The disruption budget {name} needs {status['desiredHealthy']} healthy pods and has "
            f"{status['currentHealthy']} currently"
        )
        raise ApiError(429, "TooManyRequests", _REFUSED, {"causes": [{"reason": "DisruptionBudget", "message": needs}]})
    if not is_dry:
        budgets.claim(budget, pod)
