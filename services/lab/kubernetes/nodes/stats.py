"""Usage of pods as a kubelet reports it, proxied by the apiserver: /api/v1/nodes/NAME/proxy/stats/summary."""

from __future__ import annotations

import re

from services.lab.kubernetes.errors import ApiError, not_found
from services.lab.kubernetes.nodes.nodes import Nodes
from services.lab.kubernetes.nodes.pods import NodePod
from services.lab.kubernetes.resources import NODES, Json

PATH = re.compile(r"/api/v1/nodes/([^/]+)/proxy/stats/summary")


def summary(nodes: Nodes, name: str) -> Json:
    """Return the usage of a node. Raises ApiError when it is missing or down."""
    node = nodes.by_name.get(name)
    if node is None:
        raise not_found(NODES, name)
    if not node.is_up:
        raise ApiError(503, "ServiceUnavailable", f"error trying to reach service: node {name} does not answer")
    now = node.stored.now()
    pods = [_pod(pod, now) for pod in node.pods.values() if pod.run.has_sandbox and not pod.has_ended]
    return {"node": {"nodeName": name}, "pods": pods}


def _pod(pod: NodePod, now: str) -> Json:
    cpu_s, memory = pod.usage()
    return {
        "podRef": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "startTime": pod.run.start_time,
        "cpu": {"time": now, "usageCoreNanoSeconds": int(cpu_s * 1e9)},
        "memory": {"time": now, "usageBytes": memory, "workingSetBytes": memory},
    }
