"""Objects of one kind in an apiserver: a list, followed by its changes.

A watch shows states, not steps: objects created and deleted during an interruption are never seen. So after each
interruption all objects are listed again, and the handler compares them with its state.
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
"""Number of lists whose continue token expired between two pages, after which all objects are read in one answer."""
BACKOFF_S, BACKOFF_MAX_S = 0.1, 10.0
"""Seconds of pause after the second consecutive failure, doubled after each further one up to the maximum."""
STOP_TIMEOUT_S = 10.0
IDENTITY = "/api/v1/namespaces/kube-system"
"""The namespace whose uid identifies the cluster: every cluster has it, and it cannot be replaced."""


class Watched(Protocol):
    """Handler of a watch, called on the thread of one reflector."""

    def on_replace(self, objects: Sequence[Json]) -> None:
        """Set all objects, replacing all earlier ones."""

    def on_change(self, kind: str, object: Json) -> None:
        """Apply a change. ``kind`` is ADDED, MODIFIED or DELETED; the object is in its new or last state."""

    def on_lost(self, why: str) -> None:
        """Report an interruption of the watch: objects may be out of date until ``on_replace`` is called."""


class Expired(Exception):
    """The apiserver no longer has the events since the watched version: the objects must be listed."""


class Reflector:
    def __init__(self, api: ApiServer, path: str, handler: Watched) -> None:
        """``path`` is a collection, with selectors as its query."""
        self._api = api
        self._path = path
        self._name = path.partition("?")[0]
        self._handler = handler
        self._version = ""  # up to which the handler has seen all events; empty: the objects must be listed
        self._store = ""  # uid of the store of this version; empty: reading it is forbidden
        self._has_heard = False  # any event on the last watch
        self._is_lost = False
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._stream: Stream | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch of {self._name}", daemon=True)

    @property
    def is_current(self) -> bool:
        """Return whether the handler has seen all events except the ones in transit."""
        return bool(self._version)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop; the handler is not called afterwards. The handler may call this."""
        self._stopping.set()
        with self._lock:
            if self._stream is not None:
                self._stream.close()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(STOP_TIMEOUT_S)

    def _run(self) -> None:
        failures = 0  # consecutive
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
                log.info("relisting %s: %s", self._name, error)
                self._version = ""
            except (OSError, ValueError) as error:
                why = str(error) or type(error).__name__
            except Exception as error:  # of the handler: all objects are listed for it again, after a pause
                log.exception("changes of %s were not applied, relisting", self._name)
                self._version, self._has_heard = "", False
                why = repr(error)
            failures = (1 if why else 0) if self._has_heard else failures + 1
            if why and (failures > 1 or not self._version):
                self._report_loss(why)
            if failures > 1:
                pause_s = min(BACKOFF_S * 2.0 ** min(failures - 2, 10), BACKOFF_MAX_S)
                self._stopping.wait(pause_s * random.uniform(0.5, 1.0))

    def _report_loss(self, why: str) -> None:
        """Report the loss once, until the next list."""
        self._version = ""
        if not self._is_lost and not self._stopping.is_set():
            self._is_lost = True
            log.warning("watch of %s lost: %s", self._name, why)
            self._handler.on_lost(why)

    # Lists.

    def _list(self) -> None:
        """List all objects for the handler. Raises OSError, ValueError."""
        store = self._identity()
        if self._store and store and store != self._store:
            log.warning("the apiserver has a different store: cluster %s instead of %s", store, self._store)
        for attempt in range(PAGED_LISTS_MAX + 1):
            try:
                objects, version = self._pages(is_paged=attempt < PAGED_LISTS_MAX)
                break
            except Expired:
                log.info("the version of the list of %s expired while it was read, relisting", self._name)
        else:
            raise OSError(f"the list of {self._name} expires while it is read")
        if self._stopping.is_set():
            return
        self._handler.on_replace(objects)
        self._version, self._store, self._is_lost = version, store, False

    def _pages(self, is_paged: bool) -> tuple[list[Json], str]:
        """Return all objects, and the version of the first page."""
        objects: list[Json] = []
        version = ""
        try:
            for metadata, items in pages(self._api, self._path, PAGE_OBJECTS if is_paged else 0):
                objects += items
                version = version or metadata["resourceVersion"]
                if self._stopping.is_set():
                    break
        except Refused as error:
            raise _classify_error(error) from None
        return objects, version

    def _identity(self) -> str:
        """Return the uid of the store; empty when reading it is forbidden. Raises OSError, ValueError."""
        answer = self._api.ask(Request("GET", IDENTITY))
        if answer.status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
            return ""
        if not answer.is_ok:
            raise Refused(answer)
        return str(answer.json()["metadata"]["uid"])

    def _check_store(self) -> None:
        """Check the store before a watch resumes: in another store, or one restored from a backup, the known version
        is meaningless and a watch would be silent. Raises Expired, OSError, ValueError."""
        store = self._identity()
        if store != self._store:
            raise Expired(f"the apiserver has another store: cluster {store or 'unknown'}")
        metadata, _ = next(pages(self._api, self._path, 1))
        if int(metadata["resourceVersion"]) < int(self._version):
            raise Expired(f"the store was restored to version {metadata['resourceVersion']}, before {self._version}")

    # Watches.

    def _watch(self) -> None:
        """Watch until the apiserver ends the watch. Raises Expired, OSError, ValueError, and what the handler
        raises."""
        query = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": self._version}
        try:
            stream = self._api.stream(with_query(self._path, query))
        except Refused as error:
            raise _classify_error(error) from None
        with stream:
            with self._lock:
                self._stream = stream
                if self._stopping.is_set():
                    stream.close()
            try:
                for line in stream:
                    self._handle_event(line)
                    if self._stopping.is_set():
                        return
            finally:
                with self._lock:
                    self._stream = None

    def _handle_event(self, line: bytes) -> None:
        if self._stopping.is_set() or not line:
            return
        event = orjson.loads(line)
        kind, object = event["type"], event["object"]
        if kind == "ERROR":
            answer = Answer(int(object.get("code") or 500), orjson.dumps(object))
            raise _classify_error(Refused(answer))
        if kind in ("ADDED", "MODIFIED", "DELETED"):
            self._handler.on_change(kind, object)
        self._version = object["metadata"]["resourceVersion"]
        self._has_heard = True


def _classify_error(error: Refused) -> Expired | Refused:
    return Expired(error.answer.message) if error.answer.status == HTTPStatus.GONE else error
