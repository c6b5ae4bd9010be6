"""Tables that `kubectl get` prints, with a row for each object."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from services.lab.kubernetes.pod_rows import NONE, pod_cells
from services.lab.kubernetes.resources import Json, Resource
from services.lab.kubernetes.times import seconds_of

UNKNOWN = "<unknown>"
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400
_ROLE = "node-role.kubernetes.io/"


def age(moment: str | None, now_s: float) -> str:
    """Return the age in its two largest units."""
    if not moment:
        return UNKNOWN
    seconds = max(0, int(now_s - seconds_of(moment)))
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    if seconds < 3 * _HOUR:
        return _two(seconds, _MINUTE, "m", 1, "s", 10)
    if seconds < 2 * _DAY:
        return _two(seconds, _HOUR, "h", _MINUTE, "m", 8)
    if seconds < 2 * _YEAR:
        return _two(seconds, _DAY, "d", _HOUR, "h", 8)
    return _two(seconds, _YEAR, "y", _DAY, "d", 8)


def _two(seconds: int, unit: int, name: str, smaller: int, its_name: str, until: int) -> str:
    """Return two units; the smaller one only below ``until`` of the larger."""
    whole, rest = divmod(seconds, unit)
    rest //= smaller
    return f"{whole}{name}{rest}{its_name}" if whole < until and rest else f"{whole}{name}"


Cells = Callable[[Json, float], list[Any]]  # of an object, at a time


class Columns(NamedTuple):
    """Columns of a kind. A name that begins with ``+`` is shown with ``-o wide``; ``cells`` follow the object's
    name.
    """

    names: tuple[str, ...]
    cells: Cells


def _created(body: Json, now_s: float) -> str:
    return age(body["metadata"].get("creationTimestamp"), now_s)


def _node_cells(body: Json, now_s: float) -> list[Any]:
    status = body.get("status") or {}
    ready = [one for one in status.get("conditions") or () if one["type"] == "Ready"]
    text = "Unknown" if not ready else "Ready" if ready[0]["status"] == "True" else "NotReady"
    if (body.get("spec") or {}).get("unschedulable"):
        text += ",SchedulingDisabled"
    labels = body["metadata"].get("labels") or {}
    roles = ",".join(sorted(key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)))
    addresses = {one["type"]: one["address"] for one in status.get("addresses") or ()}
    info = status.get("nodeInfo") or {}
    return [
        text,
        roles or NONE,
        _created(body, now_s),
        info.get("kubeletVersion") or "",
        addresses.get("InternalIP") or NONE,
        addresses.get("ExternalIP") or NONE,
        info.get("osImage") or UNKNOWN,
        info.get("kernelVersion") or UNKNOWN,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _budget_cells(body: Json, now_s: float) -> list[Any]:
    spec, status = body.get("spec") or {}, body.get("status") or {}
    bounds = [str(spec[field]) if field in spec else "N/A" for field in ("minAvailable", "maxUnavailable")]
    return [*bounds, status.get("disruptionsAllowed", 0), _created(body, now_s)]


def _quota_cells(body: Json, now_s: float) -> list[Any]:
    status = body.get("status") or {}
    used, hard = status.get("used") or {}, status.get("hard") or {}
    texts = {kind: f"{kind}: {used.get(kind, '0')}/{hard[kind]}" for kind in sorted(hard)}
    requests = ", ".join(text for kind, text in texts.items() if not kind.startswith("limits."))
    limits = ", ".join(text for kind, text in texts.items() if kind.startswith("limits."))
    return [requests, limits, _created(body, now_s)]


def _event_cells(body: Json, now_s: float) -> list[Any]:
    about = body.get("involvedObject") or {}
    seen = body.get("lastTimestamp") or body.get("eventTime") or body["metadata"].get("creationTimestamp")
    return [
        age(seen, now_s),
        body.get("type") or "",
        body.get("reason") or "",
        f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
        str(body.get("message") or "").strip(),
    ]


def _class_cells(body: Json, now_s: float) -> list[Any]:
    is_default = "true" if body.get("globalDefault") else "false"
    return [body.get("value", 0), is_default, _created(body, now_s), body.get("preemptionPolicy") or ""]


_COLUMNS: dict[str, Columns] = {
    "pods": Columns(
        ("Ready", "Status", "Restarts", "Age", "+IP", "+Node", "+Nominated Node", "+Readiness Gates"),
        lambda body, now_s: pod_cells(body, _created(body, now_s), lambda moment: age(moment, now_s)),
    ),
    "nodes": Columns(
        (
            "Status", "Roles", "Age", "Version", "+Internal-IP", "+External-IP", "+OS-Image", "+Kernel-Version",
            "+Container-Runtime",
        ),
        _node_cells,
    ),
    "namespaces": Columns(
        ("Status", "Age"),
        lambda body, now_s: [(body.get("status") or {}).get("phase") or "", _created(body, now_s)],
    ),
    "poddisruptionbudgets": Columns(
        ("Min Available", "Max Unavailable", "Allowed Disruptions", "Age"), _budget_cells
    ),
    "resourcequotas": Columns(("Request", "Limit", "Age"), _quota_cells),
    "leases": Columns(
        ("Holder", "Age"),
        lambda body, now_s: [(body.get("spec") or {}).get("holderIdentity") or "", _created(body, now_s)],
    ),
    "priorityclasses": Columns(("Value", "Global-Default", "Age", "PreemptionPolicy"), _class_cells),
    "configmaps": Columns(
        ("Data", "Age"), lambda body, now_s: [len(body.get("data") or {}), _created(body, now_s)]
    ),
    "secrets": Columns(
        ("Type", "Data", "Age"),
        lambda body, now_s: [body.get("type") or "Opaque", len(body.get("data") or {}), _created(body, now_s)],
    ),
    "events": Columns(("Last Seen", "Type", "Reason", "Object", "Message"), _event_cells),
}  # fmt: skip
_OTHERS = Columns(("Age",), lambda body, now_s: [_created(body, now_s)])


class Table:
    """Table of one list or one watch, which has its column names in the first row only."""

    content_type = "application/json;as=Table;g=meta.k8s.io;v=v1"

    def __init__(self, resource: Resource, included: str) -> None:
        """Create the table. ``included``: whether a row has None of its object, its Metadata or the whole Object."""
        self._columns = _COLUMNS.get(resource.plural, _OTHERS)
        self._has_name = resource.plural != "events"
        self._included = included
        self._is_first = True

    def one(self, body: Json) -> Json:
        return self.many([body], {"resourceVersion": body["metadata"].get("resourceVersion", "")})

    def many(self, bodies: list[Json], metadata: Json) -> Json:
        now_s = time.time()
        columns = self._definitions() if self._is_first else None
        self._is_first = False
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": columns,
            "rows": [self._row(body, now_s) for body in bodies],
        }

    def _definitions(self) -> list[Json]:
        names = (("Name",) if self._has_name else ()) + self._columns.names
        return [
            {
                "name": name.removeprefix("+"),
                "type": "string",
                "format": "name" if name == "Name" else "",
                "description": "",
                "priority": int(name.startswith("+")),
            }
            for name in names
        ]

    def _row(self, body: Json, now_s: float) -> Json:
        name = [body["metadata"].get("name", "")] if self._has_name else []
        row: Json = {"cells": [*name, *self._columns.cells(body, now_s)]}
        if self._included == "Object":
            row["object"] = body
        elif self._included != "None":
            row["object"] = {
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": body["metadata"],
            }  # fmt: skip
        return row
