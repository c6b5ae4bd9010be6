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
_HEALTH = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


def node_body(
    spec: HostSpec, pods_max: int, now: str, before: Json | None, uid: str, has_own_ports: bool = False
) -> Json:
    """Return the object of a node. ``before``: the node of an earlier start, whose labels, taints and cordons by others
    are kept. ``has_own_ports``: publish the node's part of the ports of a machine that nodes share.
    """
    old: Json = before or {}
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
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
    known = {row["type"]: (row["status"], row["lastTransitionTime"]) for row in before.get("conditions", ())}
    conditions = []
    for kind, status, reason, message in _HEALTH:
        was, since = known.get(kind, ("", now))
        times = {"lastHeartbeatTime": now, "lastTransitionTime": since if was == status else now}
        conditions.append({"type": kind, "status": status, **times, "reason": reason, "message": message})
    return {
        "capacity": resources,
        "allocatable": dict(resources),
        "conditions": conditions,
        "addresses": [{"type": "InternalIP", "address": ADDRESS}, {"type": "Hostname", "address": spec.name}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": "",
            "containerRuntimeVersion": "emulated://1",
            "kernelVersion": "",
            "kubeProxyVersion": "",
            "kubeletVersion": GIT_VERSION,
            "machineID": "",
            "operatingSystem": "linux",
            "osImage": "emulated",
            "systemUUID": "",
        },
    }


def _cpus(cpus: float) -> str:
    return str(int(cpus)) if cpus == int(cpus) else f"{round(cpus * 1000)}m"


def label_value(value: str | float) -> str:
    """An attribute as the value of a label: numbers without a needless fraction."""
    return f"{value:g}" if isinstance(value, float) else value


def lease_body(name: str, renewed: str, before: Json | None, uid: str, node_uid: str) -> Json:
    """Return the object of a lease. ``renewed``: time with microseconds."""
    metadata = (before or {}).get("metadata") or {
        "name": name,
        "namespace": NODE_LEASES,
        "uid": uid,
        "creationTimestamp": renewed[:19] + "Z",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}],
    }
    return {
        "metadata": metadata,
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_S, "renewTime": renewed},
    }
