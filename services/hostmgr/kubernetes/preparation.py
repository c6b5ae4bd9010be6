"""Objects that Peloton's pods require in a cluster, created if permitted: their namespace and their priority class."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from http import HTTPStatus

import orjson

from peloton.errors import InvalidArgument
from services.hostmgr.kubernetes.apiserver.wire import Answer, ApiServer, Json, Request
from services.hostmgr.kubernetes.settings import KubernetesSettings

log = logging.getLogger(__name__)
PRIORITY = 1_000_000
"""Higher than the priority of pods without a class, so that kube-scheduler evicts none of Peloton's pods for them."""
_NAMESPACES = "/api/v1/namespaces"
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_CAUSES_OF_ALL_PODS = (
    *("because it is being terminated", "no PriorityClass", "error looking up service account"),
    'cannot create resource "pods"',
)
"""Texts in rejections whose cause concerns all pods, not the single one."""


class Preparation:
    """The preparation, repeated when an apiserver accepts no pod because of a missing object. Any thread may call."""

    def __init__(self, api: ApiServer, settings: KubernetesSettings) -> None:
        self._api, self._settings = api, settings
        self._lock = threading.Lock()
        self.lacking = ""  # why no pod can be created; empty: no reason is known

    def make(self) -> None:
        """Create missing objects. Raises OSError, and InvalidArgument with the required act of an administrator."""
        with self._lock:
            try:
                prepare(self._api, self._settings)
            except (InvalidArgument, OSError) as error:
                self._set_lacking(str(error))
                raise
            self.lacking = ""

    def create_all(self, requests: Sequence[Request]) -> list[Answer | OSError]:
        """Return the answers to creations of pods and their objects; creations that failed for a missing object are
        repeated after it was created."""
        answers = self._api.ask_all(requests)
        refused = [at for at, answer in enumerate(answers) if isinstance(answer, Answer) and is_unprepared(answer)]
        if not refused or not self.make_again():
            return answers
        for at, answer in zip(refused, self._api.ask_all([requests[at] for at in refused]), strict=True):
            answers[at] = answer
            if isinstance(answer, Answer) and is_unprepared(answer):
                self._record_lacking(answer.message)
        return answers

    def make_again(self) -> bool:
        """Return whether pods may be created now."""
        try:
            self.make()
        except (InvalidArgument, OSError):
            return False
        return True

    def _record_lacking(self, why: str) -> None:
        """Record that pods lack something although all objects exist: a service account, or permissions."""
        with self._lock:
            self._set_lacking(why)

    def _set_lacking(self, why: str) -> None:
        if why != self.lacking:
            log.warning("cannot create pods: %s", why)
        self.lacking = why


def is_unprepared(answer: Answer) -> bool:
    """Return whether any other pod would be rejected as well."""
    if answer.status not in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
        return False
    return answer.status == HTTPStatus.NOT_FOUND or any(text in answer.message for text in _CAUSES_OF_ALL_PODS)


def prepare(api: ApiServer, settings: KubernetesSettings) -> None:
    """Create missing objects. Raises OSError, and InvalidArgument with the required act of an administrator."""
    namespace, name = settings.namespace, settings.priority_class
    body: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    _ensure(api, _NAMESPACES, namespace, body, f"kubectl create namespace {namespace}")
    if name:
        body = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": PRIORITY,
            "preemptionPolicy": "Never",
            "description": "Pods that Peloton places. Peloton decides which of them give way.",
        }
        command = f"kubectl create priorityclass {name} --value={PRIORITY} --preemption-policy=Never"
        _ensure(api, _CLASSES, name, body, command)


def _ensure(api: ApiServer, path: str, name: str, body: Json, command: str) -> None:
    """Create an object if it is missing. A user without permission to read it is assumed to have it."""
    found = api.ask(Request("GET", f"{path}/{name}"))
    if found.is_ok and found.json()["metadata"].get("deletionTimestamp"):
        raise OSError(f"{path}/{name} is being deleted")
    if found.is_ok or found.status == HTTPStatus.FORBIDDEN:
        return
    if found.status != HTTPStatus.NOT_FOUND:
        raise OSError(f"{path}/{name}: {found.message}")
    made = api.ask(Request("POST", path, orjson.dumps(body)))
    if made.is_ok or made.status == HTTPStatus.CONFLICT:
        return
    if made.status == HTTPStatus.FORBIDDEN:
        lacking = f"{body['kind']} {name} is missing, and this user may not create it ({made.message})"
        raise InvalidArgument(f"{lacking}: an administrator has to run `{command}`")
    raise OSError(f"{path}/{name}: {made.message}")
