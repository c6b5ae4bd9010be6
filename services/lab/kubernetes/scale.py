"""Scale subresource of Deployments, by which kubectl changes the number of replicas."""

from __future__ import annotations

from services.lab.kubernetes.errors import bad_request
from services.lab.kubernetes.resources import Json

REPLICAS_MAX = 10_000


def scale_of(deployment: Json) -> Json:
    metadata, spec = deployment["metadata"], deployment["spec"]
    labels = (spec["selector"].get("matchLabels") or {}).items()
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion")},
        "spec": {"replicas": spec["replicas"]},
        "status": {
            "replicas": deployment["status"].get("replicas", 0),
            "selector": ",".join(f"{key}={value}" for key, value in labels),
        },
    }


def scale_deployment(deployment: Json, scale: Json) -> Json:
    """Return the Deployment with the replicas of the Scale. Raises ApiError 400."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or not 0 <= replicas <= REPLICAS_MAX:
        raise bad_request(f"spec.replicas: {replicas!r} is no whole number from 0 to {REPLICAS_MAX}")
    return {**deployment, "spec": {**deployment["spec"], "replicas": replicas}}
