"""Other representations of an object: its metadata alone, or a row of a table."""

from __future__ import annotations

from typing import Protocol

from services.lab.kubernetes.event_forms import EventForm
from services.lab.kubernetes.resources import EVENTS_V1, Json, Resource
from services.lab.kubernetes.tables import Table


class Shape(Protocol):
    """Representation that a client has requested; each list and each watch has its own."""

    content_type: str

    def one(self, body: Json) -> Json: ...

    def many(self, bodies: list[Json], metadata: Json) -> Json: ...


class MetadataOnly:
    content_type = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

    def one(self, body: Json) -> Json:
        return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": body["metadata"]}

    def many(self, bodies: list[Json], metadata: Json) -> Json:
        items = [self.one(body) for body in bodies]
        return {
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items,
        }  # fmt: skip


def shape_of(accept: str, resource: Resource, query: dict[str, str]) -> Shape | None:
    """Return the requested representation; None for stored objects."""
    own = EventForm() if resource is EVENTS_V1 else None
    if "as=" not in accept:
        return own
    for wanted in accept.split(","):
        if "json" not in wanted:
            continue
        if "as=PartialObjectMetadata" in wanted:
            return MetadataOnly()
        if "as=Table" in wanted:
            return Table(resource, query.get("includeObject", "Metadata"))
        if "as=" not in wanted:
            return own
    return own
