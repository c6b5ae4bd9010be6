"""GET of a pod's log, which its node has written, once or as a stream."""

from __future__ import annotations

from pathlib import Path

from services.lab.kubernetes.answers import TEXT_TYPE, answer
from services.lab.kubernetes.errors import ApiError, bad_request
from services.lab.kubernetes.nodes.containers import Container
from services.lab.kubernetes.nodes.nodes import Nodes
from services.lab.kubernetes.nodes.process_pods import ProcessPod
from services.lab.kubernetes.pods import node_of
from services.lab.kubernetes.registry import Registry
from services.lab.kubernetes.requests import Target, is_true, whole_number
from services.lab.kubernetes.resources import PODS, Json
from services.lab.shared.clock import Clock
from services.lab.shared.http.server import EventStream, Request

POLL_S = 0.05
"""Seconds between two reads of a log that is followed."""


class LogRequests:
    def __init__(self, registry: Registry, nodes: Nodes, clock: Clock) -> None:
        self._registry = registry
        self._nodes = nodes
        self._clock = clock

    def serve(self, request: Request, target: Target, query: dict[str, str]) -> bytes | None:
        """Answer with the log. Raises ApiError."""
        pod = self._registry.read(PODS, target.namespace, target.name)
        name = container_name(pod, query.get("container", ""))
        if unknown := {"sinceSeconds", "sinceTime", "timestamps"} & {key for key, value in query.items() if value}:
            raise bad_request(f"this apiserver keeps no times of lines: logs have no {min(unknown)}")
        self._check_node(pod)
        status = pod["status"]
        rows = (*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ()))
        state: Json = next((row for row in rows if row["name"] == name), {})
        number = state.get("restartCount", 0) - is_true(query, "previous")
        if number < 0:
            raise bad_request(f'previous terminated container "{name}" in pod "{target.name}" not found')
        path = self._nodes.runtime.log_path(pod["metadata"]["uid"], name, number)
        if path is None:
            return answer(200, b"", TEXT_TYPE)
        if not path.exists():
            reason = state.get("state", {}).get("waiting", {}).get("reason", "ContainerCreating")
            raise bad_request(f'container "{name}" in pod "{target.name}" is waiting to start: {reason}')
        log = Log(path, whole_number(query, "tailLines"), whole_number(query, "limitBytes"))
        running = self._nodes.pod(node_of(pod), pod["metadata"]["uid"])
        container = running.containers[name] if isinstance(running, ProcessPod) else None
        if not is_true(query, "follow") or container is None or container.run.restarts != number:
            return answer(200, log.read(), TEXT_TYPE)
        headers = (("Content-Type", TEXT_TYPE), ("Cache-Control", "no-cache, private"))
        _Follower(EventStream(request.connection, headers), log, container, self._clock)
        return None

    def _check_node(self, pod: Json) -> None:
        """Raise ApiError when the node of the pod is missing or down."""
        name = node_of(pod)
        if not name:
            raise bad_request(f"pod {pod['metadata']['name']} does not have a host assigned")
        if name not in self._nodes.by_name or not self._nodes.by_name[name].is_up:
            raise ApiError(500, "InternalError", f"dial tcp: node {name} does not answer")


class Log:
    """Log of one run of a container, read from where it last stopped."""

    def __init__(self, path: Path, tail_lines: int | None = None, limit_bytes: int | None = None) -> None:
        self._path = path
        self._tail_lines = tail_lines
        self._left = limit_bytes
        self._offset = 0

    def read(self) -> bytes:
        """Return the data since the last call."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        self._offset += len(data)
        if self._tail_lines is not None:
            lines = data.splitlines(keepends=True)
            data, self._tail_lines = b"".join(lines[max(len(lines) - self._tail_lines, 0) :]), None
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        return data

    @property
    def is_full(self) -> bool:
        return self._left == 0


class _Follower:
    """Streams a log until its container ends or the client disconnects."""

    def __init__(self, stream: EventStream, log: Log, container: Container, clock: Clock) -> None:
        self._stream = stream
        self._log = log
        self._container = container
        self._pid = container.pid
        self._clock = clock
        self._poll()

    def _poll(self) -> None:
        has_ended = self._pid is None or self._container.pid != self._pid
        try:
            data = self._log.read()
        except OSError:  # the pod was deleted with its files
            data, has_ended = b"", True
        if data:
            self._stream.send(b"%x\r\n%s\r\n" % (len(data), data))
        if has_ended or self._log.is_full:
            self._stream.finish()
        elif not self._stream.closed:
            self._clock.call_later(POLL_S * self._clock.scale, self._poll)


def container_name(pod: Json, wanted: str) -> str:
    """Return the name of the container, by default the only one. Raises ApiError."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    names = [row["name"] for row in spec["containers"]]
    if wanted:
        if wanted not in (*names, *(row["name"] for row in spec.get("initContainers") or ())):
            raise bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    if len(names) > 1:
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]")
    return str(names[0])
