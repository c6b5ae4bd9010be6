"""Output of containers, as the apiserver reads it from their nodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from peloton.errors import NotFound
from services.hostmgr.kubernetes.apiserver.connection import Stream
from services.hostmgr.kubernetes.apiserver.wire import Answer, ApiServer, Json, Refused, Request

OUTPUT = "stdout"
"""File name of a log: Kubernetes keeps stdout and stderr of a container in one. Logs of containers other than the first
are in a folder with the container's name."""
TAIL_LINES = 100
TAIL_BYTES_MAX = 1 << 22
"""Limit of the bytes read for the last lines, which may be long."""
READ_SILENCE_S = 60.0
"""Timeout of a log that is read and not followed."""


class PodLogs:
    """Logs of pods. Raises OSError for failures and rejections of the apiserver, and NotFound for missing pods."""

    def __init__(self, api: ApiServer, namespace: str) -> None:
        self._api = api
        self._pods = f"/api/v1/namespaces/{namespace}/pods"

    def path_of(self, pod: str) -> str:
        return f"{self._pods}/{pod}"

    def first_container(self, pod: str) -> str:
        return str(self._pod(pod)["spec"]["containers"][0]["name"])

    def files(self, pod: str) -> tuple[str, ...]:
        """Return the logs of the containers that have started."""
        found = self._pod(pod)
        first = found["spec"]["containers"][0]["name"]
        return tuple(file_of(name, first) for name, status in _statuses(found) if _has_begun(status))

    def open(self, pod: str, file: str, follow: bool = False) -> Stream:
        """Open a log. With ``follow`` it includes later output, until the container ends."""
        container, _, name = file.rpartition("/")
        if name != OUTPUT:
            raise NotFound(f"pod {pod} has no file {file}: Kubernetes keeps only what containers write to {OUTPUT}")
        container = container or self.first_container(pod)
        return self._open(pod, {"container": container, **({"follow": "true"} if follow else {})}, follow)

    def tail(self, pod: str, limit_bytes: int) -> bytes:
        """Return the end of the log of the container that failed, or else of the first one."""
        with self._open(pod, {"container": _describe_failure(self._pod(pod)), "tailLines": str(TAIL_LINES)}) as stream:
            return _end_of(stream.pieces(), limit_bytes)

    def _open(self, pod: str, query: dict[str, str], follow: bool = False) -> Stream:
        path = f"{self._pods}/{pod}/log?{urlencode(query)}"
        try:
            return self._api.stream(path, silence_s=None if follow else READ_SILENCE_S)
        except Refused as error:
            raise _missing(error.answer, pod) from None

    def _pod(self, pod: str) -> Json:
        answer = self._api.ask(Request("GET", self.path_of(pod)))
        if not answer.is_ok:
            raise _missing(answer, pod)
        return answer.json()


def file_of(container: str, first: str) -> str:
    return OUTPUT if container == first else f"{container}/{OUTPUT}"


def _missing(answer: Answer, pod: str) -> Exception:
    if answer.status == HTTPStatus.NOT_FOUND:
        return NotFound(f"pod {pod} is not in the cluster any more, and its log with it")
    return Refused(answer)


def _statuses(pod: Json) -> list[tuple[str, Json]]:
    """Return names and statuses of containers: the pod's own first, in the order of its manifest."""
    order = {each["name"]: place for place, each in enumerate(pod["spec"]["containers"])}
    status: dict[str, Any] = pod.get("status") or {}
    own = sorted(status.get("containerStatuses") or (), key=lambda each: order.get(each["name"], len(order)))
    return [(each["name"], each) for each in (*own, *(status.get("initContainerStatuses") or ()))]


def _has_begun(status: Json) -> bool:
    state = status.get("state") or {}
    return "running" in state or "terminated" in state or bool(status.get("restartCount"))


def _describe_failure(pod: Json) -> str:
    for name, status in _statuses(pod):
        ended = (status.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return name
    return str(pod["spec"]["containers"][0]["name"])


def _end_of(pieces: Iterable[bytes], limit_bytes: int) -> bytes:
    """Return the last bytes, without holding all."""
    kept: deque[bytes] = deque()
    held = read = 0
    for piece in pieces:
        kept.append(piece)
        held += len(piece)
        read += len(piece)
        while held - len(kept[0]) >= limit_bytes:
            held -= len(kept.popleft())
        if read > TAIL_BYTES_MAX:
            break
    return b"".join(kept)[-limit_bytes:]
