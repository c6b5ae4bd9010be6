"""Watches: streams with one line for each event, from a version or with all objects first."""

from __future__ import annotations

import asyncio
import random

import orjson

from services.lab.kubernetes.errors import ApiError
from services.lab.kubernetes.lists import selection
from services.lab.kubernetes.requests import is_true, whole_number
from services.lab.kubernetes.resources import Json, Resource
from services.lab.kubernetes.selectors import Matches
from services.lab.kubernetes.store import ADDED, DELETED, MODIFIED, Event, Store, Subscription, watch_chunk
from services.lab.kubernetes.tables import Table, table_of
from services.lab.shared.http.server import EventStream, Request

BOOKMARK_S = 60.0
TIMEOUT_MIN_S, TIMEOUT_MAX_S = 1800.0, 3600.0
"""Range of the duration of a watch without a timeout."""
UNREAD_BYTES_MAX = 64 * 1024 * 1024
"""Unread bytes at which the connection of a watch is closed."""


class Watch:
    """Stream of one client."""

    __slots__ = ("_from", "_matches", "_namespace", "_resource", "_table", "stream", "wants_bookmarks")

    def __init__(
        self,
        stream: EventStream,
        resource: Resource,
        namespace: str,
        matches: Matches | None,
        table: Table | None,
        wants_bookmarks: bool,
    ) -> None:
        self.stream = stream
        self.wants_bookmarks = wants_bookmarks
        self._resource = resource
        self._namespace = namespace
        self._matches = matches
        self._table = table
        self._from = 0

    def begin(self, store: Store, version: int | None) -> None:
        """Send the past: events after ``version``, or all objects without one."""
        if version:
            self._from = version
            for event in store.since(self._resource.plural, version):
                self.deliver(event)
            return
        for entry in store.entries(self._resource.plural, self._namespace):
            if self._matches is None or self._matches(entry.body):
                self.stream.send(self._chunk(ADDED, entry.body, entry.encoded))

    def deliver(self, event: Event) -> None:
        if event.version <= self._from or self.stream.closed:
            return
        if self._namespace and event.body["metadata"]["namespace"] != self._namespace:
            return
        kind = event.kind
        if self._matches is not None:
            was = event.previous is not None and self._matches(event.previous)
            now = kind != DELETED and self._matches(event.body)
            if not was and not now:
                return
            kind = DELETED if not now else MODIFIED if was else ADDED
            if kind == DELETED and event.kind != DELETED:
                self._send_gone(event)
                return
        self.stream.send(event.chunk(kind) if self._table is None else self._chunk(kind, event.body, event.encoded))

    def _send_gone(self, event: Event) -> None:
        """Send a DELETED event for an object that the selector no longer matches, in its last matching state."""
        assert event.previous is not None
        version = event.body["metadata"]["resourceVersion"]
        last = {**event.previous, "metadata": {**event.previous["metadata"], "resourceVersion": version}}
        self.stream.send(self._chunk(DELETED, last, b""))

    def _chunk(self, kind: str, body: Json, encoded: bytes) -> bytes:
        if self._table is not None:
            encoded = orjson.dumps(self._table.rows([body], {"resourceVersion": body["metadata"]["resourceVersion"]}))
        return watch_chunk(kind, encoded or orjson.dumps(body))

    def bookmark(self, version: int) -> None:
        if version < self._from:
            return  # it waits for a future version
        metadata = {"resourceVersion": str(version)}
        self.stream.send(watch_chunk("BOOKMARK", orjson.dumps({**self._resource.head, "metadata": metadata})))


class Watches:
    """All streams, and the timer of their bookmarks."""

    def __init__(self, store: Store, bookmark_s: float = BOOKMARK_S) -> None:
        self._store = store
        self._bookmark_s = bookmark_s
        self._open: set[Watch] = set()
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(self._bookmark_s, self._send_bookmarks, loop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for watch in list(self._open):
            watch.stream.finish()
        self._open.clear()

    def _send_bookmarks(self, loop: asyncio.AbstractEventLoop) -> None:
        for watch in self._open:
            if watch.wants_bookmarks:
                watch.bookmark(self._store.version)
        self.start(loop)

    def serve(self, request: Request, resource: Resource, namespace: str, name: str, query: dict[str, str]) -> None:
        """Begin a watch. Raises ApiError for an invalid query; an expired version is an event of the stream."""
        if "sendInitialEvents" in query:
            # By this answer clients know to list first.
            raise ApiError(422, "Invalid", "sendInitialEvents is forbidden for watch: this apiserver has no WatchList")
        version, timeout_s = whole_number(query, "resourceVersion"), whole_number(query, "timeoutSeconds")
        named = f"metadata.name={name},{query.get('fieldSelector', '')}" if name else query.get("fieldSelector", "")
        matches = selection(resource.plural, {**query, "fieldSelector": named})
        table = table_of(request.headers.get("accept", ""), resource, query)
        headers = (("Content-Type", "application/json"), ("Cache-Control", "no-cache, private"))
        stream = EventStream(request.connection, headers, UNREAD_BYTES_MAX)
        watch = Watch(stream, resource, namespace, matches, table, is_true(query, "allowWatchBookmarks"))
        try:
            watch.begin(self._store, version)
        except ApiError as error:
            stream.send(watch_chunk("ERROR", orjson.dumps(error.status())))
            stream.finish()
            return
        subscription = self._store.watch(resource.plural, watch.deliver)
        self._open.add(watch)
        loop = asyncio.get_running_loop()
        lasts_s = random.uniform(TIMEOUT_MIN_S, TIMEOUT_MAX_S) if timeout_s is None else float(timeout_s)
        timer = loop.call_later(lasts_s, self._finish, watch, subscription)
        stream.on_close = lambda: self._forget(watch, subscription, timer)

    def _finish(self, watch: Watch, subscription: Subscription) -> None:
        subscription.close()
        self._open.discard(watch)
        if watch.wants_bookmarks:
            watch.bookmark(self._store.version)
        watch.stream.finish()

    def _forget(self, watch: Watch, subscription: Subscription, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        subscription.close()
        self._open.discard(watch)
