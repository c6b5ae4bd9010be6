"""The state of a Kubernetes cluster by its watches: its nodes, the pods on them, and Peloton's pods among these.

The two watches fill it, each on its thread; the driver reads and changes it. One lock protects all of it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from peloton.model.pod import Cause, PodState
from services.hostmgr.driver import PodReport
from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.nodes.ledger import Ledger
from services.hostmgr.kubernetes.nodes.nodes import DOWN, Taints, node_of
from services.hostmgr.kubernetes.pods.launches import demand_of
from services.hostmgr.kubernetes.pods.pod_cache import OwnPod, PodCache
from services.hostmgr.kubernetes.pods.statuses import is_over, pod_id_of
from services.hostmgr.kubernetes.pods.volumes import has_started, volume_id_of
from services.hostmgr.kubernetes.settings import CLUSTER_LABEL, JOB_LABEL, KubernetesSettings

log = logging.getLogger(__name__)

JOB_ID_LENGTH = 36
"""Length of the job id with which the name of a pod starts."""


class SecretUse(NamedTuple):
    live: set[str]  # Secrets of Peloton's live pods
    seen: set[str]  # Secrets of all pods with events since the last call
    jobs: set[str]  # jobs whose pods are being created


class ClusterView:
    def __init__(
        self, settings: KubernetesSettings, publish: Callable[[Sequence[PodReport]], None], wake: Callable[[], None]
    ) -> None:
        """``publish`` takes reports of Peloton's pods, ``wake`` is called when free resources may have changed."""
        self._settings = settings
        self._publish, self._wake = publish, wake
        self.lock = threading.RLock()
        self.ledger = Ledger()
        self._taints: tuple[int, frozenset[Taints]] = (-1, frozenset())
        self.cache = PodCache()
        self._is_new_term = False
        self.unconfirmed: set[str] = set()  # Peloton's pods that were launched, and whose existence is unknown
        self.creating: set[str] = set()  # Peloton's pods that are being created
        self._node_names: set[str] = set()  # of all nodes, selected or not
        self._unready_since: dict[str, float] = {}
        self._are_nodes_known = False
        self._secrets_seen: set[str] = set()
        self.volumes_begun: dict[str, str] = {}  # id -> node, for volumes with which a pod has started

    def take_new_term(self) -> bool:
        """Return whether pods were listed again since the last call: any change may have been missed before."""
        with self.lock:
            is_new, self._is_new_term = self._is_new_term, False
            return is_new

    def key(self, name: str) -> str:
        """Return the key of a Peloton pod in the ledger."""
        return f"{self._settings.namespace}/{name}"

    def is_managed(self, pod: Json) -> bool:
        meta = pod["metadata"]
        labels = meta.get("labels") or {}
        return (
            meta.get("namespace") == self._settings.namespace
            and labels.get(CLUSTER_LABEL) == self._settings.cluster
            and JOB_LABEL in labels
        )

    # Pods.

    def secrets_in_use(self) -> SecretUse:
        with self.lock:
            pods = [own.pod for own in self.cache.pods.values() if own.pod and not own.has_ended]
            jobs = {name[:JOB_ID_LENGTH] for name in self.creating}
            seen, self._secrets_seen = self._secrets_seen, set()
        return SecretUse({name for pod in pods for name in _secrets_of(pod)}, seen, jobs)

    def gangs_in_use(self) -> set[str]:
        """Return the jobs whose live pods have a name in the Service of their gang."""
        with self.lock:
            live = [own.pod for own in self.cache.pods.values() if own.pod and not own.has_ended]
        return {pod["metadata"]["labels"][JOB_LABEL] for pod in live if "subdomain" in pod["spec"]}

    def pods_replaced(self, pods: Sequence[Json]) -> None:
        with self.lock:
            self.ledger.void_resources()
            absent = self.ledger.keep_pods({key_of(pod) for pod in pods})
            names = (key.removeprefix(self.key("")) for key in absent)
            self.unconfirmed |= {name for name in names if pod_id_of(name) is not None}  # others are external
            reports = self.cache.keep({pod["metadata"]["name"] for pod in pods if self.is_managed(pod)})
            for pod in pods:
                reports += self._take(pod, is_deleted=False, is_listed=True)
            self._is_new_term = True
        self._publish(reports)
        self._wake()

    def pod_changed(self, pod: Json, is_deleted: bool) -> None:
        with self.lock:
            reports = self._take(pod, is_deleted)
            is_dirty = self.ledger.is_dirty
        if reports:
            self._publish(reports)
        if is_dirty:
            self._wake()

    def pod_found(self, pod: Json) -> None:
        """Record a pod that was read directly. Events of the watch since then take precedence."""
        with self.lock:
            reports = self._take(pod, is_deleted=False) if self.ledger.is_expected(key_of(pod)) else []
        self._publish(reports)
        self._wake()

    def _take(self, pod: Json, is_deleted: bool, is_listed: bool = False) -> list[PodReport]:
        node = pod.get("spec", {}).get("nodeName", "")
        if is_deleted or is_over(pod):
            self.ledger.drop_pod(key_of(pod))
        elif node:
            self.ledger.put_pod(key_of(pod), node, demand_of(pod))
        if not node or not self.is_managed(pod):
            return []
        self.unconfirmed.discard(pod["metadata"]["name"])
        self._secrets_seen.update(_secrets_of(pod))
        if (volume_id := volume_id_of(pod)) and has_started(pod):
            self.volumes_begun[volume_id] = node
        known = self.ledger.node(node)
        report = self.cache.record_state(pod, known.uid if known is not None else "", is_deleted, is_listed)
        return [report] if report is not None else []

    # Nodes.

    def nodes_replaced(self, nodes: Sequence[Json]) -> None:
        with self.lock:
            self._node_names = {node["metadata"]["name"] for node in nodes}
            for node in nodes:
                self._put_node(node)
            self.ledger.keep_nodes(self._node_names)
            self._unready_since = {k: since for k, since in self._unready_since.items() if k in self._node_names}
            self._are_nodes_known = True
        self._wake()

    def node_changed(self, node: Json, is_deleted: bool) -> None:
        name = node["metadata"]["name"]
        with self.lock:
            if is_deleted:
                self._node_names.discard(name)
                self._unready_since.pop(name, None)
                self.ledger.drop_node(name)
            else:
                self._node_names.add(name)
                self._put_node(node)
            is_dirty = self.ledger.is_dirty
        if is_dirty:
            self._wake()

    def _put_node(self, node: Json) -> None:
        name = node["metadata"]["name"]
        try:
            found = node_of(node, self._settings)
        except ValueError as error:
            log.warning("node %s is ignored: %s", name, error)
            found = None
        if found is None:
            self._unready_since.pop(name, None)
            self.ledger.drop_node(name)
            return
        self.ledger.put_node(found)
        if found.is_ready:
            self._unready_since.pop(name, None)
        else:
            self._unready_since.setdefault(name, time.monotonic())

    def evaluate(self, now_s: float, wall_s: float) -> list[PodReport]:
        """Report ends that no event of a watch shows: of pods on lost nodes, and of pods whose containers cannot
        start. The caller holds the lock."""
        reports = self.cache.stuck(wall_s, self._settings.image_timeout_s)
        if not self._are_nodes_known:
            return reports
        timeout_s = self._settings.lost_node_s
        for name, since_s in self._unready_since.items():
            if now_s - since_s >= timeout_s:
                self.ledger.lose_node(name)
        for name in self.cache.nodes():
            if (loss := self._loss(name)) is None:
                continue
            cause, reason, message = loss
            for own in self.cache.on_node(name):
                report = self.cache.end(own.name, PodState.LOST, cause, reason, message, int(wall_s * 1e9))
                reports += [report] if report is not None else []
        return reports

    def _loss(self, name: str) -> tuple[Cause, str, str] | None:
        """Return why the pods of the node are lost; None if they are not."""
        if name not in self._node_names:
            return Cause.HOST_GONE, "NodeGone", f"node {name} was taken out of the cluster"
        node = self.ledger.node(name)
        if node is not None and node.maintenance == DOWN:
            return Cause.HOST_GONE, "NodeDown", f"node {name} was taken down for maintenance"
        if self.ledger.is_lost(name):
            seconds = self._settings.lost_node_s
            return Cause.HOST_LOST, "NodeLost", f"node {name} was not ready for {seconds:g} s"
        return None

    def pods_on(self, node: str) -> list[tuple[str, str]]:
        """Return namespaces and names of all live pods on the node."""
        with self.lock:
            keys = self.ledger.pods_on(node)
        return [(namespace, name) for namespace, _, name in (key.partition("/") for key in keys)]

    def is_node_there(self, name: str) -> bool:
        return name in self._node_names

    def external_pod_gone(self, pod: Json) -> None:
        """Remove an external pod that was bound, or about to be: the watch of pods on nodes may never have shown
        it."""
        with self.lock:
            self.ledger.drop_pod(key_of(pod))
        self._wake()

    def external_pod_fits(self, pod: Json, node: str) -> None:
        """Claim resources for an admitted pod on the node that passed the fit test, until its scheduler binds it."""
        with self.lock:
            self.ledger.expect(key_of(pod), node, demand_of(pod))
        self._wake()

    def stand_in_placed(self, stand_in: Json, pod: Json) -> None:
        """Move the resources of a stand-in to the pod that a scheduler has bound in its place; one that has ended has
        none."""
        with self.lock:
            if not is_over(pod):
                self.ledger.expect(key_of(pod), pod["spec"]["nodeName"], demand_of(pod))
            self.ledger.drop_pod(key_of(stand_in))
        self._wake()

    def drop_unseen_pod(self, pod: Json) -> None:
        """Remove a pod in the place of a stand-in that the watch of pods on nodes may never show, or no more. What that
        has shown may be a later pod of the same name, whose end it will show."""
        with self.lock:
            if self.ledger.is_expected(key_of(pod)):
                self.ledger.drop_pod(key_of(pod))
        self._wake()

    def taints(self) -> frozenset[Taints]:
        """Return the different taints of the nodes, from a cache while no node changes."""
        with self.lock:
            version = self.ledger.nodes_version
            if self._taints[0] != version:
                self._taints = version, self.ledger.taints()
            return self._taints[1]

    def own(self, name: str) -> OwnPod | None:
        return self.cache.pods.get(name)


def key_of(pod: Json) -> str:
    """Return the key of any pod in the ledger."""
    meta = pod["metadata"]
    return f"{meta.get('namespace', '')}/{meta['name']}"


def _secrets_of(pod: Json) -> list[str]:
    spec = pod["spec"]
    found = [volume["secret"]["secretName"] for volume in spec.get("volumes", ()) if "secret" in volume]
    found += [one["name"] for one in spec.get("imagePullSecrets", ())]
    for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
        sources = (variable.get("valueFrom", {}) for variable in container.get("env", ()))
        found += [source["secretKeyRef"]["name"] for source in sources if "secretKeyRef" in source]
    return found
