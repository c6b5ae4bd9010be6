"""What our pods need of a cluster, made if we may: their namespace and their priority class."""

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
"""Above that of pods that name no class, so that kube-scheduler evicts none of ours for them."""
_NAMESPACES = "/api/v1/namespaces"
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_OF_ALL_PODS = (
    *("because it is being terminated", "no PriorityClass", "error looking up service account"),
    'cannot create resource "pods"',
)
"""In messages of refusals that are not about the one pod: it is as it should be."""


class Preparation:
    """It is repeated when an apiserver takes no pod for want of it. Any thread calls."""

    def __init__(self, api: ApiServer, settings: KubernetesSettings) -> None:
        self._api, self._settings = api, settings
        self._lock = threading.Lock()
        self.lacking = ""  # what no pod can do without; empty: nothing that we know of

    def make(self) -> None:
        """Raises OSError, and InvalidArgument with what an administrator has to do."""
        with self._lock:
            try:
                prepare(self._api, self._settings)
            except (InvalidArgument, OSError) as error:
                self._miss(str(error))
                raise
            self.lacking = ""

    def create_all(self, requests: Sequence[Request]) -> list[Answer | OSError]:
        """The answers to pods, and to what they have; those that fail for want of it are repeated when it has been
        made."""
        answers = self._api.ask_all(requests)
        refused = [at for at, answer in enumerate(answers) if isinstance(answer, Answer) and is_unprepared(answer)]
        if not refused or not self.make_again():
            return answers
        for at, answer in zip(refused, self._api.ask_all([requests[at] for at in refused]), strict=True):
            answers[at] = answer
            if isinstance(answer, Answer) and is_unprepared(answer):
                self._miss_more(answer.message)
        return answers

    def make_again(self) -> bool:
        """Returns whether pods may be created now."""
        try:
            self.make()
        except (InvalidArgument, OSError):
            return False
        return True

    def _miss_more(self, why: str) -> None:
        """Pods lack something although all is there that we make: the account of a service, our rights."""
        with self._lock:
            self._miss(why)

    def _miss(self, why: str) -> None:
        if why != self.lacking:
            log.warning("no pods can be created: %s", why)
        self.lacking = why


def is_unprepared(answer: Answer) -> bool:
    """Whether any other pod would be refused, too."""
    if answer.status not in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
        return False
    return answer.status == HTTPStatus.NOT_FOUND or any(text in answer.message for text in _OF_ALL_PODS)


def prepare(api: ApiServer, settings: KubernetesSettings) -> None:
    """Raises OSError, and InvalidArgument with what an administrator has to do."""
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
    """A user that may not even look is believed to have been given what it needs."""
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
        lacking = f"{body['kind']} {name} is not there, and we may not create it ({made.message})"
        raise InvalidArgument(f"{lacking}: let an administrator do `{command}`")
    raise OSError(f"{path}/{name}: {made.message}")
