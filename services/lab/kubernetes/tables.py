"""Tables that `kubectl get` prints: a few columns of the kinds that people look at, and the age of all others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from services.lab.kubernetes.pods import is_ready
from services.lab.kubernetes.resources import Json, Resource
from services.lab.kubernetes.times import seconds_of

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def age(moment: str | None, now_s: float) -> str:
    """Return the age in whole units, of which there are at least two unless it is short."""
    seconds = max(0, int(now_s - seconds_of(moment))) if moment else 0
    unit, name = next((one for one in _UNITS if seconds >= 2 * one[0]), _UNITS[-1])
    return f"{seconds // unit}{name}"


def _pod(body: Json) -> list[Any]:
    status, containers = body["status"], body["status"].get("containerStatuses") or []
    text = status.get("reason") or status.get("phase")
    for one in containers:
        state = one.get("state") or {}
        text = (state.get("waiting") or state.get("terminated") or {}).get("reason") or text
    if "deletionTimestamp" in body["metadata"]:
        text = "Terminating"
    ready = f"{sum(bool(one.get('ready')) for one in containers)}/{len(body['spec']['containers'])}"
    node = body["spec"].get("nodeName") or "<none>"
    return [ready, text, sum(one.get("restartCount", 0) for one in containers), node]


def _node(body: Json) -> list[Any]:
    is_cordoned = (body.get("spec") or {}).get("unschedulable")
    return [("Ready" if is_ready(body) else "NotReady") + (",SchedulingDisabled" if is_cordoned else "")]


def _deployment(body: Json) -> list[Any]:
    spec, status = body["spec"], body["status"]
    return [f"{status.get('readyReplicas', 0)}/{spec['replicas']}", status.get("updatedReplicas", 0)]


def _job(body: Json) -> list[Any]:
    status = body["status"]
    ended = [one["type"] for one in status.get("conditions") or ()]
    return [*(ended or ["Running"]), f"{status.get('succeeded', 0)}/{body['spec']['completions']}"]


_COLUMNS: dict[str, tuple[tuple[str, ...], Callable[[Json], list[Any]]]] = {
    "pods": (("Ready", "Status", "Restarts", "Node"), _pod),
    "nodes": (("Status",), _node),
    "deployments": (("Ready", "Up-to-date"), _deployment),
    "jobs": (("Status", "Completions"), _job),
    "events": (("Type", "Reason", "Message"), lambda body: [body.get(key) for key in ("type", "reason", "message")]),
}


class Table:
    """Table of one list or one watch, which has its column names in the first answer only."""

    def __init__(self, resource: Resource, included: str) -> None:
        """Create the table. ``included``: whether a row has None of its object, its Metadata or the whole Object."""
        self._columns, self._cells = _COLUMNS.get(resource.plural, ((), lambda body: []))
        self._included = included
        self._is_first = True

    def rows(self, bodies: list[Json], metadata: Json) -> Json:
        names = ("Name", *self._columns, "Age") if self._is_first else ()
        columns = [{"name": name, "type": "string", "format": "", "description": "", "priority": 0} for name in names]
        self._is_first = False
        now_s = time.time()
        rows = [self._row(body, now_s) for body in bodies]
        head = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        return {**head, "columnDefinitions": columns or None, "rows": rows}

    def _row(self, body: Json, now_s: float) -> Json:
        metadata = body["metadata"]
        cells = [metadata.get("name", ""), *self._cells(body), age(metadata.get("creationTimestamp"), now_s)]
        partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        return {"cells": cells, "object": {"Object": body, "None": None}.get(self._included, partial)}


def table_of(accept: str, resource: Resource, query: dict[str, str]) -> Table | None:
    """Return the table that the client prefers; None for objects."""
    return Table(resource, query.get("includeObject", "Metadata")) if "as=Table" in accept else None
