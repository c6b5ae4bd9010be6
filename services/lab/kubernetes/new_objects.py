"""Fields that an apiserver adds to a new object of each kind."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable

from services.lab.kubernetes.pods import NOT_READY, first_status, with_defaults
from services.lab.kubernetes.quantities import amount
from services.lab.kubernetes.resources import (
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    QUOTAS,
    SECRETS,
    Json,
    Resource,
)
from services.lab.kubernetes.times import stamp

JOB_NAME, CONTROLLER_UID = "batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"
RETRIES = 6


def fill_defaults(resource: Resource, body: Json) -> Json:
    """Return the object with its defaults and its first status."""
    fill = _BY_KIND.get(resource.plural)
    return body if fill is None else fill(body)


def _pod(body: Json) -> Json:
    spec = with_defaults(body.get("spec") or {})
    return {**body, "spec": spec, "status": first_status(spec, stamp())}


def _namespace(body: Json) -> Json:
    metadata = body["metadata"]
    labels = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    new = {**body, "metadata": {**metadata, "labels": labels}}
    return {**new, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}


def _node(body: Json) -> Json:
    """Add the taint of a node that has not reported that it is ready."""
    spec = body.get("spec") or {}
    taints = spec.get("taints") or []
    if not any(one["key"] == NOT_READY and one["effect"] == "NoSchedule" for one in taints):
        taints = [*taints, {"key": NOT_READY, "effect": "NoSchedule"}]
    return {**body, "spec": {**spec, "taints": taints}, "status": body.get("status") or {}}


def _quota(body: Json) -> Json:
    """Add the status. Raises ValueError for an invalid amount."""
    spec = body.get("spec") or {}
    hard = spec.get("hard") or {}
    for value in hard.values():
        amount(value)
    return {**body, "spec": spec, "status": {"hard": hard}}


def _priority_class(body: Json) -> Json:
    return {"preemptionPolicy": "PreemptLowerPriority", **body}


def _secret(body: Json) -> Json:
    """Move plain texts of a client into the encoded data: answers never contain plain texts."""
    texts = body.get("stringData") or {}
    data = {**(body.get("data") or {}), **{key: b64encode(text.encode()).decode() for key, text in texts.items()}}
    new = {key: value for key, value in body.items() if key != "stringData"}
    return {**new, "type": body.get("type") or "Opaque", **({"data": data} if data else {})}


def _deployment(body: Json) -> Json:
    spec = body.get("spec") or {}
    template = {**spec["template"], "spec": with_defaults(spec["template"]["spec"])}
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    return {**body, "spec": {"replicas": 1, **spec, "template": template, "strategy": strategy}, "status": {}}


def _job(body: Json) -> Json:
    """Add the counts, and the labels by which the pods of the Job are found."""
    metadata, spec = body["metadata"], body.get("spec") or {}
    labels = {CONTROLLER_UID: metadata["uid"], JOB_NAME: metadata["name"], "job-name": metadata["name"]}
    meta = spec["template"].get("metadata") or {}
    meta = {**meta, "labels": {**(meta.get("labels") or {}), **labels}}
    template = {**spec["template"], "metadata": meta, "spec": with_defaults(spec["template"]["spec"])}
    counts = {"parallelism": 1, "completions": spec.get("parallelism", 1), "backoffLimit": RETRIES}
    selector = {"matchLabels": {CONTROLLER_UID: metadata["uid"]}}
    return {**body, "spec": {**counts, **spec, "selector": selector, "template": template}, "status": {}}


_BY_KIND: dict[str, Callable[[Json], Json]] = {
    PODS.plural: _pod,
    NAMESPACES.plural: _namespace,
    NODES.plural: _node,
    QUOTAS.plural: _quota,
    PRIORITY_CLASSES.plural: _priority_class,
    SECRETS.plural: _secret,
    DEPLOYMENTS.plural: _deployment,
    JOBS.plural: _job,
}
