"""Nodes and their leases as a kubelet registers them."""

from __future__ import annotations

from services.lab.kubernetes.discovery import GIT_VERSION
from services.lab.kubernetes.nodes.pod_status import ADDRESS
from services.lab.kubernetes.pods import NOT_READY, UNREACHABLE
from services.lab.kubernetes.resources import NODE_LEASES, Json
from services.lab.shared.hosts import HostSpec

GPU = "nvidia.com/gpu"
LEASE_S = 40
PORTS = "peloton.io/ports"
"""Annotation of a node with the ports available to pods."""


def node_body(
    spec: HostSpec, pods_max: int, now: str, before: Json | None, uid: str, has_own_ports: bool = False
) -> Json:
    """Return the object of a node. ``before``: the node of an earlier start, whose labels, taints and cordons by others
    are kept. ``has_own_ports``: publish the node's part of the ports of a machine that nodes share.
    """
    old: Json = before or {}
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": spec.name,
        "kubernetes.io/os": "linux",
        **{name: label_value(value) for name, value in spec.attributes.items()},
    }
    if spec.group:
        labels["node.kubernetes.io/instance-type"] = spec.group
    ports = ",".join(f"{first}-{last}" for first, last in spec.ports) if has_own_ports else ""
    metadata = old.get("metadata", {"name": spec.name, "uid": uid, "creationTimestamp": now})
    annotations = {"annotations": {**metadata.get("annotations", {}), PORTS: ports}} if ports else {}
    node_spec = dict(old.get("spec", {}))
    taints = [taint for taint in node_spec.pop("taints", []) if taint["key"] not in (NOT_READY, UNREACHABLE)]
    return {
        "metadata": {**metadata, "labels": {**metadata.get("labels", {}), **labels}, **annotations},
        "spec": {**node_spec, "taints": taints} if taints else node_spec,
        "status": _status(spec, pods_max, now, old.get("status", {})),
    }


def _status(spec: HostSpec, pods_max: int, now: str, before: Json) -> Json:
    resources = {
        "cpu": _cpus(spec.cpus),
        "ephemeral-storage": f"{int(spec.disk)}Mi",
        "memory": f"{int(spec.mem)}Mi",
        "pods": str(pods_max),
    }
    if spec.gpus:
        resources[GPU] = str(spec.gpus)
    resources |= {name: str(amount) for name, amount in spec.extended}
    was = [row for row in before.get("conditions", ()) if row["type"] == "Ready" and row["status"] == "True"]
    since = was[0]["lastTransitionTime"] if was else now
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
    return {
        "capacity": resources,
        "allocatable": dict(resources),
        "conditions": [{**ready, "lastHeartbeatTime": now, "lastTransitionTime": since}],
        "addresses": [{"type": "InternalIP", "address": ADDRESS}, {"type": "Hostname", "address": spec.name}],
        "nodeInfo": {"kubeletVersion": GIT_VERSION, "containerRuntimeVersion": "emulated://1", "osImage": "emulated"},
    }


def _cpus(cpus: float) -> str:
    return str(int(cpus)) if cpus == int(cpus) else f"{round(cpus * 1000)}m"


def label_value(value: str | float) -> str:
    """An attribute as the value of a label: numbers without a needless fraction."""
    return f"{value:g}" if isinstance(value, float) else value


def lease_body(name: str, renewed: str, before: Json | None, uid: str) -> Json:
    """Return the object of a lease. ``renewed``: time with microseconds."""
    created = {"name": name, "namespace": NODE_LEASES, "uid": uid, "creationTimestamp": renewed[:19] + "Z"}
    return {
        "metadata": (before or {}).get("metadata") or created,
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_S, "renewTime": renewed},
    }
