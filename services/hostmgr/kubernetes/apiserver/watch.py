"""Objects of one kind as the apiserver has them: a list, and then what changes.

A watch shows states, not steps: what was created and deleted during an interruption is never seen. So after each
interruption all objects are listed again, and the handler compares them with what it knew.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Sequence
from http import HTTPStatus
from typing import Protocol

import orjson

from services.hostmgr.kubernetes.apiserver.connection import Stream
from services.hostmgr.kubernetes.apiserver.lists import pages, with_query
from services.hostmgr.kubernetes.apiserver.wire import Answer, ApiServer, Json, Refused, Request

log = logging.getLogger(__name__)

PAGE_OBJECTS = 500
PAGED_LISTS_MAX = 2
"""After so many lists whose continue token expired between two pages everything is read in one answer."""
BACKOFF_S, BACKOFF_MAX_S = 0.1, 10.0
"""Pause after the second failure in a row, twice as long after each further one, and the longest."""
STOP_TIMEOUT_S = 10.0
IDENTITY = "/api/v1/namespaces/kube-system"
"""Its uid is that of the cluster: no cluster is without it, and nothing can replace it."""


class Watched(Protocol):
    """Called on the thread of one reflector."""

    def replaced(self, objects: Sequence[Json]) -> None:
        """All of them as they are now. This replaces everything before."""

    def changed(self, kind: str, object: Json) -> None:
        """``kind``: ADDED, MODIFIED or DELETED, with the object as it is, or was at last."""

    def lost(self, why: str) -> None:
        """The watch is interrupted: objects may be out of date until ``replaced`` is called."""


class Expired(Exception):
    """The apiserver no longer knows the events since our version: the objects have to be listed."""


class Reflector:
    def __init__(self, api: ApiServer, path: str, handler: Watched) -> None:
        """``path``: of a collection, with selectors as its query."""
        self._api = api
        self._path = path
        self._name = path.partition("?")[0]
        self._handler = handler
        self._version = ""  # up to which the handler has seen all; empty: the objects must be listed
        self._store = ""  # uid of the store that the version is of; empty: we may not read it
        self._has_heard = False  # anything on the last watch
        self._is_lost = False
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._stream: Stream | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch of {self._name}", daemon=True)

    @property
    def is_current(self) -> bool:
        """The handler has seen all events but those on their way."""
        return bool(self._version)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """The handler is not called after it. May be called by the handler."""
        self._stopping.set()
        with self._lock:
            if self._stream is not None:
                self._stream.close()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(STOP_TIMEOUT_S)

    def _run(self) -> None:
        failures = 0  # in a row
        while not self._stopping.is_set():
            self._has_heard = False
            why = ""
            try:
                if not self._version:
                    self._list()
                elif failures:
                    self._check_store()
                self._watch()
            except Expired as error:
                log.info("%s is listed anew: %s", self._name, error)
                self._version = ""
            except (OSError, ValueError) as error:
                why = str(error) or type(error).__name__
            except Exception as error:  # of the handler: all objects are listed for it again, after a pause
                log.exception("objects of %s were not taken", self._name)
                self._version, self._has_heard = "", False
                why = repr(error)
            failures = (1 if why else 0) if self._has_heard else failures + 1
            if why and (failures > 1 or not self._version):
                self._lose(why)
            if failures > 1:
                pause_s = min(BACKOFF_S * 2.0 ** min(failures - 2, 10), BACKOFF_MAX_S)
                self._stopping.wait(pause_s * random.uniform(0.5, 1.0))

    def _lose(self, why: str) -> None:
        """Reports the loss once, until the next list."""
        self._version = ""
        if not self._is_lost and not self._stopping.is_set():
            self._is_lost = True
            log.warning("watch of %s lost: %s", self._name, why)
            self._handler.lost(why)

    # Lists.

    def _list(self) -> None:
        """Raises OSError, ValueError."""
        store = self._identity()
        if self._store and store and store != self._store:
            log.warning("the apiserver has another store: cluster %s instead of %s", store, self._store)
        for attempt in range(PAGED_LISTS_MAX + 1):
            try:
                objects, version = self._pages(is_paged=attempt < PAGED_LISTS_MAX)
                break
            except Expired:
                log.info("the list of %s took longer than its version is kept", self._name)
        else:
            raise OSError(f"the list of {self._name} expires while it is read")
        if self._stopping.is_set():
            return
        self._handler.replaced(objects)
        self._version, self._store, self._is_lost = version, store, False

    def _pages(self, is_paged: bool) -> tuple[list[Json], str]:
        """All objects and their version, which is that of the first page."""
        objects: list[Json] = []
        version = ""
        try:
            for metadata, items in pages(self._api, self._path, PAGE_OBJECTS if is_paged else 0):
                objects += items
                version = version or metadata["resourceVersion"]
                if self._stopping.is_set():
                    break
        except Refused as error:
            raise _expired_or(error) from None
        return objects, version

    def _identity(self) -> str:
        """Empty when we may not see it. Raises OSError, ValueError."""
        answer = self._api.ask(Request("GET", IDENTITY))
        if answer.status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
            return ""
        if not answer.is_ok:
            raise Refused(answer)
        return str(answer.json()["metadata"]["uid"])

    def _check_store(self) -> None:
        """Before a watch is resumed: of another store, or of one that was put back, our version means nothing, and a
        watch would be silent. Raises Expired, OSError, ValueError."""
        store = self._identity()
        if store != self._store:
            raise Expired(f"the apiserver has another store: cluster {store or 'unknown'}")
        metadata, _ = next(pages(self._api, self._path, 1))
        if int(metadata["resourceVersion"]) < int(self._version):
            raise Expired(f"the store was put back to version {metadata['resourceVersion']} from {self._version}")

    # Watches.

    def _watch(self) -> None:
        """Until the apiserver ends it. Raises Expired, OSError, ValueError, and what the handler does."""
        query = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": self._version}
        try:
            stream = self._api.stream(with_query(self._path, query))
        except Refused as error:
            raise _expired_or(error) from None
        with stream:
            with self._lock:
                self._stream = stream
                if self._stopping.is_set():
                    stream.close()
            try:
                for line in stream:
                    self._take(line)
                    if self._stopping.is_set():
                        return
            finally:
                with self._lock:
                    self._stream = None

    def _take(self, line: bytes) -> None:
        if self._stopping.is_set() or not line:
            return
        event = orjson.loads(line)
        kind, object = event["type"], event["object"]
        if kind == "ERROR":
            answer = Answer(int(object.get("code") or 500), orjson.dumps(object))
            raise _expired_or(Refused(answer))
        if kind in ("ADDED", "MODIFIED", "DELETED"):
            self._handler.changed(kind, object)
        self._version = object["metadata"]["resourceVersion"]
        self._has_heard = True


def _expired_or(error: Refused) -> Expired | Refused:
    return Expired(error.answer.message) if error.answer.status == HTTPStatus.GONE else error
