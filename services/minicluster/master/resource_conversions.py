"""What RESERVE, UNRESERVE, CREATE, DESTROY, GROW_VOLUME and SHRINK_VOLUME turn into what."""

from __future__ import annotations

from collections.abc import Callable

from services.minicluster.master.task_rules import Wanted, resource_fault
from services.minicluster.model import Agent
from services.minicluster.resources import (
    THOUSAND,
    Json,
    Kind,
    Resources,
    Value,
    add_to,
    amount,
    kind_of,
    label,
    parse_one,
)


class Refused(Exception):
    """The operation is invalid; `located` texts get the agent appended, as the master does for its own checks."""

    def __init__(self, message: str, located: bool = True) -> None:
        super().__init__(message)
        self.located = located


class Conversion:
    """`taken` leaves the resources, `given` appears instead."""

    __slots__ = ("given", "taken", "wanted")

    def __init__(self, role: str | None) -> None:
        self.taken: Resources = {}
        self.given: Resources = {}
        self.wanted = Wanted(role or "*")

    def turn(self, old: Kind, new: Kind, value: Value, role: str | None) -> None:
        add_to(self.taken, {old: value})
        add_to(self.given, {new: value})
        self.wanted.rows.append((old, value, role or ""))


def convert(type_: str, body: Json, role: str | None, roles: tuple[str, ...] | None, agent: Agent) -> Conversion:
    """`roles` is None for the operator, who is in every role. Raises Refused."""
    if type_ in ("GROW_VOLUME", "SHRINK_VOLUME"):
        return _resize(type_, body, role)
    rows = body.get("resources" if type_.endswith("RESERVE") else "volumes", [])
    fault = resource_fault(rows)
    if fault is not None:
        raise Refused(f"Invalid resources: {fault}")
    conversion = Conversion(role)
    one: dict[str, Callable[[Conversion, Kind, Value, str | None], None]] = {
        "UNRESERVE": _unreserve,
        "CREATE": _create,
        "DESTROY": _destroy,
    }
    for row in rows:
        kind, value, allocated = parse_one(row)
        allocated = allocated or role
        if allocated != role:
            conversion.wanted.foreign = True
        if type_ == "RESERVE":
            _reserve(conversion, kind, value, allocated, roles)
        else:
            if type_ == "CREATE":
                _check_volume(kind, agent)
            elif type_ == "DESTROY" and (kind.disk is None or kind not in agent.total):
                raise Refused("Persistent volumes not found")
            one[type_](conversion, kind, value, allocated)
    return conversion


def _reserve(conversion: Conversion, kind: Kind, value: Value, role: str | None, roles: tuple[str, ...] | None) -> None:
    if not kind.reservations or kind.reservations[-1]["type"] != "DYNAMIC":
        raise Refused(f"Resource {label(kind, role)}:{amount(value)} is not dynamically reserved")
    if roles is not None and kind.role not in roles:
        names = ", ".join(roles)
        raise Refused(
            f"A reserve operation was attempted for a resource allocated to role '{role}', "
            f"but the framework only has roles '{{ {names} }}'"
        )
    conversion.turn(_with(kind, reservations=kind.reservations[:-1]), kind, value, role)


def _unreserve(conversion: Conversion, kind: Kind, value: Value, role: str | None) -> None:
    shown = f"{label(kind, role)}:{amount(value)}"
    if not kind.reservations or kind.reservations[-1]["type"] != "DYNAMIC":
        raise Refused(f"Resource {shown} is not dynamically reserved")
    if kind.disk is not None:
        raise Refused(
            f"A dynamically reserved persistent volume {shown} cannot be unreserved directly. "
            "Please destroy the persistent volume first then unreserve the resource"
        )
    conversion.turn(kind, _with(kind, reservations=kind.reservations[:-1]), value, role)


def _check_volume(kind: Kind, agent: Agent) -> None:
    disk = kind.disk
    if disk is None or "persistence" not in disk:
        raise Refused("Not a persistent volume: Missing 'persistence'")
    if not kind.reservations:
        raise Refused(
            "Invalid resources: Invalid DiskInfo: Persistent volumes cannot be created from unreserved resources"
        )
    if disk.get("volume", {}).get("mode") == "RO":
        raise Refused("Not a persistent volume: Read-only persistent volume not supported")
    id_ = disk["persistence"]["id"]
    for other in agent.total:
        if other.role == kind.role and other.disk and other.disk.get("persistence", {}).get("id") == id_:
            raise Refused(f"Persistence ID '{id_}' is not unique")


def _create(conversion: Conversion, kind: Kind, value: Value, role: str | None) -> None:
    conversion.turn(_without_volume(kind), kind, value, role)


def _destroy(conversion: Conversion, kind: Kind, value: Value, role: str | None) -> None:
    conversion.turn(kind, _without_volume(kind), value, role)


def _resize(type_: str, body: Json, role: str | None) -> Conversion:
    volume, value, allocated = parse_one(body["volume"])
    conversion = Conversion(role)
    allocated = allocated or role
    if volume.disk is None or "persistence" not in volume.disk:
        raise Refused("Not a persistent volume: Missing 'persistence'")
    if type_ == "GROW_VOLUME":
        source, extra, _ = parse_one(body["addition"])
        conversion.turn(source, volume, extra, allocated)
    else:
        less = round(body["subtract"]["value"] * THOUSAND)
        if less >= value:
            raise Refused("Shrinking a volume to nothing is not possible")
        conversion.turn(volume, _without_volume(volume), less, allocated)
    # The volume itself must be there as it is named.
    add_to(conversion.taken, {volume: value})
    add_to(conversion.given, {volume: value})
    return conversion


def _without_volume(kind: Kind) -> Kind:
    disk = {key: value for key, value in (kind.disk or {}).items() if key == "source"}
    return kind_of(kind.name, kind.type, kind.reservations, disk or None, kind.revocable)


def _with(kind: Kind, reservations: tuple[Json, ...]) -> Kind:
    return kind_of(kind.name, kind.type, reservations, kind.disk, kind.revocable, kind.shared)
