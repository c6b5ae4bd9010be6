"""Conversion of problems, host events and host resources to v0 messages."""

from __future__ import annotations

from collections.abc import Iterable

from peloton.api.convert_time import rfc3339, rfc3339_seconds
from peloton.api.v0.host import host_pb2
from peloton.api.v0.overview import overview_pb2
from peloton.errors import InvalidArgument
from peloton.model.host_event import HostEvent, HostEventKind
from peloton.model.problem import Problem
from peloton.model.resources import Resources

_EVENT_PREFIX = "HOST_EVENT_KIND_"


def problem_to_wire(problem: Problem) -> overview_pb2.Problem:
    return overview_pb2.Problem(
        severity=problem.severity.value,  # type: ignore[arg-type]
        text=problem.text,
        subject_kind=problem.subject_kind.value,  # type: ignore[arg-type]
        subject_id=problem.subject_id,
        cluster=problem.cluster,
        since=rfc3339_seconds(problem.since_ns),
        command=problem.command,
    )


def host_event_to_wire(event: HostEvent) -> overview_pb2.HostEvent:
    return overview_pb2.HostEvent(
        number=event.seq,
        hostname=event.hostname,
        cluster=event.cluster,
        kind=overview_pb2.HostEventKind.Value(f"{_EVENT_PREFIX}{event.kind}"),
        text=event.text,
        time=rfc3339(event.at_ns),
        until=rfc3339(event.until_ns),
    )


def host_event_kinds(numbers: Iterable[int]) -> list[HostEventKind]:
    """Convert numbers to kinds. Raises InvalidArgument for an unknown one."""
    found = []
    for number in numbers:
        name = overview_pb2.HostEventKind.DESCRIPTOR.values_by_number.get(number)
        if not number or name is None:
            raise InvalidArgument(f"host event kind {number} is not known: want 1 to {len(HostEventKind)}")
        found.append(HostEventKind(name.name.removeprefix(_EVENT_PREFIX)))
    return found


def host_amounts(resources: Resources) -> host_pb2.HostAmounts:
    return host_pb2.HostAmounts(
        cpu=resources.cpu_milli / 1000,
        memory_mib=resources.memory_mib,
        disk_mib=resources.disk_mib,
        gpu=resources.gpu_milli / 1000,
        extended=dict(resources.extended),
    )
