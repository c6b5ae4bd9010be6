"""Store of the emulated apiserver: objects, one version counter for all of them, and the last events of each resource.

All calls are synchronous and on one event loop. Bodies are shared and never changed in place: a write stores a new one.
The store has no rules of its own; the rules of pods, deletion and admission are in `registry.py`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeAlias

import orjson

from services.lab.kubernetes.errors import already_exists, not_found, too_old
from services.lab.kubernetes.journal import Journal
from services.lab.kubernetes.resources import BY_PLURAL, RESOURCES, Json

log = logging.getLogger(__name__)

EVENTS_MAX = 20_000
"""Events kept for each resource: a watch from an earlier version is answered with 410, and its client lists again."""

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
Key: TypeAlias = tuple[str, str]  # namespace (empty for objects of the whole cluster) and name


class Entry:
    """Stored object."""

    __slots__ = ("body", "encoded", "version")

    def __init__(self, body: Json, encoded: bytes, version: int) -> None:
        self.body = body
        self.encoded = encoded
        self.version = version


class Event:
    """One write. ``previous`` is the object before it, None for a new object."""

    __slots__ = ("_chunks", "body", "encoded", "kind", "previous", "version")

    def __init__(self, kind: str, entry: Entry, previous: Json | None) -> None:
        self.kind = kind
        self.body = entry.body
        self.encoded = entry.encoded
        self.version = entry.version
        self.previous = previous
        self._chunks: dict[str, bytes] = {}

    def chunk(self, kind: str) -> bytes:
        """Return the line of a watch, framed as a chunk of HTTP and made once for all watches."""
        chunk = self._chunks.get(kind)
        if chunk is None:
            chunk = self._chunks[kind] = watch_chunk(kind, self.encoded)
        return chunk


def watch_chunk(kind: str, encoded: bytes) -> bytes:
    line = b'{"type":"%s","object":%s}\n' % (kind.encode(), encoded)
    return b"%x\r\n%s\r\n" % (len(line), line)


class Subscription:
    """Calls ``handler`` for each event of a resource, in order, until it is closed."""

    __slots__ = ("_others", "handler")

    def __init__(self, handler: Callable[[Event], None], others: list[Subscription]) -> None:
        self.handler = handler
        self._others = others
        others.append(self)

    def close(self) -> None:
        if self in self._others:
            self._others.remove(self)


class Store:
    """Objects of all resources. After a restart it has the objects of its journal and no events, like an apiserver with
    a fresh watch cache.
    """

    def __init__(self, journal: Journal | None = None, events_max: int = EVENTS_MAX) -> None:
        self.version = 0
        self._journal = journal
        self._events_max = events_max
        self._tables: dict[str, dict[Key, Entry]] = {resource.plural: {} for resource in RESOURCES}
        self._subscriptions: dict[str, list[Subscription]] = {resource.plural: [] for resource in RESOURCES}
        self._events: dict[str, deque[Event]] = {resource.plural: deque() for resource in RESOURCES}
        self._unpublished: deque[tuple[str, Event]] = deque()
        self._is_publishing = False
        self._object_count = 0
        if journal is not None:
            self._load(journal)
        self._oldest = dict.fromkeys(self._tables, self.version)

    def _load(self, journal: Journal) -> None:
        for resource, body, version in journal.read():
            self.version = version
            if resource in self._tables:
                table = self._tables[resource]
                if isinstance(body, list):
                    table.pop((body[0], body[1]), None)
                else:
                    table[key_of(body)] = Entry(body, orjson.dumps(body), version)
        self._object_count = sum(map(len, self._tables.values()))
        journal.rewrite(self._lines())

    def _lines(self) -> Iterator[bytes]:
        """Yield the lines of a journal: the version of the store, and resource, object and version of each entry."""
        yield b'["",[],%d]\n' % self.version
        for resource, table in self._tables.items():
            for entry in table.values():
                yield _line(resource, entry)

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    # Reading

    def get(self, resource: str, namespace: str, name: str) -> Entry | None:
        return self._tables[resource].get((namespace, name))

    def entries(self, resource: str, namespace: str = "") -> list[Entry]:
        """Return the entries of a namespace, by default of all, sorted by namespace and name."""
        table = self._tables[resource]
        if namespace:
            return [table[key] for key in sorted(key for key in table if key[0] == namespace)]
        return [table[key] for key in sorted(table)]

    def values(self, resource: str) -> list[Json]:
        """Return all objects of a resource in no order."""
        return [entry.body for entry in self._tables[resource].values()]

    # Writing

    def create(self, resource: str, body: Json) -> Entry:
        """Add an object. Raises ApiError when the name is taken."""
        key = key_of(body)
        if key in self._tables[resource]:
            raise already_exists(BY_PLURAL[resource], key[1])
        self._object_count += 1
        return self._put(resource, key, body, None)

    def update(self, resource: str, body: Json) -> Entry:
        """Replace the object of this name. An unchanged one keeps its version, without an event."""
        key = key_of(body)
        found = self._tables[resource].get(key)
        if found is None:
            raise not_found(BY_PLURAL[resource], key[1])
        if found.body == body:
            return found
        return self._put(resource, key, body, found.body)

    def _put(self, resource: str, key: Key, body: Json, previous: Json | None) -> Entry:
        self.version = version = self.version + 1
        head = BY_PLURAL[resource].head
        metadata = {**body["metadata"], "resourceVersion": str(version)}
        stored = {**head, **body, **head, "metadata": metadata}
        entry = Entry(stored, orjson.dumps(stored), version)
        if self._journal is not None:
            self._journal.append(_line(resource, entry))
        self._tables[resource][key] = entry
        self._publish(resource, Event(ADDED if previous is None else MODIFIED, entry, previous))
        return entry

    def delete(self, resource: str, namespace: str, name: str) -> Entry:
        """Remove the object at once; its last event has a version of its own."""
        found = self._tables[resource].get((namespace, name))
        if found is None:
            raise not_found(BY_PLURAL[resource], name)
        self.version = version = self.version + 1
        if self._journal is not None:
            self._journal.append(orjson.dumps([resource, [namespace, name], version]) + b"\n")
        del self._tables[resource][namespace, name]
        self._object_count -= 1
        last = {**found.body, "metadata": {**found.body["metadata"], "resourceVersion": str(version)}}
        entry = Entry(last, orjson.dumps(last), version)
        self._publish(resource, Event(DELETED, entry, found.body))
        return entry

    # Watching

    def watch(self, resource: str, handler: Callable[[Event], None]) -> Subscription:
        """Subscribe to later events. A handler may write: the other handlers still receive the events in order."""
        return Subscription(handler, self._subscriptions[resource])

    def since(self, resource: str, version: int) -> list[Event]:
        """Return the events after this version. Raises ApiError 410 when some of them have expired."""
        if version < self._oldest[resource]:
            raise too_old(version, self._oldest[resource])
        newest_first = []
        for event in reversed(self._events[resource]):
            if event.version <= version:
                break
            newest_first.append(event)
        return newest_first[::-1]

    def forget_events(self) -> None:
        """Drop all events, as a fresh watch cache does: a watch from an earlier version is answered with 410."""
        for resource, events in self._events.items():
            events.clear()
            self._oldest[resource] = self.version

    def _publish(self, resource: str, event: Event) -> None:
        events = self._events[resource]
        events.append(event)
        if len(events) > self._events_max:
            self._oldest[resource] = events.popleft().version
        if self._journal is not None and self._journal.is_long(self._object_count):
            self._journal.rewrite(self._lines())
        self._unpublished.append((resource, event))
        if self._is_publishing:
            return  # a handler writes: its event follows the one that is being handed out
        self._is_publishing = True
        try:
            while self._unpublished:
                to, event = self._unpublished.popleft()
                for subscription in tuple(self._subscriptions[to]):
                    _signal(subscription, event)
        finally:
            self._is_publishing = False


def _line(resource: str, entry: Entry) -> bytes:
    return b'["%s",%s,%d]\n' % (resource.encode(), entry.encoded, entry.version)


def _signal(subscription: Subscription, event: Event) -> None:
    try:
        subscription.handler(event)
    except Exception:
        # One broken subscriber must not hide the event from the others, nor undo the write.
        log.exception("a subscriber failed at version %d", event.version)


def key_of(body: Json) -> Key:
    metadata = body["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
