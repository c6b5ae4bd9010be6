"""Usage of pods as a kubelet reports it, proxied by the apiserver: /api/v1/nodes/NAME/proxy/stats/summary."""

from __future__ import annotations

import re
from urllib.parse import unquote

from services.lab.kubernetes.answers import json_answer
from services.lab.kubernetes.errors import ApiError, method_not_allowed, not_found
from services.lab.kubernetes.nodes.node import Node
from services.lab.kubernetes.nodes.nodes import Nodes
from services.lab.kubernetes.nodes.pods import NodePod
from services.lab.kubernetes.resources import NODES, Json
from services.lab.shared.http.server import Request

PATH = re.compile(r"/api/v1/nodes/([^/]+)/proxy/stats/summary")


class NodeStats:
    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    def handle(self, request: Request, name: str) -> bytes:
        """Handle a request. Raises ApiError."""
        node = self._nodes.by_name.get(unquote(name))
        if request.method != "GET":
            raise method_not_allowed()
        if node is None:
            raise not_found(NODES, name)
        if not node.is_up:
            raise ApiError(503, "ServiceUnavailable", f"error trying to reach service: node {name} does not answer")
        return json_answer(200, summary(node))


def summary(node: Node) -> Json:
    now = node.stored.now()
    pods = [_pod(pod, now) for pod in node.pods.values() if pod.run.has_sandbox and not pod.has_ended]
    return {"node": {"nodeName": node.spec.name}, "pods": pods}


def _pod(pod: NodePod, now: str) -> Json:
    cpu_s, memory = pod.usage()
    return {
        "podRef": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "startTime": pod.run.start_time,
        "cpu": {"time": now, "usageCoreNanoSeconds": int(cpu_s * 1e9)},
        "memory": {"time": now, "usageBytes": memory, "workingSetBytes": memory},
    }
