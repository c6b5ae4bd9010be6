"""Volumes of pods as folders of their nodes.

A node's annotations record its volumes, see ``node_volumes``: from before the first pod with the volume until after its
folder is deleted, so that no volume is on a node without a record. The kubelet creates the folder for that first pod,
and a pod of Peloton deletes it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from urllib.parse import quote

import orjson

from peloton.model.ids import PodId
from peloton.model.volume import VolumeRecord
from services.hostmgr.driver import PodLaunch
from services.hostmgr.kubernetes.apiserver.wire import (
    JSON_PATCH,
    MERGE_PATCH,
    Answer,
    ApiServer,
    Json,
    Request,
    fault_of,
)
from services.hostmgr.kubernetes.cluster_view import ClusterView
from services.hostmgr.kubernetes.nodes.node_volumes import NodeVolume, Stage, annotate
from services.hostmgr.kubernetes.pods.launches import Outcome, Verdict
from services.hostmgr.kubernetes.pods.statuses import is_over, phase
from services.hostmgr.kubernetes.settings import KubernetesSettings, own_name

log = logging.getLogger(__name__)

NOT_KEPT = "nodes of this cluster keep no volumes: PELOTON_KUBERNETES_VOLUMES is not set"
MOUNT = "/peloton-volumes"
REMOVAL_S = 600
"""Seconds for which a pod tries to delete a folder, including the pull of its image; another pod follows."""
KEPT_MAX = 500
"""Limit of annotations that are written per call when pods have started."""
_AT_ONCE = orjson.dumps({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})


class VolumeFolders:
    """Volume folders of all nodes. Any thread may call."""

    def __init__(self, api: ApiServer, settings: KubernetesSettings, view: ClusterView) -> None:
        self._api, self._settings, self._view = api, settings, view
        self._pods = f"/api/v1/namespaces/{settings.namespace}/pods"

    # Launches.

    def is_new(self, volume: VolumeRecord | None) -> bool:
        """Return whether no pod has been seen running with the volume. The caller holds the lock."""
        if volume is None:
            return False
        known = self._view.ledger.volume(volume.host, volume.volume_id)
        return known is None or known.stage is Stage.NEW

    def reserve(self, pods: Sequence[PodLaunch]) -> tuple[set[PodId], dict[PodId, Verdict]]:
        """Record the new volumes of these pods on their nodes. Returns the pods with a record now, and the others with
        the reason."""
        with self._view.lock:
            is_being_made = self._view.ledger.is_being_made
            made = [p for p in pods if p.volume and is_being_made(p.volume.host, p.volume.volume_id)]
        volumes = {pod.pod_id: pod.volume for pod in made if pod.volume is not None}
        wanted = [(one.host, one.volume_id, NodeVolume(one.size_mib, Stage.NEW)) for one in volumes.values()]
        unmade: dict[PodId, Verdict] = {}
        for (pod_id, volume), answer in zip(volumes.items(), self._write(wanted), strict=True):
            if why := fault_of(answer):
                is_certain = isinstance(answer, Answer) and answer.status < HTTPStatus.INTERNAL_SERVER_ERROR
                why = f"node {volume.host} does not keep the pod's volume: {why}"
                unmade[pod_id] = Verdict(Outcome.REFUSED if is_certain else Outcome.UNKNOWN, why)
                if is_certain:
                    self._unmake(volume)
        return volumes.keys() - unmade, unmade

    def give_back(self, volume: VolumeRecord) -> str:
        """Remove the record of a volume whose pod was certainly not created. Returns why it may still exist."""
        [answer] = self._write([(volume.host, volume.volume_id, None)])
        if why := fault_of(answer, HTTPStatus.NOT_FOUND):
            return why
        self._unmake(volume)
        return ""

    def _unmake(self, volume: VolumeRecord) -> None:
        with self._view.lock:
            self._view.ledger.forget_new_volume(volume.host, volume.volume_id)

    # Periodic tasks.

    def run_periodic(self) -> None:
        """Mark volumes with which a pod has started as kept, so that no later pod gets an empty folder. Raises
        OSError."""
        with self._view.lock:
            begun, due = self._view.volumes_begun, []
            for volume_id, node in list(begun.items())[:KEPT_MAX]:
                known = self._view.ledger.volume(node, volume_id)
                if known is not None and known.stage is Stage.NEW:
                    due.append((node, volume_id, known))
                elif known is not None or not self._view.ledger.is_being_made(node, volume_id):
                    del begun[volume_id]
        requests = [build_staged_request(*each, Stage.KEPT) for each in due]
        for (_, volume_id, _), answer in zip(due, self._api.ask_all(requests) if due else (), strict=True):
            if why := fault_of(answer, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY):
                raise OSError(f"volume {volume_id}: {why}")

    def _write(self, changes: Sequence[tuple[str, str, NodeVolume | None]]) -> list[Answer | OSError]:
        """Write annotations: node, id and volume of each."""
        requests = []
        for node, volume_id, volume in changes:
            patch: Json = {"metadata": {"annotations": annotate(volume_id, volume)}}
            requests.append(Request("PATCH", f"/api/v1/nodes/{quote(node)}", orjson.dumps(patch), MERGE_PATCH))
        return self._api.ask_all(requests) if requests else []

    # Deletion.

    def destroy(self, volume: VolumeRecord) -> None:
        """Run one step of the deletion, repeated while the node shows the volume: the volume is marked, a pod deletes
        its folder, and the mark is removed. Raises OSError."""
        where = (volume.host, volume.volume_id)
        with self._view.lock:
            node, known = self._view.ledger.node(volume.host), self._view.ledger.volume(*where)
            user = self._view.ledger.user_of(*where)
        if node is None:
            raise OSError(f"node {volume.host} is not there")
        if user:
            raise OSError(f"volume {volume.volume_id} is in use: pod {user} has it")
        if known is None:
            return
        if known.stage is not Stage.GOING:
            self._write_or_raise([(*where, known._replace(stage=Stage.GOING))])
        if self._is_removed(volume, known._replace(stage=Stage.GOING)):
            self._write_or_raise([(*where, None)])

    def _write_or_raise(self, changes: Sequence[tuple[str, str, NodeVolume | None]]) -> None:
        for (node, volume_id, _), answer in zip(changes, self._write(changes), strict=True):
            if why := fault_of(answer):
                raise OSError(f"volume {volume_id} on node {node}: {why}")

    def _is_removed(self, volume: VolumeRecord, marked: NodeVolume) -> bool:
        """Return whether the folder is deleted; otherwise a pod is about to delete it, unless an earlier step has
        removed the mark, which the view may not show yet."""
        name = f"{own_name(self._settings.cluster)}-volume-{volume.volume_id}"
        answer = self._api.ask(Request("GET", f"{self._pods}/{name}"))
        if answer.status == HTTPStatus.NOT_FOUND:
            mark = self._api.ask(build_staged_request(volume.host, volume.volume_id, marked, Stage.GOING))
            if why := fault_of(mark, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY):
                raise OSError(f"volume {volume.volume_id} on node {volume.host}: {why}")
            if not mark.is_ok:
                return False
            answer = self._api.ask(Request("POST", self._pods, self._remover(name, volume)))
            if why := fault_of(answer, HTTPStatus.CONFLICT):
                raise OSError(f"no pod removes the folder of volume {volume.volume_id}: {why}")
            return False
        if not answer.is_ok:
            raise OSError(f"pod {name}: {answer.message}")
        pod = answer.json()
        if not is_over(pod):
            return False
        gone = self._api.ask(Request("DELETE", f"{self._pods}/{name}", _AT_ONCE))
        if why := fault_of(gone, HTTPStatus.NOT_FOUND):
            raise OSError(f"pod {name}: {why}")
        if phase(pod) == "Succeeded":
            return True
        status: Mapping[str, str] = pod.get("status", {})
        raise OSError(f"pod {name} has not removed the folder: {status.get('reason', '')} {status.get('message', '')}")

    def _remover(self, name: str, volume: VolumeRecord) -> bytes:
        """Return the pod that deletes the folder, as root: files on the volume may belong to any user."""
        settings = self._settings
        container = {
            "name": "remover",
            "image": settings.default_image,
            "command": ["rm", "-rf", "--", volume.volume_id],
            "workingDir": MOUNT,
            "securityContext": {"runAsUser": 0},
            "volumeMounts": [{"name": "volumes", "mountPath": MOUNT}],
        }
        spec: Json = {
            "nodeName": volume.host,
            "schedulerName": "peloton-volumes",
            "restartPolicy": "Never",
            "activeDeadlineSeconds": REMOVAL_S,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
            "volumes": [{"name": "volumes", "hostPath": {"path": settings.volumes, "type": "DirectoryOrCreate"}}],
        }
        if settings.priority_class:
            spec["priorityClassName"] = settings.priority_class
        labels = {"peloton.io/removes-volume": volume.volume_id}
        metadata = {"name": name, "labels": labels}
        return orjson.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def build_staged_request(node: str, volume_id: str, known: NodeVolume, stage: Stage) -> Request:
    """Return a patch that is rejected (422) if the volume has changed since ``known``."""
    [key] = annotate(volume_id, known)
    path = f"/metadata/annotations/{key.replace('/', '~1')}"
    patch = [
        {"op": "test", "path": path, "value": str(known)},
        {"op": "replace", "path": path, "value": str(known._replace(stage=stage))},
    ]
    return Request("PATCH", f"/api/v1/nodes/{quote(node)}", orjson.dumps(patch), JSON_PATCH)
