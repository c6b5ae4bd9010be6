"""Image prefetch: a pod on the node with the image, and a command that exists in no image.

A kubelet fetches the image of a container before it starts the command. So the pod ends as soon as the image is on the
node, whatever its content, and is then deleted. It requests no resources, and nothing waits for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from http import HTTPStatus
from urllib.parse import quote

import orjson

from peloton.errors import Unavailable
from peloton.model.host import Prefetched
from peloton.model.ids import Hostname
from services.hostmgr.kubernetes.apiserver.wire import ApiServer, Json, Request, fault_of
from services.hostmgr.kubernetes.pods.statuses import is_over
from services.hostmgr.kubernetes.settings import KubernetesSettings

log = logging.getLogger(__name__)

LABEL = "peloton.io/image-of"
COMMAND = "/peloton-fetches-this-image-only"
PODS_MAX = 500
"""Limit of pods at a time."""
DEADLINE_S = 600
"""Seconds for which a node tries to fetch an image."""
POLL_S = 1.0


class ImagePods:
    """Implements ``ports.ImagePrefetcher``. Any thread may call; one at a time holds the lock."""

    def __init__(self, api: ApiServer, settings: KubernetesSettings) -> None:
        self._api, self._settings = api, settings
        self._path = f"/api/v1/namespaces/{settings.namespace}/pods"
        self._lock = threading.Lock()
        self._count = 1  # pods that may exist: a predecessor may have left some
        self._polled_s = float("-inf")

    def prefetch(self, images: Mapping[str, Sequence[Hostname]]) -> Prefetched:
        """Create prefetch pods; images beyond PODS_MAX are fetched with their pods. Raises Unavailable when the
        apiserver accepts none."""
        wanted = [(image, node) for image, nodes in images.items() for node in nodes]
        with self._lock:
            wanted = wanted[: max(PODS_MAX - self._count, 0)]
            self._count += len(wanted)
            requests = [Request("POST", self._path, self._body(image, node)) for image, node in wanted]
            answers = self._api.ask_all(requests)
        refusals = [why for answer in answers if (why := fault_of(answer, HTTPStatus.CONFLICT))]
        if refusals:
            log.info("%d of %d images not prefetched: %s", len(refusals), len(wanted), refusals[0])
        if wanted and len(refusals) == len(wanted):
            raise Unavailable(f"image prefetch by pods: {refusals[0]}")
        return Prefetched(len(wanted) - len(refusals))

    def _body(self, image: str, node: str) -> bytes:
        """Return the pod, named after image and node, so that a repeated call creates no second one."""
        settings = self._settings
        spec: Json = {
            "nodeName": node,
            "schedulerName": "peloton-images",
            "restartPolicy": "Never",
            "activeDeadlineSeconds": DEADLINE_S,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "image", "image": image, "command": [COMMAND]}],
        }
        if settings.priority_class:
            spec["priorityClassName"] = settings.priority_class
        digest = blake2b(f"{image}\0{node}".encode(), digest_size=12).hexdigest()
        metadata = {"name": f"peloton-image-{digest}", "labels": {LABEL: settings.cluster}}
        return orjson.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def run_periodic(self) -> None:
        """Delete pods whose image is present or whose deadline has passed. Raises OSError."""
        now_s = time.monotonic()
        with self._lock:
            if not self._count or now_s - self._polled_s < POLL_S:
                return
            self._polled_s = now_s
            selector = quote(f"{LABEL}={self._settings.cluster}")
            listed = self._api.ask(Request("GET", f"{self._path}?labelSelector={selector}"))
            if not listed.is_ok:
                raise OSError(f"pods that fetch images: {listed.message}")
            pods = listed.json()["items"]
            done = [pod["metadata"]["name"] for pod in pods if _is_done(pod, time.time())]
            self._api.ask_all([Request("DELETE", f"{self._path}/{name}", _AT_ONCE) for name in done])
            self._count = len(pods)  # the next list does not have the deleted ones


_AT_ONCE = orjson.dumps({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})


def _is_done(pod: Json, now_s: float) -> bool:
    if is_over(pod):
        return True
    states = [entry.get("state", {}) for entry in pod.get("status", {}).get("containerStatuses") or ()]
    created_s = datetime.fromisoformat(pod["metadata"]["creationTimestamp"]).timestamp()
    return any("running" in state or "terminated" in state for state in states) or now_s - created_s > 2 * DEADLINE_S
