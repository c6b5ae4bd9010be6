"""Conversion of reasons between the model and the private messages of roles, which name their fields alike."""

from __future__ import annotations

from collections.abc import Iterable
from enum import EnumType
from typing import Any, get_args, get_origin

from peloton.api.private import reason_pb2 as pb
from peloton.model.field_types import field_types
from peloton.model.reason import ClusterReason, Infeasible, PlacementReason, QosReason, RefusingHosts, RequeueReason
from peloton.model.resources import Resources, to_extended

_MISFIT = "misfit"
"""Field whose own fields are the ones of the message around it."""


def refusing_to_wire(hosts: Iterable[RefusingHosts]) -> list[pb.RefusingHosts]:
    return [pb.RefusingHosts(**_fields_of(one)) for one in hosts]


def refusing_from_wire(hosts: Iterable[pb.RefusingHosts]) -> tuple[RefusingHosts, ...]:
    return tuple(_from_wire(RefusingHosts, one) for one in hosts)


def infeasible_to_wire(one: Infeasible) -> pb.Infeasible:
    return pb.Infeasible(**_fields_of(one))


def infeasible_from_wire(wire: pb.Infeasible) -> Infeasible:
    found: Infeasible = _from_wire(Infeasible, wire)
    return found


def placement_to_wire(reason: PlacementReason) -> list[pb.ClusterReason]:
    return [pb.ClusterReason(**_fields_of(one)) for one in reason]


def placement_from_wire(wire: Iterable[pb.ClusterReason]) -> PlacementReason:
    return tuple(_from_wire(ClusterReason, one) for one in wire)


def requeue_to_wire(reason: RequeueReason) -> pb.RequeueReason:
    given = _fields_of(reason)
    return pb.RequeueReason(**{**given, "infeasible": [{"clusters": clusters} for clusters in given["infeasible"]]})


def requeue_from_wire(wire: pb.RequeueReason) -> RequeueReason:
    found: RequeueReason = _from_wire(RequeueReason, wire)
    return found


def qos_to_wire(reason: QosReason) -> pb.QosReason:
    return pb.QosReason(**_fields_of(reason))


def qos_from_wire(wire: pb.QosReason) -> QosReason:
    found: QosReason = _from_wire(QosReason, wire)
    return found


def _fields_of(value: Any) -> Any:
    """Return what the constructor of a message takes for a value of the model."""
    if isinstance(value, Resources):
        names = ("cpu_milli", "memory_mib", "disk_mib", "gpu_milli")
        return {**dict(zip(names, value, strict=True)), "extended": dict(value.extended)}
    if isinstance(value, tuple):
        return [_fields_of(one) for one in value]
    kind: Any = type(value)
    types = field_types(kind)
    if not types:
        return value
    found = {name: _fields_of(getattr(value, name)) for name in types}
    return {**found.pop(_MISFIT, {}), **found}


def _from_wire(kind: Any, wire: Any) -> Any:
    """Build a value of a type of the model, which has the fields of a message."""
    if kind is Resources:
        return Resources(wire.cpu_milli, wire.memory_mib, wire.disk_mib, wire.gpu_milli, to_extended(wire.extended))
    if types := field_types(kind):
        given = (wire if name == _MISFIT else getattr(wire, name) for name in types)
        return kind(*map(_from_wire, types.values(), given))
    if get_origin(kind) is tuple:
        each = wire.clusters if isinstance(wire, pb.Infeasibility) else wire
        return tuple([_from_wire(get_args(kind)[0], one) for one in each])
    return kind(wire) if isinstance(kind, EnumType) else wire
