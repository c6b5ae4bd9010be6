"""Reasons of Kubernetes pods, read from their objects: why a pod waits, is refused, or is not managed by Peloton."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice

from cli.kubectl import Json

GATE, ADMITTED_AT, ADMITTED = "peloton.io/admission", "peloton.io/admitted-at", "peloton.io/Admitted"
SCHEDULER, DEFAULT_SCHEDULER = "peloton", "default-scheduler"
POOL = "peloton.io/pool"
UNGATED_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease", "peloton-system")
"""Namespaces whose pods are never gated."""
TEXTS_MAX = 5
"""Limit of the different reasons that are shown for the pods of one owner."""


def title_of(thing: Json) -> str:
    meta = thing["metadata"]
    return f"{thing.get('kind') or 'Pod'} {meta.get('namespace', 'default')}/{meta['name']}"


def controller_of(thing: Json) -> Json | None:
    owners = thing["metadata"].get("ownerReferences") or ()
    return next((one for one in owners if one.get("controller")), None)


def is_managed(pod: Json) -> bool:
    """Return whether Peloton places the pod, or has gated it."""
    return pod["spec"].get("schedulerName") == SCHEDULER or _is_gated(pod)


def explain_pod(pod: Json, namespace: Json | None) -> str:
    """Return why the pod does not run, as far as its object shows it; ``namespace`` is its own one, None if that cannot
    be read."""
    phase = (pod.get("status") or {}).get("phase")
    if phase in ("Succeeded", "Failed"):
        return f"it has ended: {phase}"
    if pod["metadata"].get("deletionTimestamp"):
        return "it is being deleted"
    if not is_managed(pod):
        return f"Peloton does not manage it: {_explain_unmanaged(pod, namespace)}"
    if node := pod["spec"].get("nodeName"):
        return f"it is on node {node}"
    if others := sorted(_gates_of(pod) - {GATE}):
        return f"it has other scheduling gates, {', '.join(others)}: it takes its place in the queue when they are gone"
    if _is_gated(pod) and GATE not in _gates_of(pod):
        _, message = _read_false(pod, "PodScheduled")
        scheduler = pod["spec"].get("schedulerName") or DEFAULT_SCHEDULER
        return f"its pool has admitted it, and {scheduler} has not bound it: {message or 'it has given no reason yet'}"
    reason, message = _read_false(pod, ADMITTED if _is_gated(pod) else "PodScheduled")
    if reason:
        return f"{reason}: {message}"
    return "Peloton has not given a reason yet. If that lasts, no host manager runs for this cluster"


def explain_pods(pods: Sequence[Json]) -> list[str]:
    """Return the different reasons of the pods of one owner, with their counts, the most frequent ones first."""
    counts = Counter(explain_pod(pod, None) for pod in pods)
    lines = [
        f"{count} pod{'s' if count > 1 else ''}: {text}" for text, count in islice(counts.most_common(), TEXTS_MAX)
    ]
    more = len(counts) - TEXTS_MAX
    return [*lines, f"{more} more reasons"] if more > 0 else lines


def _explain_unmanaged(pod: Json, namespace: Json | None) -> str:
    name, spec = pod["metadata"].get("namespace", "default"), pod["spec"]
    owner = controller_of(pod)
    if owner is not None and owner["kind"] in ("DaemonSet", "Node"):
        return f"pods of a {owner['kind']} are not gated"
    if name in UNGATED_NAMESPACES:
        return f"pods of the namespace {name} are not gated"
    marks = pod["metadata"].get("labels") or {}
    own = ((namespace or {}).get("metadata") or {}).get("labels") or {}
    if POOL in marks or POOL in own:
        return (
            f"it has a pool and no gate {GATE}, as it was created before its namespace had the label {POOL}, or before "
            "the policies were there (`peloton admin gate check`)"
        )
    scheduler = spec.get("schedulerName") or DEFAULT_SCHEDULER
    if namespace is None:
        return f"it has no label {POOL} and no gate, and {scheduler} places it"
    return (
        f"neither it nor its namespace has the label {POOL}, and {scheduler} places it. For pods to come: "
        f"kubectl label namespace {name} {POOL}=POOL"
    )


def _gates_of(pod: Json) -> set[str]:
    return {gate["name"] for gate in pod["spec"].get("schedulingGates") or ()}


def _is_gated(pod: Json) -> bool:
    return GATE in _gates_of(pod) or ADMITTED_AT in (pod["metadata"].get("annotations") or {})


def _read_false(pod: Json, kind: str) -> tuple[str, str]:
    """Return reason and message of a condition that is False; empty ones otherwise."""
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one["type"] == kind and one["status"] == "False":
            return one.get("reason", ""), one.get("message", "")
    return "", ""
