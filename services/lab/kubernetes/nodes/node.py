"""One node: admits pods within its free resources, goes down and comes back."""

from __future__ import annotations

from services.lab.kubernetes.nodes.amounts import Amounts, amounts_of, host_ports, requests_of
from services.lab.kubernetes.nodes.pod_status import Verdict
from services.lab.kubernetes.nodes.pods import NodePod
from services.lab.kubernetes.nodes.runtime import Runtime
from services.lab.kubernetes.nodes.stored_pods import StoredPods
from services.lab.kubernetes.pods import is_over
from services.lab.kubernetes.resources import Json
from services.lab.shared.clock import Clock
from services.lab.shared.hosts import HostSpec


class Node:
    def __init__(
        self,
        spec: HostSpec,
        clock: Clock,
        stored: StoredPods,
        runtime: Runtime,
        taken_ports: dict[int, str],
    ) -> None:
        """``taken_ports``: host ports and the uids of their pods. Nodes of one machine share them."""
        self.spec = spec
        self.clock = clock
        self.stored = stored
        self.pods: dict[str, NodePod] = {}  # by uid
        self.is_up = True
        self._runtime = runtime
        self._used: Amounts = {}
        self._taken_ports = taken_ports

    def saw(self, body: Json) -> None:
        """A pod that is bound here was created, bound or changed."""
        if not self.is_up:
            return
        metadata = body["metadata"]
        pod = self.pods.get(metadata["uid"])
        grace_s = metadata.get("deletionGracePeriodSeconds") if "deletionTimestamp" in metadata else None
        if pod is not None:
            if grace_s is not None and float(grace_s) != pod.grace_left_s:
                pod.delete(float(grace_s))
        elif not is_over(body):
            if grace_s is None:
                # Not now: the creation is answered before the status changes.
                self.clock.call_later(0.0, self._take, metadata["namespace"], metadata["name"], metadata["uid"])
            else:
                self.stored.remove(metadata["namespace"], metadata["name"], metadata["uid"])

    def _take(self, namespace: str, name: str, uid: str) -> None:
        entry = self.stored.find(namespace, name, uid)
        if entry is None or uid in self.pods or not self.is_up or is_over(entry.body):
            return
        refused = self.refusal(entry.body)
        if refused is None:
            self._hold(self._runtime.pod(self, entry.body)).start()
            return
        ended = {"phase": "Failed", "reason": refused.reason, "message": f"Pod was rejected: {refused.message}"}
        self.stored.write_status(entry, {**entry.body.get("status", {}), **ended, "startTime": self.stored.now()})

    def refusal(self, pod: Json) -> Verdict | None:
        """Return why the node rejects a pod, with the reason and message of a kubelet; None if it takes it."""
        node, spec = self.stored.node(self.spec.name), pod["spec"]
        capacity = amounts_of(node.get("status", {}).get("allocatable", {}))
        for name, value in requests_of(spec).items():
            used = self._used.get(name, 0)
            if value and used + value > capacity.get(name, 0):
                numbers = f"requested: {value}, used: {used}, capacity: {capacity.get(name, 0)}"
                return Verdict(f"OutOf{name}", f"Node didn't have enough resource: {name}, {numbers}")
        labels = node.get("metadata", {}).get("labels", {})
        if any(labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
            why = "node(s) didn't match Pod's node affinity/selector"
            return Verdict("NodeAffinity", f"Predicate NodeAffinity failed: {why}")
        if not host_ports(spec).isdisjoint(self._taken_ports):
            why = "node(s) didn't have free ports for the requested pod ports"
            return Verdict("NodePorts", f"Predicate NodePorts failed: {why}")
        return None

    def resume(self, body: Json) -> None:
        """A pod of the store, after a start of the emulation."""
        metadata = body["metadata"]
        if is_over(body):
            return
        if "startTime" not in body.get("status", {}):
            self.saw(body)
            return
        pod = self._hold(self._runtime.pod(self, body))
        pod.resume()
        if "deletionTimestamp" in metadata and not pod.is_deleting:
            pod.delete(float(metadata.get("deletionGracePeriodSeconds", 0)))

    def _hold(self, pod: NodePod) -> NodePod:
        self.pods[pod.uid] = pod
        for name, value in pod.needed.items():
            self._used[name] = self._used.get(name, 0) + value
        self._taken_ports |= dict.fromkeys(host_ports(pod.spec), pod.uid)
        return pod

    def on_end(self, pod: NodePod) -> None:
        if pod.holds_resources:
            pod.holds_resources = False
            for name, value in pod.needed.items():
                self._used[name] -= value
            for port in host_ports(pod.spec):
                if self._taken_ports.get(port) == pod.uid:
                    del self._taken_ports[port]

    def on_removal(self, uid: str) -> None:
        """The object of a pod was deleted."""
        pod = self.pods.pop(uid, None)
        if pod is not None:
            pod.on_removal()
            self.on_end(pod)
        self._runtime.forget(uid)

    def stop(self) -> None:
        """The machine goes down: its containers end, and the statuses of its pods stay as they were."""
        self.is_up = False
        for pod in list(self.pods.values()):
            pod.is_gone = True
            pod.destroy()
            self.on_end(pod)
        self.pods.clear()
