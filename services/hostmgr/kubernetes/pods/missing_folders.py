"""Detection of missing volume folders on existing nodes, for instance after a disk was replaced.

A pod that requires such a folder stays Pending, and only an event of its kubelet shows the reason.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from urllib.parse import quote

from peloton.model.pod import Cause, PodState
from services.hostmgr.driver import PodReport
from services.hostmgr.kubernetes.apiserver.wire import ApiServer, Request, fault_of
from services.hostmgr.kubernetes.cluster_view import ClusterView
from services.hostmgr.kubernetes.nodes.node_volumes import NodeVolume, Stage
from services.hostmgr.kubernetes.pods.pod_cache import OwnPod
from services.hostmgr.kubernetes.pods.volume_folders import build_staged_request
from services.hostmgr.kubernetes.pods.volumes import volume_id_of
from services.hostmgr.kubernetes.settings import KubernetesSettings

log = logging.getLogger(__name__)

WAIT_S = 60.0
"""Seconds for which a folder may be missing: a booted node may mount the disk after it starts pods."""
POLL_PERIOD_S = 10.0
POLLS_MAX = 50
"""Limit of pods checked per call."""
TYPE_CHECK = "hostPath type check failed"


class MissingFolders:
    """Detects missing folders. Called by one thread."""

    def __init__(
        self,
        api: ApiServer,
        settings: KubernetesSettings,
        view: ClusterView,
        publish: Callable[[Sequence[PodReport]], None],
    ) -> None:
        self._api, self._settings, self._view, self._publish = api, settings, view, publish
        self._events = f"/api/v1/namespaces/{settings.namespace}/events"
        self._polled_s = float("-inf")
        self._is_forbidden = False

    def run_periodic(self) -> None:
        """Mark missing volumes, and end the pods that wait for them. Raises OSError."""
        if not self._settings.volumes or time.monotonic() - self._polled_s < POLL_PERIOD_S:
            return
        self._polled_s = time.monotonic()
        for own, volume_id, known in self._waiting(time.time()):
            if why := self._why_missing(own, volume_id):
                self._lose(own, volume_id, known, why)

    def _waiting(self, now_s: float) -> list[tuple[OwnPod, str, NodeVolume]]:
        found = []
        with self._view.lock:
            for own in self._view.cache.waiting(now_s - WAIT_S):
                volume_id = volume_id_of(own.pod)
                known = self._view.ledger.volume(own.node, volume_id) if volume_id else None
                if known is not None and known.stage is Stage.KEPT:
                    found.append((own, volume_id, known))
        return found[:POLLS_MAX]

    def _why_missing(self, own: OwnPod, volume_id: str) -> str:
        """Return the kubelet's message about the folder, or empty."""
        selector = quote(f"involvedObject.uid={own.uid},reason=FailedMount")
        answer = self._api.ask(Request("GET", f"{self._events}?fieldSelector={selector}"))
        if answer.status == HTTPStatus.FORBIDDEN:
            if not self._is_forbidden:
                log.warning("missing folders of volumes are not detected: %s", answer.message)
            self._is_forbidden = True
            return ""
        if why := fault_of(answer):
            raise OSError(f"events of pod {own.name}: {why}")
        texts = (str(event.get("message", "")) for event in answer.json()["items"])
        return next((text for text in texts if TYPE_CHECK in text and volume_id in text), "")

    def _lose(self, own: OwnPod, volume_id: str, known: NodeVolume, why: str) -> None:
        """Mark the volume, then end the pod, so that its next run is not sent to the node."""
        answer = self._api.ask(build_staged_request(own.node, volume_id, known, Stage.GONE))
        if fault := fault_of(answer, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY):
            raise OSError(f"volume {volume_id}: {fault}")
        if not answer.is_ok:
            return  # the node, or its annotation of the volume, has changed
        message = f"node {own.node} does not have the folder of volume {volume_id} any more: {why}"
        log.warning("%s", message)
        with self._view.lock:
            lost = PodState.LOST, Cause.HOST_LOST, "VolumeGone"
            report = self._view.cache.end(own.name, *lost, message, time.time_ns())
        if report is not None:
            self._publish([report])
