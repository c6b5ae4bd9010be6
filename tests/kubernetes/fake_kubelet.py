"""Nodes without machines: a thread plays the kubelets of all of them on a real apiserver.

Containers are started at once. Of their commands ``sleep N``, ``exit N``, ``true`` and ``false`` count, also several in
a row (``sh -c "sleep 1; exit 3"``); others take no time, and a container without a command runs until it is deleted.
"""

from __future__ import annotations

import heapq
import http.client
import queue
import re
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from types import TracebackType
from typing import Any

from tests.kubernetes.client import MERGE, STRATEGIC, Client, Json, Login, Reply, Watch
from tests.present import require

HEARTBEAT_S = 3.0
TIMEOUT_S = 180.0
RETRY_S = 0.2
KILLED = 137
_UNITS: dict[str, int | Decimal] = {
    "": 1,
    "m": Decimal("0.001"),
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
}
ALLOCATABLE = {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "20Gi", "pods": "110"}


class FakeKubelets:
    def __init__(
        self,
        login: Login,
        nodes: Sequence[str],
        *,
        allocatable: Mapping[str, str] = ALLOCATABLE,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
        runs_pods: bool = True,
    ) -> None:
        """Create the kubelets. Without ``runs_pods`` the nodes are healthy, and the test itself updates their pods."""
        self.nodes = list(nodes)
        self.names: dict[str, str] = {}
        """Names by uid of all pods that were ever seen on these nodes."""
        self._allocatable, self._labels, self._taints = dict(allocatable), dict(labels or {}), list(taints)
        self._client = Client(login)
        self._lost: set[str] = set()
        self._beating = threading.Lock()  # while a node reports that it is ready
        self._pods: dict[str, Json] = {}  # by uid, as last seen, on our nodes
        self._started: set[str] = set()  # uids
        self._due: list[tuple[float, int, str]] = []  # when the containers of a uid end
        self._seen: queue.SimpleQueue[Json | None] = queue.SimpleQueue()
        self._order = count()
        self._addresses = count(1)
        self._closed = threading.Event()
        self._watch: Watch | None = None
        self._threads = [
            threading.Thread(target=run, name=f"fake kubelets, {run.__name__}", daemon=True)
            for run in ((self._poll, self._work, self._beat) if runs_pods else (self._beat,))
        ]

    def __enter__(self) -> FakeKubelets:
        """Return when all nodes are ready without any taints except the requested ones."""
        for node in self.nodes:
            body = {
                "metadata": {"name": node, "labels": {"kubernetes.io/hostname": node, **self._labels}},
                "spec": {"taints": self._taints} if self._taints else {},
                "status": self._node_status(node),
            }
            reply = self._client.ask("POST", "/api/v1/nodes", body)
            assert reply.status == http.client.CREATED, reply.body
        for thread in self._threads:
            thread.start()
        self._await(lambda: all(self._is_open(node) for node in self.nodes), "nodes are not ready")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop the machines; the node objects stay."""
        self._closed.set()
        self._seen.put(None)
        if self._watch is not None:
            self._watch.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        self._client.close()

    def lose(self, node: str) -> None:
        """Disconnect a node from the apiserver."""
        with self._beating:
            self._lost.add(node)

    def bring_back(self, node: str) -> None:
        self._lost.discard(node)
        reply = self._say_ready(node)
        assert reply.status == http.client.OK, reply.body
        for pod in list(self._pods.values()):
            self._seen.put({"type": "MODIFIED", "object": pod})

    def _node_status(self, node: str) -> Json:
        now = _now()
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": now}
        return {
            "capacity": self._allocatable,
            "allocatable": self._allocatable,
            "addresses": [{"type": "Hostname", "address": node}, {"type": "InternalIP", "address": "127.0.0.1"}],
            "conditions": [{**ready, "lastHeartbeatTime": now}],
        }

    def _say_ready(self, node: str) -> Reply:
        return self._client.ask("PATCH", f"/api/v1/nodes/{node}/status", {"status": self._node_status(node)}, MERGE)

    def _is_open(self, node: str) -> bool:
        found = self._client.ask("GET", f"/api/v1/nodes/{node}").json()
        return len(found["spec"].get("taints", [])) == len(self._taints)

    def _await(self, condition: Any, otherwise: str) -> None:
        until_s = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < until_s, otherwise
            time.sleep(0.05)

    # Threads.

    def _beat(self) -> None:
        """Renew the lease of each node, without which the controller manager marks it lost. A marked node reports that
        it is ready, after the apiserver was unavailable or this process had no cpu.
        """
        while not self._closed.is_set():
            for node in self.nodes:
                with self._beating, suppress(OSError, http.client.HTTPException):
                    if node not in self._lost:
                        self._renew(node)
                        found = self._client.ask("GET", f"/api/v1/nodes/{node}")
                        if found.status == http.client.OK and not _is_ready(found.json()):
                            self._say_ready(node)
            self._closed.wait(HEARTBEAT_S)

    def _renew(self, node: str) -> None:
        path, now = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", _now(".%fZ")
        spec = {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": now}
        reply = self._client.ask("PATCH", f"{path}/{node}", {"spec": spec}, MERGE)
        if reply.status == http.client.NOT_FOUND:
            self._client.ask("POST", path, {"metadata": {"name": node}, "spec": spec})

    def _poll(self) -> None:
        """Read every pod, and then its changes; list again after the apiserver was unavailable."""
        while not self._closed.is_set():
            with suppress(OSError, http.client.HTTPException):
                self._watch = self._client.watch("/api/v1/pods?watch=1")
                if self._closed.is_set():
                    self._watch.close()
                for event in self._watch:
                    pod = event["object"]
                    if pod.get("spec", {}).get("nodeName") in self.nodes:
                        self.names[pod["metadata"]["uid"]] = pod["metadata"]["name"]
                        self._seen.put(event)
                self._watch.close()
            self._closed.wait(RETRY_S)

    def _work(self) -> None:
        while not self._closed.is_set():
            wait_s = max(self._due[0][0] - time.monotonic(), 0.0) if self._due else None
            with suppress(queue.Empty):
                if (event := self._seen.get(timeout=wait_s)) is not None:
                    self._saw(event)
            while self._due and self._due[0][0] <= time.monotonic() and not self._closed.is_set():
                uid = heapq.heappop(self._due)[2]
                if (pod := self._pods.get(uid)) is not None:
                    self._end(pod)

    # Pods.

    def _saw(self, event: Json) -> None:
        pod = event["object"]
        uid = pod["metadata"]["uid"]
        if event["type"] == "DELETED":
            self._pods.pop(uid, None)
            self._started.discard(uid)
            return
        self._pods[uid] = pod
        if pod["spec"]["nodeName"] in self._lost:
            return
        if "deletionTimestamp" in pod["metadata"]:
            self._remove(pod)
        elif not _is_over(pod) and uid not in self._started:
            self._begin(pod)

    def _begin(self, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        if (lacking := self._lacking(pod)) is not None:
            message = f"Node didn't have enough resource: {lacking}"
            self._patch(pod, {"phase": "Failed", "reason": f"OutOf{lacking}", "message": message})
            return
        self._started.add(uid)
        running = {"running": {"startedAt": _now()}}
        statuses = [_container(container, running, ready=True) for container in pod["spec"]["containers"]]
        ready = [{"type": name, "status": "True"} for name in ("Initialized", "ContainersReady", "Ready")]
        status = {"phase": "Running", "startTime": _now(), "containerStatuses": statuses, "conditions": ready}
        number = next(self._addresses)  # a Service takes no pod with a loopback address
        self._patch(pod, {**status, "hostIP": "127.0.0.1", "podIP": f"10.9.{number >> 8 & 255}.{number & 255}"})
        if (seconds := max(_life(container)[0] for container in pod["spec"]["containers"])) < float("inf"):
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._order), uid))

    def _lacking(self, pod: Json) -> str | None:
        """Return the resource that the node lacks for the pod, given the started pods."""
        node = pod["spec"]["nodeName"]
        beside = [
            other
            for uid, other in self._pods.items()
            if uid in self._started and other["spec"]["nodeName"] == node and not _is_over(other)
        ]
        for name in ("cpu", "memory", "pods"):
            wanted = sum((_sum_requests(other, name) for other in (*beside, pod)), Decimal())
            if wanted > _amount(self._allocatable[name]):
                return name
        return None

    def _end(self, pod: Json, killed: bool = False) -> None:
        if pod["spec"]["nodeName"] in self._lost:  # it ends all the same, and is seen when the node comes back
            heapq.heappush(self._due, (time.monotonic() + RETRY_S, next(self._order), pod["metadata"]["uid"]))
            return
        containers = pod["spec"]["containers"]
        codes = [KILLED if killed else _life(container)[1] for container in containers]
        statuses = [
            _container(container, {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}})
            for container, code in zip(containers, codes, strict=True)
        ]
        not_ready = [{"type": name, "status": "False"} for name in ("ContainersReady", "Ready")]
        phase = "Failed" if any(codes) else "Succeeded"
        self._patch(pod, {"phase": phase, "containerStatuses": statuses, "conditions": not_ready})

    def _remove(self, pod: Json) -> None:
        """Stop the processes, and report their end to the apiserver."""
        metadata = pod["metadata"]
        if not _is_over(pod) and metadata["uid"] in self._started:
            self._end(pod, killed=True)
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        self._repeat("DELETE", f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}", options)

    def _patch(self, pod: Json, status: Json) -> None:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
        self._repeat("PATCH", path, {"metadata": {"uid": metadata["uid"]}, "status": status}, STRATEGIC)

    def _repeat(self, method: str, path: str, body: Json, content_type: str = "application/json") -> None:
        """Repeat a request until the apiserver has answered; a pod deleted meanwhile (404, 409) is accepted."""
        while not self._closed.is_set():
            with suppress(OSError, http.client.HTTPException):
                if self._client.ask(method, path, body, content_type).status < http.client.TOO_MANY_REQUESTS:
                    return
            self._closed.wait(RETRY_S)


def _container(container: Json, state: Json, ready: bool = False) -> Json:
    image = container.get("image", "")
    return {
        "name": container["name"],
        "image": image,
        "imageID": image,
        "restartCount": 0,
        "ready": ready,
        "state": state,
    }


def _life(container: Json) -> tuple[float, int]:
    """Return seconds and exit code of the pod's command."""
    words = " ".join([*container.get("command", []), *container.get("args", [])])
    if not words:
        return float("inf"), 0
    seconds, code = 0.0, 0
    for name, value in re.findall(r"\b(sleep|exit|true|false)\b\s*([\d.]+|infinity)?", words):
        if name == "sleep":
            seconds += float(value or 0)
        else:
            code = int(value or 0) if name == "exit" else int(name == "false")
        if name == "exit":
            break
    return seconds, code


def _is_ready(node: Json) -> bool:
    conditions = {one["type"]: one["status"] for one in node["status"].get("conditions", [])}
    return conditions.get("Ready") == "True"


def _is_over(pod: Json) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def _sum_requests(pod: Json, name: str) -> Decimal:
    if name == "pods":
        return Decimal(1)
    requests = [container.get("resources", {}).get("requests", {}) for container in pod["spec"]["containers"]]
    return sum((_amount(request.get(name, "0")) for request in requests), Decimal())


def _amount(text: str) -> Decimal:
    number, unit = require(re.fullmatch(r"([\d.]+)([A-Za-z]*)", text)).groups()
    return Decimal(number) * _UNITS[unit]


def _now(fraction: str = "Z") -> str:
    return datetime.now(UTC).strftime(f"%Y-%m-%dT%H:%M:%S{fraction}")
