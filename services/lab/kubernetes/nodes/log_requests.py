"""GET of a pod's log, which its node has written, once or as a stream."""

from __future__ import annotations

from datetime import datetime

from services.lab.kubernetes.answers import TEXT_TYPE, answer
from services.lab.kubernetes.errors import ApiError, bad_request
from services.lab.kubernetes.nodes.container_logs import LogFile, LogOptions, LogReader, nanoseconds
from services.lab.kubernetes.nodes.nodes import Nodes
from services.lab.kubernetes.nodes.process_pods import ProcessPod
from services.lab.kubernetes.pods import node_of
from services.lab.kubernetes.registry import Registry
from services.lab.kubernetes.requests import Target, is_true, whole_number
from services.lab.kubernetes.resources import PODS, Json
from services.lab.shared.clock import Clock
from services.lab.shared.http.server import EventStream, Request


class LogRequests:
    def __init__(self, registry: Registry, nodes: Nodes, clock: Clock) -> None:
        self._registry = registry
        self._nodes = nodes
        self._clock = clock

    def serve(self, request: Request, target: Target, query: dict[str, str]) -> bytes | None:
        """Answer with the log. Raises ApiError."""
        pod = self._registry.found(PODS, target.namespace, target.name)
        name = container_name(pod, query.get("container", ""))
        options = options_of(query, self._clock.wall())
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
        reader = LogReader(path, options)
        running = self._nodes.pod(node_of(pod), pod["metadata"]["uid"])
        log = running.containers[name].log if isinstance(running, ProcessPod) else None
        if not is_true(query, "follow") or log is None or not log.is_open or log.path != path:
            return answer(200, reader.read(), TEXT_TYPE)
        headers = (("Content-Type", TEXT_TYPE), ("Cache-Control", "no-cache, private"))
        _Follower(EventStream(request.connection, headers), reader, log)
        return None

    def _check_node(self, pod: Json) -> None:
        """Raises ApiError when the node of the pod is missing or down."""
        name = node_of(pod)
        if not name:
            raise bad_request(f"pod {pod['metadata']['name']} does not have a host assigned")
        if name not in self._nodes.by_name or not self._nodes.by_name[name].is_up:
            raise ApiError(500, "InternalError", f"dial tcp: node {name} does not answer")


class _Follower:
    """Streams a log until it ends or the client disconnects."""

    def __init__(self, stream: EventStream, reader: LogReader, log: LogFile) -> None:
        self._stream = stream
        self._reader = reader
        self._log = log
        log.on_written.append(self._more)
        stream.on_close = self._forget
        self._more()

    def _more(self) -> None:
        if data := self._reader.read():
            self._stream.send(b"%x\r\n%s\r\n" % (len(data), data))
        if self._reader.is_full or not self._log.is_open:
            self._forget()
            self._stream.finish()

    def _forget(self) -> None:
        if self._more in self._log.on_written:
            self._log.on_written.remove(self._more)


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


def options_of(query: dict[str, str], now_s: float) -> LogOptions:
    """Return the options of the query. Raises ApiError."""
    since, text = "", query.get("sinceTime", "")
    seconds = whole_number(query, "sinceSeconds")
    if seconds is not None:
        since = nanoseconds(now_s - seconds)
    elif text:
        try:
            since = nanoseconds(datetime.fromisoformat(text).timestamp())
        except ValueError:
            raise bad_request(f'sinceTime: Invalid value: "{text}": want a time as in RFC 3339') from None
    return LogOptions(
        whole_number(query, "tailLines"), since, whole_number(query, "limitBytes"), is_true(query, "timestamps")
    )
