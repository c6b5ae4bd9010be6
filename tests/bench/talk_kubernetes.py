"""Kubernetes' side of the talk's benchmark: the Job and Deployment controllers and kube-scheduler on a real apiserver,
whose nodes are objects. A process patches the statuses that their kubelets would report.

The limits of requests a second are lifted, and the controllers get more workers: the defaults admit 20 pods a second.
"""

from __future__ import annotations

import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from services.hostmgr.kubernetes.apiserver.access import read_access
from services.hostmgr.kubernetes.apiserver.watch import Reflector
from services.hostmgr.kubernetes.apiserver.wire import Answer, ApiServer, Json, Request
from tests.bench.figures import cpu_s
from tests.bench.kubernetes_real import ALLOCATABLE, NAMESPACE, ask, part, ready
from tests.kubernetes.client import STRATEGIC
from tests.kubernetes.control_plane import ControlPlane, Flags

MODULE = "tests.bench.talk_kubernetes"
PARTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
STAGE_MAX_S = 900.0
POLL_S = 0.5
BATCH_MAX = 500
"""Statuses that the nodes' process sends at a time."""
NODE_GRACE_S = 86_400
"""Nodes send no heartbeats: only pods are measured."""
REQUESTS = {"cpu": "100m", "memory": "16Mi"}
JOBS, DEPLOYMENTS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
NODES_PATH = "/api/v1/nodes"
BATCH, SERVICE = "batch", "service"
TUNED: dict[str, Flags] = {
    "kube-controller-manager": {
        "kube-api-qps": 100_000,
        "kube-api-burst": 100_000,
        "concurrent-job-syncs": 50,
        "concurrent-deployment-syncs": 50,
        "concurrent-replicaset-syncs": 50,
    },
    "kube-apiserver": {"max-requests-inflight": 3_000, "max-mutating-requests-inflight": 1_000},
}


def kubernetes_stages(pods: int, nodes: int) -> dict[str, Any]:
    """Return the figures of each stage; ``stopped_at`` is the one that has not ended in time."""
    with (
        tempfile.TemporaryDirectory(prefix="kubernetes-", ignore_cleanup_errors=True) as folder,
        ControlPlane(Path(folder), scheduler=True, node_grace_s=NODE_GRACE_S, flags=TUNED) as plane,
        part("nodes", plane, str(nodes), module=MODULE) as kubelets,
    ):
        ask(kubelets)
        api = ApiServer(read_access(str(plane.kubeconfig)))
        try:
            return _stages(plane, api, kubelets.pid, pods)
        finally:
            api.close()


def _stages(plane: ControlPlane, api: ApiServer, kubelets: int, pods: int) -> dict[str, Any]:
    def run_batch() -> None:
        _send(api, "POST", JOBS, _job(pods))
        _await(api, f"{JOBS}/{BATCH}", lambda job: job["status"].get("succeeded", 0) == pods)

    def create() -> None:
        _send(api, "POST", DEPLOYMENTS, _deployment(pods, "1"))
        _await(api, f"{DEPLOYMENTS}/{SERVICE}", lambda found: _is_rolled(found, pods))

    def roll_over() -> None:
        _send(api, "PUT", f"{DEPLOYMENTS}/{SERVICE}", _deployment(pods, "2"))
        _await(api, f"{DEPLOYMENTS}/{SERVICE}", lambda found: _is_rolled(found, pods))

    def cpu() -> float:
        """Return the CPU of the control plane; the kubelets' is no part of it, as their machines would spend it."""
        return sum(cpu_s(plane.process_id(name)) for name in PARTS)

    result: dict[str, Any] = {}
    for name, stage in {"batch": run_batch, "service_created": create, "service_rolled": roll_over}.items():
        used_s, used_by_nodes_s, began_s = cpu(), cpu_s(kubelets), time.monotonic()
        try:
            stage()
        except TimeoutError:
            return {**result, "stopped_at": name}
        result[name] = stage_figures(pods, time.monotonic() - began_s, cpu() - used_s)
        result[name]["nodes_cpu_ms_per_pod"] = round((cpu_s(kubelets) - used_by_nodes_s) / pods * 1000, 2)
    return result


def stage_figures(pods: int, seconds: float, cpu_s: float) -> dict[str, float]:
    return {
        "seconds": round(seconds, 1),
        "pods_per_second": round(pods / seconds, 1),
        "cpu_ms_per_pod": round(cpu_s / pods * 1000, 2),
    }


def _is_rolled(deployment: Json, pods: int) -> bool:
    status = deployment.get("status", {})
    is_seen = status.get("observedGeneration") == deployment["metadata"]["generation"]
    return bool(is_seen) and pods == status.get("updatedReplicas") == status.get("readyReplicas") == status.get(
        "replicas"
    )


