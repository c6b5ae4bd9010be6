"""Defaults that an apiserver adds to a new pod, and the immutable fields of its spec."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from services.lab.kubernetes.quantities import amount
from services.lab.kubernetes.resources import Json

GRACE_S = 30
TOLERATION_S = 300
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
OVER = ("Succeeded", "Failed")
SCHEDULER = "default-scheduler"
_MODE = 0o644
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_SPEC = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": GRACE_S,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": SCHEDULER,
    "enableServiceLinks": True,
}
_CONTAINER = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}


def is_over(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in OVER


def is_ready(body: Json) -> bool:
    """Return whether the condition Ready of a pod or node is true."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def node_of(pod: Json) -> str:
    return str(pod["spec"].get("nodeName") or "")


def all_containers(spec: Json) -> Iterator[Json]:
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def with_defaults(spec: Json) -> Json:
    """A spec with the defaults that are stored; admission adds tolerations and priority."""
    spec = {**_SPEC, **{key: value for key, value in spec.items() if value is not None}}
    for field in ("containers", "initContainers"):
        if field in spec:
            spec[field] = [_container(one, bool(spec.get("hostNetwork"))) for one in spec[field]]
    if "volumes" in spec:
        spec["volumes"] = [_volume(one) for one in spec["volumes"]]
    return spec


def _container(container: Json, is_on_host_network: bool) -> Json:
    container = {**_CONTAINER, **{key: value for key, value in container.items() if value is not None}}
    image = container.get("image") or ""
    if "imagePullPolicy" not in container:
        tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
        is_latest = "@" not in image and tag in ("", "latest")
        container["imagePullPolicy"] = "Always" if is_latest else "IfNotPresent"
    limits = container["resources"].get("limits")
    if limits:
        requests = {**limits, **(container["resources"].get("requests") or {})}
        container["resources"] = {**container["resources"], "requests": requests}
    if "ports" in container:
        container["ports"] = [_port(one, is_on_host_network) for one in container["ports"]]
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            container[probe] = _probe(container[probe])
    return container


def _port(port: Json, is_on_host_network: bool) -> Json:
    port = {"protocol": "TCP", **port}
    if is_on_host_network and "containerPort" in port:
        port.setdefault("hostPort", port["containerPort"])
    return port


def _probe(probe: Json) -> Json:
    probe = {**_PROBE, **probe}
    if "httpGet" in probe:
        probe["httpGet"] = {"path": "/", "scheme": "HTTP", **probe["httpGet"]}
    return probe


def _volume(volume: Json) -> Json:
    if set(volume) == {"name"}:
        return {**volume, "emptyDir": {}}
    for source in ("configMap", "secret", "projected", "downwardAPI"):
        if source in volume:
            return {**volume, source: {"defaultMode": _MODE, **volume[source]}}
    return volume


def tolerations(wanted: list[Json]) -> list[Json]:
    """Return the tolerations that admission adds: five minutes on a node that is not ready or is unreachable."""
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_S}
        for key in (NOT_READY, UNREACHABLE)
        if not any(_covers(one, key) for one in wanted)
    ]
    return [*wanted, *added]


def _covers(toleration: Json, key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")


def tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]) or toleration.get("key") not in (
        None, "", taint["key"],
    ):  # fmt: skip
        return False
    return toleration.get("operator") == "Exists" or (toleration.get("value") or "") == (taint.get("value") or "")


def first_status(spec: Json, now: str) -> Json:
    status: Json = {"phase": "Pending", "qosClass": quality(spec)}
    if spec.get("schedulingGates"):
        gated = {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": now,
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }
        status["conditions"] = [gated]
    return status


def quality(spec: Json) -> str:
    """Return the QoS class, from CPU and memory alone."""
    is_best_effort = is_guaranteed = True
    for container in all_containers(spec):
        resources = container.get("resources") or {}
        requests, limits = _compute(resources.get("requests")), _compute(resources.get("limits"))
        is_best_effort = is_best_effort and not requests and not limits
        is_guaranteed = is_guaranteed and len(limits) == 2 and requests == limits
    return "BestEffort" if is_best_effort else "Guaranteed" if is_guaranteed else "Burstable"


def _compute(amounts: Json | None) -> dict[str, Fraction]:
    if not amounts:
        return {}
    return {kind: value for kind in ("cpu", "memory") if kind in amounts and (value := amount(amounts[kind])) > 0}


def with_condition(status: Json, condition: Json) -> Json:
    """A status in which this condition replaces the one of its type."""
    others = [one for one in status.get("conditions") or () if one["type"] != condition["type"]]
    return {**status, "conditions": [*others, condition]}


CHANGEABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
    "previously negative)"
)


_FREE = ("activeDeadlineSeconds", "tolerations", "schedulingGates")


def frozen(spec: Json) -> Json:
    """Return the part of a spec that an update must not change."""
    kept = {key: value for key, value in spec.items() if key not in _FREE}
    fields = [field for field in ("containers", "initContainers") if field in kept]
    return kept | {field: [{**one, "image": ""} for one in kept[field]] for field in fields}
