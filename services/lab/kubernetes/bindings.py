"""POST pods/NAME/binding, which sets the node of a pod once."""

from __future__ import annotations

from services.lab.kubernetes.errors import bad_request, cause, conflict, invalid, not_found
from services.lab.kubernetes.forms import BINDING, check
from services.lab.kubernetes.pods import node_of, with_condition
from services.lab.kubernetes.registry import Registry, check_uid
from services.lab.kubernetes.resources import PODS, Json
from services.lab.kubernetes.times import stamp


def bind(registry: Registry, namespace: str, name: str, binding: Json, is_dry: bool) -> None:
    """Bind a pod. Raises ApiError: 404 for a missing pod, 409 for one that cannot be bound."""
    check("Binding", binding, BINDING)
    metadata, target = binding.get("metadata") or {}, binding.get("target") or {}
    if metadata.get("name", name) != name:
        raise bad_request("name in URL does not match name in Binding object")
    node = target.get("name") or ""
    if not node or target.get("kind", "Node") not in ("", "Node"):
        field, text = (
            ("target.name", "Required value") if not node else ("target.kind", 'Unsupported value: want "Node"')
        )
        raise invalid(PODS, name, [cause(field, "FieldValueRequired", text)])
    entry = registry.store.get("pods", namespace, name)
    if entry is None:
        raise not_found(PODS, name)
    pod = entry.body
    check_uid(PODS, pod, metadata.get("uid") or "")
    why = _refusal(pod)
    if why:
        raise conflict(PODS, name, why, "binding")
    if is_dry:
        return
    kept = pod["metadata"]
    if metadata.get("annotations"):
        kept = {**kept, "annotations": {**(kept.get("annotations") or {}), **metadata["annotations"]}}
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": stamp()}
    bound = {
        **pod,
        "metadata": kept,
        "spec": {**pod["spec"], "nodeName": node},
        "status": with_condition(pod["status"], scheduled),
    }
    registry.store.update("pods", bound)


def _refusal(pod: Json) -> str:
    """Return why the pod cannot be bound; empty if it can."""
    name = pod["metadata"]["name"]
    if "deletionTimestamp" in pod["metadata"]:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if node_of(pod):
        return f'pod {name} is already assigned to node "{node_of(pod)}"'
    return f"pod {name} has non-empty .spec.schedulingGates" if pod["spec"].get("schedulingGates") else ""