def _await(api: ApiServer, path: str, is_so: Callable[[Json], bool]) -> None:
    until_s = time.monotonic() + STAGE_MAX_S
    while not is_so(_send(api, "GET", path)):
        if time.monotonic() > until_s:
            raise TimeoutError
        time.sleep(POLL_S)


def _send(api: ApiServer, method: str, path: str, body: Json | None = None) -> Json:
    answer = api.ask(Request(method, path, b"" if body is None else orjson.dumps(body)))
    assert answer.is_ok, answer.message
    return answer.json()


def _job(pods: int) -> Json:
    return {
        "metadata": {"name": BATCH},
        "spec": {"parallelism": pods, "completions": pods, "template": _template({"app": BATCH}, "Never")},
    }


def _deployment(pods: int, version: str) -> Json:
    labels = {"app": SERVICE}
    template = _template({**labels, "version": version}, "Always")
    return {
        "metadata": {"name": SERVICE},
        "spec": {
            "replicas": pods,
            "selector": {"matchLabels": labels},
            "template": template,
            "progressDeadlineSeconds": 86_400,
        },
    }


def _template(labels: dict[str, str], restart: str) -> Json:
    container = {"name": "main", "image": "busybox", "resources": {"requests": REQUESTS}}
    spec = {"restartPolicy": restart, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"metadata": {"labels": labels}, "spec": spec}


# The process that plays the nodes.


class Statuses:
    """Hands the pods that are on a node to the loop that reports for their kubelets."""

    def __init__(self) -> None:
        self.bound: queue.SimpleQueue[Json] = queue.SimpleQueue()
        self._seen: set[str] = set()  # uids

    def on_replace(self, objects: Sequence[Json]) -> None:
        for pod in objects:
            self.on_change("ADDED", pod)

    def on_change(self, kind: str, object: Json) -> None:
        uid = object["metadata"]["uid"]
        if kind == "DELETED":
            self._seen.discard(uid)
        elif object["spec"].get("nodeName") and uid not in self._seen:
            self._seen.add(uid)
            self.bound.put(object)

    def on_lost(self, why: str) -> None:
        raise AssertionError(why)


def nodes(kubeconfig: str, count: str) -> None:
    """Create the nodes, and report that each pod runs as soon as it is bound, and that a batch pod ends then."""
    api, statuses = ApiServer(read_access(kubeconfig)), Statuses()
    _send(api, "POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    answers = api.ask_all([Request("POST", NODES_PATH, orjson.dumps(_node(i))) for i in range(int(count))])
    refused = [one for one in answers if not isinstance(one, Answer) or not one.is_ok]
    assert not refused, refused[0]
    while any(node["spec"].get("taints") for node in _send(api, "GET", NODES_PATH)["items"]):
        time.sleep(POLL_S)
    watch = Reflector(api, f"/api/v1/namespaces/{NAMESPACE}/pods", statuses)
    watch.start()
    ready()
    ending = threading.Thread(target=sys.stdin.read)
    ending.start()
    while ending.is_alive():
        pods = []
        with suppress(queue.Empty):
            pods.append(statuses.bound.get(timeout=POLL_S))
            while len(pods) < BATCH_MAX:
                pods.append(statuses.bound.get_nowait())
        api.ask_all([_status(pod, "Running") for pod in pods])  # a pod that was deleted meanwhile has no status
        if ended := [pod for pod in pods if pod["metadata"]["labels"]["app"] == BATCH]:
            api.ask_all([_status(pod, "Succeeded") for pod in ended])
    watch.stop()
    api.close()


def _node(number: int) -> Json:
    name = f"talk-{number}"
    conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    status = {"capacity": ALLOCATABLE, "allocatable": ALLOCATABLE, "conditions": conditions}
    return {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "status": status}


def _status(pod: Json, phase: str) -> Request:
    is_over = phase == "Succeeded"
    state = {"terminated": {"exitCode": 0}} if is_over else {"running": {}}
    container = {"name": "main", "image": "busybox", "imageID": "busybox", "restartCount": 0}
    ready_now = "False" if is_over else "True"
    status = {
        "phase": phase,
        "conditions": [{"type": name, "status": ready_now} for name in ("ContainersReady", "Ready")],
        "containerStatuses": [{**container, "ready": not is_over, "state": state}],
    }
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
    body = orjson.dumps({"metadata": {"uid": metadata["uid"]}, "status": status})
    return Request("PATCH", path, body, STRATEGIC)


if __name__ == "__main__":
    {"nodes": nodes}[sys.argv[1]](*sys.argv[2:])
