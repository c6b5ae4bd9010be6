"""The process that drives a cluster: the holder of a Lease in the namespace of Peloton's pods.

A new process takes the lease over at once, since Peloton has chosen it as leader by other means. The lease notifies the
previous process, even one that hangs, that it was replaced, as Mesos does by itself.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from http import HTTPStatus

import orjson

from services.hostmgr.kubernetes.apiserver.watch import Reflector
from services.hostmgr.kubernetes.apiserver.wire import Answer, ApiServer, Json, Refused, Request
from services.hostmgr.kubernetes.settings import own_name

log = logging.getLogger(__name__)

TRIES_MAX = 10
"""Limit of attempts to take the lease, while others write to it."""


class Session:
    """Holder of a lease that is not renewed: it ends only with the next holder."""

    def __init__(self, api: ApiServer, namespace: str, cluster: str, replaced: Callable[[str], None]) -> None:
        """``replaced`` is called once with the new holder, on a thread of the session."""
        self._api = api
        self._name = own_name(cluster)
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._namespace = namespace
        self._replaced = replaced
        self._lock = threading.Lock()
        self.holder = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4()}"
        self._is_held = False
        self._reflector: Reflector | None = None

    def begin(self) -> None:
        """Take the lease over from its holder. Called once. Raises OSError."""
        for _ in range(TRIES_MAX):
            if self._write(self._api.ask(Request("GET", f"{self._leases}/{self._name}"))):
                break
        else:
            raise OSError(f"lease {self._name} was not taken over: others wrote to it {TRIES_MAX} times")
        with self._lock:
            self._is_held = True
        log.info("lease %s in namespace %s taken over by %s", self._name, self._namespace, self.holder)
        path = f"{self._leases}?fieldSelector=metadata.name%3D{self._name}"
        self._reflector = Reflector(self._api, path, _Holders(self._observe))
        self._reflector.start()

    def end(self) -> None:
        """Stop watching; the lease remains unchanged."""
        if self._reflector is not None:
            self._reflector.stop()

    @property
    def is_held(self) -> bool:
        """Return whether this process holds the lease by its last observed state."""
        with self._lock:
            return self._is_held

    def _write(self, found: Answer) -> bool:
        """Return whether the lease was written; else another process wrote first. Raises OSError."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        spec: Json = {"holderIdentity": self.holder, "acquireTime": now, "renewTime": now, "leaseTransitions": 0}
        body: Json = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}
        if found.status == HTTPStatus.NOT_FOUND:
            body["metadata"] = {"name": self._name, "namespace": self._namespace}
            answer = self._api.ask(Request("POST", self._leases, orjson.dumps(body)))
        elif found.is_ok:
            old = found.json()
            spec["leaseTransitions"] = int(old["spec"].get("leaseTransitions") or 0) + 1
            body["metadata"] = old["metadata"]
            answer = self._api.ask(Request("PUT", f"{self._leases}/{self._name}", orjson.dumps(body)))
        else:
            raise Refused(found)
        if answer.status == HTTPStatus.CONFLICT or (answer.status == HTTPStatus.NOT_FOUND and found.is_ok):
            return False
        if not answer.is_ok:
            raise Refused(answer)
        return True

    def _observe(self, lease: Json) -> None:
        holder = lease["spec"].get("holderIdentity") or ""
        with self._lock:
            if holder == self.holder or not self._is_held:
                return
            self._is_held = False
        log.warning("lease %s was taken over by %s: this process no longer controls the cluster", self._name, holder)
        self._replaced(holder)


class _Holders:
    """Watches the holders of the lease."""

    def __init__(self, seen: Callable[[Json], None]) -> None:
        self._seen = seen

    def on_replace(self, objects: Sequence[Json]) -> None:
        for lease in objects:
            self._seen(lease)

    def on_change(self, kind: str, object: Json) -> None:
        if kind != "DELETED":
            self._seen(object)

    def on_lost(self, why: str) -> None:
        """Ignore the loss: the lease is unchanged until another holder is seen; without an apiserver no process can
        launch."""
