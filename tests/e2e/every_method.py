"""Requests of all methods of the API for an object of one kind or another, filled by the names of their fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from peloton.access.caller import Role
from peloton.access.rules import Needs
from peloton.access.table import RULES
from peloton.api.service_names import list_methods
from services.access.methods import first_name, request_class

DEPTH_MAX = 3


@dataclass(frozen=True)
class Place:
    """A pool and a job in it, which requests name."""

    path: str
    pool_id: str
    job_id: str
    job_name: str
    host: str
    instance_id: int = 0

    @property
    def pod_name(self) -> str:
        return f"{self.job_id}-{self.instance_id}"

    def texts(self) -> Mapping[str, str]:
        """Return values of fields by their names, without underscores."""
        jobs = dict.fromkeys(("jobid", "jobids"), self.job_id)
        names = dict.fromkeys(("name", "names", "jobname", "text", "keywords", "query"), self.job_name)
        pools = dict.fromkeys(("path", "paths", "pool", "poolpath"), self.path)
        return {**jobs, **names, **pools, "podname": self.pod_name, "hostname": self.host}

    def objects(self) -> Mapping[str, str]:
        """Return values of messages with one field by their types."""
        return {
            "JobID": self.job_id,
            "PodName": self.pod_name,
            "PodID": f"{self.pod_name}-1",
            "ResourcePoolID": self.pool_id,
            "ResourcePoolPath": self.path,
        }


def list_public(changes: bool = False) -> Iterator[str]:
    """Yield the paths of all public methods that readers may call, or of those that they may not, by all names of their
    services."""
    for path, method in list_methods():
        rule = RULES[first_name(path)]
        if rule.needs is Needs.ROLE and (rule.role is not Role.READER) == changes and not method.client_streaming:
            yield f"/{path}"


def make_request(path: str, place: Place) -> Message:
    """Return a request of a method that names the objects of a place in all fields that may do so."""
    request = request_class(path)()
    _fill(request, place, 0)
    return request


def _fill(message: Message, place: Place, depth: int) -> None:
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None:
            _fill_message(message, field, place, depth)
        elif field.name in ("instanceId", "instance_id"):
            setattr(message, field.name, place.instance_id)
        elif field.type == FieldDescriptor.TYPE_STRING:
            text = place.texts().get(field.name.lower().replace("_", ""), "")
            if text and field.is_repeated:
                getattr(message, field.name).append(text)
            elif text:
                setattr(message, field.name, text)


def _fill_message(message: Message, field: Any, place: Place, depth: int) -> None:
    assert field.message_type is not None
    text = place.objects().get(field.message_type.name, "")
    is_filter = field.message_type.name.endswith(("Filter", "Query", "QuerySpec"))
    if field.message_type.GetOptions().map_entry or (not text and not (is_filter and depth < DEPTH_MAX)):
        return
    value: Any = getattr(message, field.name)
    one = value.add() if field.is_repeated else value
    if text:
        one.value = text
    else:
        one.SetInParent()
        _fill(one, place, depth + 1)
