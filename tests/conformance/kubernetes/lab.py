"""A scenario's view of an apiserver: what it asks and watches becomes a transcript that can be compared."""

from __future__ import annotations

import http.client
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from tests.conformance.kubernetes.normalise import Names
from tests.kubernetes.client import JSON, Client, Json, Login, Reply, Watch
from tests.kubernetes.fake_kubelet import FakeKubelets

TIMEOUT_S = 180.0
_POLL_S = 0.05
Show = Callable[[Any], Any]
"""The part of a body that is compared."""


class Lab:
    """A session on an apiserver, with a namespace and nodes of unique names; the transcript has the names without the
    suffix."""

    def __init__(self, login: Login) -> None:
        self.client = Client(login)
        self.suffix = secrets.token_hex(4)
        self.names = Names(self.suffix)
        self.transcript: list[Json] = []
        self.namespace = f"lab-{self.suffix}"
        self.pods = self.path("pods")
        self._nodes: list[str] = []
        self.must("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})

    def close(self) -> None:
        """Delete namespace and nodes without a wait for the pods: the rest of them goes with both."""
        self.client.ask("DELETE", f"{self.pods}?gracePeriodSeconds=0")
        self.client.ask("DELETE", f"/api/v1/namespaces/{self.namespace}")
        for node in self._nodes:
            self.client.ask("DELETE", f"/api/v1/nodes/{node}")
        self.client.close()

    def path(self, resource: str, group: str = "v1", namespace: str = "") -> str:
        top = "/api" if "/" not in group else "/apis"
        return f"{top}/{group}/namespaces/{namespace or self.namespace}/{resource}"

    def named(self, name: str) -> str:
        """The name of an object that belongs to no namespace."""
        return f"{name}-{self.suffix}"

    @contextmanager
    def node(self, name: str = "node") -> Iterator[str]:
        """A healthy node, on which nothing runs."""
        self._nodes.append(self.named(name))
        with FakeKubelets(self.client.login, [self.named(name)], runs_pods=False):
            yield self.named(name)

    def must(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> Json:
        """Make a request that is not in the transcript, and assert its success."""
        reply = self.client.ask(method, path, body, content_type)
        assert reply.status < http.client.BAD_REQUEST, (method, path, reply)
        return reply.json()

    def await_answer(self, status: int, method: str, path: str, body: Any) -> None:
        """Repeat a request that is not in the transcript until it has the status: an apiserver uses new objects with a
        delay."""
        until_s = time.monotonic() + TIMEOUT_S
        while (reply := self.client.ask(method, path, body)).status != status:
            assert time.monotonic() < until_s, (path, reply)
            time.sleep(_POLL_S)

    def ask(
        self,
        what: str,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = JSON,
        *,
        accept: str = JSON,
        show: Show | None = None,
    ) -> Reply:
        reply = self.client.ask(method, path, body, content_type, accept=accept)
        self._note_reply(what, method, path, reply, show)
        return reply

    def until(self, what: str, path: str, good: Callable[[Json], bool], show: Show | None = None) -> Json:
        """Record the first answer that is good; earlier ones depend on how fast controllers are."""
        until_s = time.monotonic() + TIMEOUT_S
        while True:
            reply = self.client.ask("GET", path)
            if reply.status == http.client.OK and good(reply.json()):
                self._note_reply(what, "GET", path, reply, show)
                return reply.json()
            assert time.monotonic() < until_s, (what, reply)
            time.sleep(_POLL_S)

    def _note_reply(self, what: str, method: str, path: str, reply: Reply, show: Show | None) -> None:
        is_json = reply.headers.get("content-type", "").startswith("application/json")
        body = orjson.loads(reply.body) if is_json else reply.body.decode()
        shown = self.names.body(_part(body, show) if show else body)
        self.transcript.append(
            {"do": what, "ask": f"{method} {self.names.text(path)}", "status": reply.status, "body": shown}
        )

    @contextmanager
    def watching(self, path: str) -> Iterator[Watching]:
        """Watch a path with its query until the block ends; ``watch=1`` is added."""
        watching = Watching(self, path, self.client.watch(f"{path}&watch=1" if "?" in path else f"{path}?watch=1"))
        try:
            yield watching
        finally:
            watching.close()


class Watching:
    """A watch of a scenario, whose events a thread collects."""

    def __init__(self, lab: Lab, path: str, watch: Watch) -> None:
        self._lab, self._path, self._watch = lab, path, watch
        self._events: list[Json] = []
        self._is_over = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._gather, name="watching", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._watch.close()
        self._thread.join()

    def note_until(self, what: str, good: Callable[[list[Json]], bool]) -> list[Json]:
        """Record and return the events so far, as soon as ``good`` is true for them: it waits for the last expected
        one."""
        with self._changed:
            assert self._changed.wait_for(lambda: good(self._events), TIMEOUT_S), (what, self._events)
            return self._note(what)

    def note_end(self, what: str) -> list[Json]:
        """Record and return all events, once the server has ended the watch."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._is_over, TIMEOUT_S), (what, self._events)
            return self._note(what)

    def _note(self, what: str) -> list[Json]:
        names = self._lab.names
        events = [{"type": event["type"], **names.body(_shown(event))} for event in self._events]
        self._lab.transcript.append(
            {"do": what, "watch": names.text(self._path), "status": self._watch.status, "events": events}
        )
        return list(self._events)

    def _gather(self) -> None:
        for event in self._watch:
            with self._changed:
                self._events.append(event)
                self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()


def _part(body: Any, show: Show) -> Any:
    """Return the part of a body that ``show`` selects; the whole body if it is an unexpected one without that part."""
    try:
        return show(body)
    except (KeyError, TypeError):
        return body


def _shown(event: Json) -> Json:
    """The parts that distinguish one event from the next; whole bodies are compared on request."""
    found = event["object"]
    if found.get("kind") == "Status":
        return {key: found.get(key) for key in ("status", "code", "reason", "message")}
    metadata, status = found["metadata"], found.get("status", {})
    if event["type"] == "BOOKMARK":
        return {"kind": found.get("kind"), "annotations": metadata.get("annotations")}
    shown = {
        **{key: metadata.get(key) for key in ("name", "generation", "labels", "finalizers", "resourceVersion")},
        "deleted": {key: metadata.get(key) for key in ("deletionTimestamp", "deletionGracePeriodSeconds")},
        "node": found.get("spec", {}).get("nodeName"),
        "phase": status.get("phase"),
        "conditions": {
            condition["type"]: [condition["status"], condition.get("reason")]
            for condition in status.get("conditions", [])
        },
    }
    return {
        key: value
        for key, value in shown.items()
        if value not in (None, {}, {"deletionTimestamp": None, "deletionGracePeriodSeconds": None})
    }


def has(count: int, kind: str = "") -> Callable[[list[Json]], bool]:
    """A condition: this many events, or this many of a kind."""
    return lambda events: len([event for event in events if kind in ("", event["type"])]) >= count


def pod(name: str, node: str = "", **spec: Any) -> Json:
    container = {"name": "main", "image": "busybox", "command": ["sleep", "300"]}
    where = {"nodeName": node} if node else {}
    # A scheduler that runs in the cluster leaves it alone.
    whole = {"schedulerName": "nobody", "restartPolicy": "Never", "containers": [container], **where, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": whole}


def with_labels(body: Json, **labels: str) -> Json:
    return {**body, "metadata": {**body["metadata"], "labels": labels}}
