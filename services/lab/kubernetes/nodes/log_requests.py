"""GET of a pod's log, which its node has written, once or as a stream."""

from __future__ import annotations

import re
from datetime import datetime

from services.lab.kubernetes.answers import TEXT_TYPE, answer
from services.lab.kubernetes.errors import ApiError, bad_request, not_found
from services.lab.kubernetes.nodes.container_logs import LogFile, LogOptions, LogReader, earlier
from services.lab.kubernetes.nodes.containers import Container
from services.lab.kubernetes.nodes.nodes import Nodes
from services.lab.kubernetes.nodes.process_pods import ProcessPod
from services.lab.kubernetes.requests import Target, is_true, whole_number
from services.lab.kubernetes.resources import PODS, Json
from services.lab.kubernetes.store import Store
from services.lab.shared.clock import Clock
from services.lab.shared.http.server import EventStream, Request

_FRACTION = re.compile(r"(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$", re.ASCII)


class LogRequests:
    def __init__(self, store: Store, nodes: Nodes, clock: Clock) -> None:
        self._store = store
        self._nodes = nodes
        self._clock = clock

    def serve(self, request: Request, target: Target, query: dict[str, str]) -> bytes | None:
        """Answer with the log. Raises ApiError."""
        entry = self._store.get("pods", target.namespace, target.name)
        if entry is None:
            raise not_found(PODS, target.name)
        name = container_name(entry.body, query.get("container", ""))
        options = options_of(query, self._clock.wall())
        container = self._container(entry.body, name)
        if container is None:
            return answer(200, b"", TEXT_TYPE)
        path, number = container.log_path, container.run.restarts
        if is_true(query, "previous"):
            if not number:
                raise bad_request(f'previous terminated container "{name}" in pod "{target.name}" not found')
            path = container.previous_log_path
        elif container.log is None and not path.exists():
            waiting = (container.run.waiting or {}).get("reason", "ContainerCreating")
            raise bad_request(f'container "{name}" in pod "{target.name}" is waiting to start: {waiting}')
        reader = LogReader(path, options)
        log = container.log
        if not is_true(query, "follow") or log is None or not log.is_open or log.path != path:
            return answer(200, reader.read(), TEXT_TYPE)
        headers = (("Content-Type", TEXT_TYPE), ("Cache-Control", "no-cache, private"))
        _Follower(EventStream(request.connection, headers), reader, log)
        return None

    def _container(self, pod: Json, name: str) -> Container | None:
        """Return the container; None for a simulated pod. Raises ApiError when its node is missing or down."""
        node = self._nodes.by_name.get(pod["spec"].get("nodeName", ""))
        if node is None:
            where = pod["spec"].get("nodeName")
            text = f"pod {pod['metadata']['name']} does not have a host assigned" if not where else f"no node {where}"
            raise ApiError(400, "BadRequest", text) if not where else ApiError(500, "InternalError", text)
        if not node.is_up:
            raise ApiError(500, "InternalError", f"dial tcp: node {node.spec.name} does not answer")
        found = node.pods.get(pod["metadata"]["uid"]) or node.remembered(pod)
        return found.containers[name] if isinstance(found, ProcessPod) else None


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
    known = [*names, *(row["name"] for row in spec.get("initContainers") or ())]
    if wanted:
        if wanted not in known:
            raise bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    if len(names) > 1:
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]")
    return str(names[0])


def options_of(query: dict[str, str], now_s: float) -> LogOptions:
    """Return the options of the query. Raises ApiError."""
    since = ""
    seconds = whole_number(query, "sinceSeconds")
    if seconds is not None:
        since = earlier(now_s, seconds)
    elif text := query.get("sinceTime", ""):
        since = _utc(text)
    return LogOptions(
        whole_number(query, "tailLines"), since, whole_number(query, "limitBytes"), is_true(query, "timestamps")
    )


def _utc(text: str) -> str:
    """Return the time in the format of logs. Raises ApiError for an invalid time."""
    found = _FRACTION.search(text)
    try:
        if found is None:
            raise ValueError
        moment = datetime.fromisoformat(text[: found.start()] + found[2].replace("Z", "+00:00"))
    except ValueError:
        raise bad_request(f'sinceTime: Invalid value: "{text}": want a time as in RFC 3339') from None
    return earlier(moment.timestamp(), 0)[:19] + (found[1] or "") + "Z"
