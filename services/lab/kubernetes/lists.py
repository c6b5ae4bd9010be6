"""Lists with selectors and pages. Each page shows the state at the first one."""

from __future__ import annotations

from collections import OrderedDict
from itertools import count
from typing import NamedTuple

from services.lab.kubernetes.errors import bad_request, resource_expired, too_large
from services.lab.kubernetes.requests import whole_number
from services.lab.kubernetes.resources import Resource
from services.lab.kubernetes.selectors import Matches, by_fields, by_labels
from services.lab.kubernetes.store import Entry, Store

SNAPSHOTS_MAX = 64
"""States kept for lists that are being continued."""
_TOO_OLD = "The provided continue parameter is too old to display a consistent list result. You can start a new list."


class Page(NamedTuple):
    entries: list[Entry]
    version: int
    token: str = ""
    remaining: int | None = None


class Snapshot(NamedTuple):
    """Entries of a list that is being continued."""

    entries: list[Entry]
    version: int
    is_selected: bool


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
    def __init__(self, store: Store) -> None:
        self._store = store
        self._snapshots: OrderedDict[str, Snapshot] = OrderedDict()
        self._names = count(1)

    def page(self, resource: Resource, namespace: str, query: dict[str, str]) -> Page:
        """Return a page. Raises ApiError: 400, 410 for an expired state, 504 for a future version."""
        limit, token = whole_number(query, "limit"), query.get("continue", "")
        if token:
            name, _, offset = token.partition(".")
            if not offset.isdigit():
                raise bad_request("continue key is not valid: it was not given by a list")
            found = self._snapshots.get(name)
            if found is None:
                raise resource_expired(_TOO_OLD)
            return self._page(name, found, int(offset), limit)
        version = whole_number(query, "resourceVersion")
        if version is not None and version > self._store.version:
            raise too_large(version, self._store.version)
        matches = selection(resource.plural, query)
        entries = self._store.entries(resource.plural, namespace)
        if matches is not None:
            entries = [entry for entry in entries if matches(entry.body)]
        return self._page("", Snapshot(entries, self._store.version, matches is not None), 0, limit)

    def _page(self, name: str, snapshot: Snapshot, offset: int, limit: int | None) -> Page:
        entries, version, is_selected = snapshot
        end = offset + limit if limit else len(entries)
        if end >= len(entries):
            return Page(entries[offset:], version)
        if not name:
            name = str(next(self._names))
            self._snapshots[name] = snapshot
            while len(self._snapshots) > SNAPSHOTS_MAX:
                self._snapshots.popitem(last=False)
        return Page(entries[offset:end], version, f"{name}.{end}", None if is_selected else len(entries) - end)

    def forget(self) -> None:
        """Expire all lists that are being continued."""
        self._snapshots.clear()
