"""Lists and watches of an apiserver, and all that interrupts them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs

import orjson
import pytest

from services.hostmgr.kubernetes.apiserver import watch
from services.hostmgr.kubernetes.apiserver.watch import IDENTITY, Reflector
from services.hostmgr.kubernetes.apiserver.wire import ApiServer, Json
from tests.unit.hostmgr.kubernetes.scripted import Asked, answer, api_of, chunk_answer, run_scripted, status
from tests.unit.hostmgr.mesos.sockets import TIMEOUT_S, Server, chunk

PODS = "/api/v1/pods"
END, BREAK = "end", "break"
Line = Json | str


def pod(name: str, version: int) -> Json:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


def event(kind: str, name: str, version: int) -> Json:
    return {"type": kind, "object": pod(name, version)}


def bookmark(version: int) -> Json:
    return {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": str(version)}}}


EXPIRED: dict[str, Any] = {"type": "ERROR", "object": status(410, "Expired", "too old resource version: 1 (5908)")}


class Recorder:
    """A recorder of the events of a reflector."""

    def __init__(self) -> None:
        self.said: queue.Queue[tuple[Any, ...]] = queue.Queue()
        self.fails_once_at = ""

    def on_replace(self, objects: Sequence[Json]) -> None:
        self.said.put(("replaced", *[one["metadata"]["name"] for one in objects]))

    def on_change(self, kind: str, object: Json) -> None:
        name = object["metadata"]["name"]
        if name == self.fails_once_at:
            self.fails_once_at = ""
            raise RuntimeError("not taken")
        self.said.put((kind, name))

    def on_lost(self, why: str) -> None:
        self.said.put(("lost", why))

    def next(self, count: int = 1) -> list[tuple[Any, ...]]:
        return [self.said.get(timeout=TIMEOUT_S) for _ in range(count)]


class Collection:
    """A scripted apiserver of one collection: lists are taken one after the other, the last one stays; each watch
    takes its lines from here."""

    def __init__(self) -> None:
        self.uid = "cluster-1"
        self.lists: list[bytes] = []
        self.watched: queue.Queue[dict[str, str]] = queue.Queue()
        self.listed: list[dict[str, str]] = []
        self.lines: queue.Queue[Line] = queue.Queue()
        self.refusals: list[bytes] = []  # answers to the next watches, before any lines
        self.over = threading.Event()

    def list(self, version: int, *names: str, token: str = "") -> Collection:
        metadata = {"resourceVersion": str(version), **({"continue": token} if token else {})}
        self.lists.append(answer(200, {"metadata": metadata, "items": [pod(name, version) for name in names]}))
        return self

    def say(self, *lines: Line) -> None:
        for line in lines:
            self.lines.put(line)

    def serve(self, asked: Asked) -> Iterator[bytes]:
        path, _, text = asked.path.partition("?")
        query = {key: values[0] for key, values in parse_qs(text).items()}
        if path == IDENTITY:
            yield answer(200, {"metadata": {"uid": self.uid}}) if self.uid else answer(403, status(403, "Forbidden"))
        elif query.get("watch"):
            self.watched.put(query)
            yield from self._watch()
        else:
            self.listed.append(query)
            yield self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]

    def _watch(self) -> Iterator[bytes]:
        if self.refusals:
            yield self.refusals.pop(0)
            return
        yield chunk_answer()
        while not self.over.is_set():
            try:
                line = self.lines.get(timeout=0.01)
            except queue.Empty:
                continue
            if line == END:
                yield chunk(b"")
                return
            if line == BREAK:
                yield b""
            yield chunk(orjson.dumps(line) + b"\n")

    def version_of_next_watch(self) -> str:
        return self.watched.get(timeout=TIMEOUT_S)["resourceVersion"]


@contextmanager
def run_reflector(collection: Collection, path: str = PODS) -> Iterator[tuple[Recorder, Reflector, ApiServer, Server]]:
    recorder = Recorder()
    with run_scripted(collection.serve) as server, api_of(server) as api:
        reflector = Reflector(api, path, recorder)
        reflector.start()
        try:
            yield recorder, reflector, api, server
        finally:
            reflector.stop()
            collection.over.set()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "BACKOFF_S", 0.001)


def test_a_list_in_pages_and_then_changes() -> None:
    """The watch begins at the version of the list, with the selector of its path."""
    collection = Collection().list(7, "a", "b", token="T/1=").list(7, "c")

    with run_reflector(collection, f"{PODS}?fieldSelector=spec.nodeName!%3D") as (said, reflector, _, _):
        assert said.next() == [("replaced", "a", "b", "c")]
        query = collection.watched.get(timeout=TIMEOUT_S)
        collection.say(event("ADDED", "d", 8), event("MODIFIED", "a", 9), bookmark(20), event("DELETED", "b", 21))
        assert said.next(3) == [("ADDED", "d"), ("MODIFIED", "a"), ("DELETED", "b")]
        assert reflector.is_current

    assert [{"fieldSelector": "spec.nodeName!=", "limit": "500"}, "T/1="] == [
        collection.listed[0],
        collection.listed[1]["continue"],
    ]
    assert query == {
        "fieldSelector": "spec.nodeName!=",
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": "7",
    }


def test_a_watch_that_ends_resumes_at_its_last_version() -> None:
    """An apiserver ends each watch after half an hour: the version of a bookmark counts, and nothing is listed."""
    collection = Collection().list(7, "a")

    with run_reflector(collection) as (said, _, _, _):
        said.next()
        assert collection.version_of_next_watch() == "7"
        collection.say(event("ADDED", "b", 8), bookmark(30), END)
        assert collection.version_of_next_watch() == "30"
        collection.say(event("ADDED", "c", 31))
        assert said.next(2) == [("ADDED", "b"), ("ADDED", "c")]
    assert len(collection.listed) == 1


def test_a_watch_that_breaks_once_resumes_silently() -> None:
    """The watch continues if the same store answers at once with a current version."""
    collection = Collection().list(9, "a")

    with run_reflector(collection) as (said, _, _, _):
        said.next()
        collection.version_of_next_watch()
        collection.say(event("ADDED", "b", 9), BREAK)
        assert collection.version_of_next_watch() == "9"
        collection.say(event("ADDED", "c", 10))
        assert said.next(2) == [("ADDED", "b"), ("ADDED", "c")]
    assert [{"limit": "500"}, {"limit": "1"}] == collection.listed


@pytest.mark.parametrize("form", ["event", "http"])
def test_a_version_that_is_too_old_is_listed_again(form: str) -> None:
    """The reflector lists again on either form of 410, and reports no loss."""
    collection = Collection().list(7, "a").list(50, "b")
    if form == "http":
        collection.refusals.append(answer(410, EXPIRED["object"]))

    with run_reflector(collection) as (said, _, _, _):
        assert said.next() == [("replaced", "a")]
        if form == "event":
            collection.say(EXPIRED)
        assert said.next() == [("replaced", "b")]
        assert ["7", "50"] == [collection.version_of_next_watch() for _ in range(2)]


def test_another_error_of_a_watch_is_tried_again() -> None:
    """Old etcds reject some watches with an ERROR 500: the reflector continues at its version."""
    collection = Collection().list(7, "a")

    with run_reflector(collection) as (said, _, _, _):
        said.next()
        collection.version_of_next_watch()
        collection.say(event("ADDED", "b", 7), {"type": "ERROR", "object": status(500, "InternalError", "no progress")})
        assert collection.version_of_next_watch() == "7"


@pytest.mark.parametrize("change", ["uid", "put back"])
def test_another_store_is_noticed_before_a_watch_resumes(change: str) -> None:
    """A watch from a version of the new store's future would be silent for ever."""
    collection = Collection().list(70, "a").list(3, "b")

    with run_reflector(collection) as (said, _, _, _):
        said.next()
        assert collection.version_of_next_watch() == "70"
        if change == "uid":
            collection.uid = "cluster-2"
        collection.say(event("ADDED", "c", 71), BREAK)
        assert said.next(2) == [("ADDED", "c"), ("replaced", "b")]
        assert collection.version_of_next_watch() == "3"


