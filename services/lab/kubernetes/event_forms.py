"""Two forms of events: the core form, in which they are stored, and that of events.k8s.io."""

from __future__ import annotations

from services.lab.kubernetes.resources import EVENTS, EVENTS_V1, Json, Resource

_FROM_CORE = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_TO_CORE = {new: old for old, new in _FROM_CORE.items()}


def stored_form(resource: Resource, body: Json) -> Json:
    """Return the stored form of a body that was sent to the path of this resource."""
    if resource is not EVENTS_V1:
        return body
    return _renamed(body, _TO_CORE, EVENTS.api_version)


class EventForm:
    """The shape of events on the path of events.k8s.io."""

    content_type = "application/json"

    def one(self, body: Json) -> Json:
        return _renamed(body, _FROM_CORE, EVENTS_V1.api_version)

    def many(self, bodies: list[Json], metadata: Json) -> Json:
        items = [self.one(body) for body in bodies]
        return {"kind": "EventList", "apiVersion": EVENTS_V1.api_version, "metadata": metadata, "items": items}


def _renamed(body: Json, names: dict[str, str], api_version: str) -> Json:
    return {names.get(key, key): value for key, value in body.items()} | {"apiVersion": api_version}
