"""Lists with selectors and pages. Each page shows the state at the first one."""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import orjson

from services.lab.kubernetes.errors import ApiError, bad_request, expired, too_large
from services.lab.kubernetes.requests import whole_number
from services.lab.kubernetes.resources import Json, Resource
from services.lab.kubernetes.selectors import Matches, by_fields, by_labels
from services.lab.kubernetes.store import Entry, Store, key_of

SNAPSHOTS_MAX = 64
"""States kept for lists that are being continued."""
SNAPSHOT_S = 300.0
"""Seconds for which a list may be continued, the interval at which an apiserver compacts its storage."""
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class Page(NamedTuple):
    entries: list[Entry]
    version: int
    token: str = ""
    remaining: int | None = None


def selection(resource: str, query: dict[str, str]) -> Matches | None:
    """Return the filter of a query; None for all objects. Raises ApiError 400."""
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    if labels and fields:
        by_label, by_field = by_labels(labels), by_fields(resource, fields)
        return lambda body: by_field(body) and by_label(body)
    if labels:
        return by_labels(labels)
    return by_fields(resource, fields) if fields else None


class Lists:
    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        """Create the lists. ``now``: monotonic seconds."""
        self._store = store
        self._now = now
        self._snapshots: OrderedDict[tuple[str, str, int], tuple[float, list[Entry]]] = OrderedDict()

    def page(self, resource: Resource, namespace: str, query: dict[str, str]) -> Page:
        """Return a page. Raises ApiError: 400, 410 for an expired state, 504 for a future version."""
        version = whole_number(query, "resourceVersion")
        token = query.get("continue", "")
        if version is not None and version > self._store.version and not token:
            raise too_large(version, self._store.version)
        if query.get("resourceVersionMatch") == "Exact" and version != self._store.version:
            raise expired(f"The resourceVersion for the provided list is too old: {version} ({self._store.version})")
        limit = whole_number(query, "limit")
        matches = selection(resource.plural, query)
        if token:
            version, entries = self._continued(resource, namespace, token)
        else:
            version, entries = self._store.version, self._store.entries(resource.plural, namespace)
        unselected = entries
        if matches is not None:
            entries = [entry for entry in entries if matches(entry.body)]
        if not limit or len(entries) <= limit:
            return Page(entries, version)
        self._keep((resource.plural, namespace, version), unselected, bool(token))
        shown = entries[:limit]
        left = len(entries) - limit if matches is None else None
        return Page(shown, version, _token(version, shown[-1].body), left)

    def _keep(self, key: tuple[str, str, int], entries: list[Entry], is_continued: bool) -> None:
        if is_continued and key in self._snapshots:
            return
        self._snapshots[key] = (self._now(), entries)
        while len(self._snapshots) > SNAPSHOTS_MAX:
            self._snapshots.popitem(last=False)

    def _continued(self, resource: Resource, namespace: str, token: str) -> tuple[int, list[Entry]]:
        version, start = _parsed(token)
        if version < 0:
            version, entries = self._store.version, self._store.entries(resource.plural, namespace)
        else:
            began_at, entries = self._snapshots.get((resource.plural, namespace, version), (-SNAPSHOT_S, []))
            if self._now() - began_at >= SNAPSHOT_S:
                raise _too_old(start)
        return version, [entry for entry in entries if key_of(entry.body) > start]

    def forget(self) -> None:
        """Expire all lists that are being continued."""
        self._snapshots.clear()


def _too_old(start: tuple[str, str]) -> ApiError:
    error = expired(_TOO_OLD)
    error.continue_token = _encoded(-1, start)
    return error


def _token(version: int, last: Json) -> str:
    return _encoded(version, key_of(last))


def _encoded(version: int, start: tuple[str, str]) -> str:
    raw = orjson.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": "/".join(start)})
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _parsed(token: str) -> tuple[int, tuple[str, str]]:
    try:
        raw = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        namespace, _, name = str(raw["start"]).partition("/")
        return int(raw["rv"]), (namespace, name)
    except (ValueError, KeyError, TypeError):
        raise bad_request("continue key is not valid: it was not given by a list") from None
