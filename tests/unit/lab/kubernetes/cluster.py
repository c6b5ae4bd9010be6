"""An emulated Kubernetes in a thread, and a client of it."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from services.lab.kubernetes.server import EmulatedKubernetes
from services.lab.kubernetes.settings import EmulatedKubernetesSettings

TIMEOUT_S = 180.0
PODS = "/api/v1/namespaces/default/pods"
TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Cluster:
    def __init__(self, folder: Path, **settings: Any) -> None:
        self._settings = EmulatedKubernetesSettings(data_dir=folder, **settings)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Cluster:
        self._thread.start()
        self.server = EmulatedKubernetes(self._settings)
        self._run(self.server.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self.server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)

    def call(self, function: Any) -> Any:
        """Call a function on the event loop of the server, as emulated nodes do."""

        async def call_once() -> Any:
            return function()

        return self._run(call_once())

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        sent = {"Content-Type": "application/json"} if body is not None else {}
        if self._settings.token:
            sent["Authorization"] = f"Bearer {self._settings.token}"
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=TIMEOUT_S)
        try:
            payload = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
            connection.request(method, path, payload, {**sent, **(headers or {})})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, response.read(), found)
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, None, headers)

    def create(self, path: str, body: Any) -> Answer:
        return self.ask("POST", path, body)

    def wait(self, path: str, is_so: Callable[[Answer], object]) -> Answer:
        """Poll a GET until its answer satisfies a condition, and return that answer."""
        until_s = time.monotonic() + TIMEOUT_S
        while not is_so(answer := self.get(path)):
            assert time.monotonic() < until_s, answer
        return answer

    def patch(self, path: str, body: Any, kind: str = "merge") -> Answer:
        return self.ask("PATCH", path, body, {"Content-Type": TYPES.get(kind, kind)})

    @contextmanager
    def watch(self, path: str, **headers: str) -> Iterator[Watcher]:
        """Open a watch; the server has registered it when this returns."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", path, headers=headers)
            yield Watcher(connection.getresponse())
        finally:
            connection.close()


class Watcher:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self._response = response

    def next(self) -> tuple[str, Any]:
        line = self._response.readline()
        assert line, "the watch has ended"
        event = json.loads(line)
        return event["type"], event["object"]

    def take(self, count: int) -> list[tuple[str, Any]]:
        return [self.next() for _ in range(count)]

    def named(self, count: int) -> list[tuple[str, str]]:
        return [(kind, body["metadata"]["name"]) for kind, body in self.take(count)]

    def is_cut(self) -> bool:
        """Wait for the end of the connection."""
        try:
            return self._response.readline() == b""
        except (OSError, http.client.HTTPException):
            return True

    def has_ended(self) -> bool:
        """Wait for the end; an event instead of it is an error."""
        return self._response.readline() == b""


def pod(name: str, node: str = "node-1", **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox:1", "command": ["true"]}
    placed = {"nodeName": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], "restartPolicy": "Never", "schedulerName": "peloton", **placed, **spec},
    }