def test_the_identity_of_a_cluster_may_be_hidden() -> None:
    """A missing permission to read the identity affects nothing else."""
    collection = Collection().list(7, "a")
    collection.uid = ""

    with run_reflector(collection) as (said, _, _, _):
        assert said.next() == [("replaced", "a")]
        collection.version_of_next_watch()
        collection.say(BREAK)
        assert collection.version_of_next_watch() == "7"


def test_an_apiserver_that_is_away_is_a_loss_and_then_a_list() -> None:
    """The loss is reported once, however long it lasts; the known objects are not current meanwhile."""
    collection = Collection().list(7, "a").list(8, "b")
    refuse = answer(403, status(403, "Forbidden", "pods is forbidden"))

    with run_reflector(collection) as (said, reflector, _, _):
        said.next()
        collection.version_of_next_watch()
        collection.refusals += [refuse] * 3
        collection.lists[:0] = [refuse] * 4
        collection.say(event("ADDED", "x", 7), BREAK)
        assert said.next(2) == [("ADDED", "x"), ("lost", "HTTP 403: pods is forbidden")]
        assert said.next() == [("replaced", "b")]
        wait(lambda: reflector.is_current)


def test_a_list_whose_token_expires_is_read_again_and_then_whole() -> None:
    """A list that takes longer than five minutes never ends in pages."""
    expired = answer(410, status(410, "Expired", "The provided continue parameter is too old"))
    collection = Collection()
    collection.list(7, "a", token="t").lists.append(expired)
    collection.list(8, "a", token="t").lists.append(expired)
    collection.list(9, "a", "b", "c")

    with run_reflector(collection) as (said, _, _, _):
        assert said.next() == [("replaced", "a", "b", "c")]
    assert [{"limit"}, {"limit", "continue"}] * 2 + [set()] == [set(query) for query in collection.listed]


def test_a_handler_that_fails_receives_everything_again() -> None:
    """An object that it did not take is not forgotten."""
    collection = Collection().list(7, "a").list(9, "a", "b")

    with run_reflector(collection) as (said, _, _, _):
        said.fails_once_at = "b"
        assert said.next() == [("replaced", "a")]
        collection.say(event("ADDED", "b", 8))
        assert said.next(2) == [("lost", "RuntimeError('not taken')"), ("replaced", "a", "b")]


def test_lines_that_are_no_events_are_a_broken_watch() -> None:
    """The watch is opened again, and in the end all objects are listed again."""
    collection = Collection().list(7, "a")

    with run_reflector(collection) as (said, _, _, _):
        said.next()
        collection.say("text")
        assert said.next()[0][0] == "lost"
        assert said.next() == [("replaced", "a")]


def test_nothing_is_said_after_stop() -> None:
    """The thread has ended, even if the handler itself stops it."""
    collection = Collection().list(7, "a")
    with run_reflector(collection) as (said, reflector, _, _):
        said.next()
        collection.version_of_next_watch()
        reflector.stop()
        collection.say(event("ADDED", "b", 8))
        assert not any(thread.name == f"watch of {PODS}" for thread in threading.enumerate())
        assert said.said.empty()


def wait(is_so: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(TIMEOUT_S / 0.005)):
        if is_so():
            return
        pause.wait(0.005)
    raise AssertionError("timed out")
