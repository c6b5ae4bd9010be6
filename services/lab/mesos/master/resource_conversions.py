"""Conversions of resources by RESERVE, UNRESERVE, CREATE and DESTROY."""

from __future__ import annotations

from services.lab.mesos.master.task_rules import resource_fault
from services.lab.mesos.model import Agent
from services.lab.mesos.resources import Json, Kind, Resources, Value, add_to, amount, kind_of, label, parse_one

CONVERSIONS = ("RESERVE", "UNRESERVE", "CREATE", "DESTROY")


class Refused(Exception):
    """Invalid operation."""


class Conversion:
    """Resources that an operation replaces: `taken` by `given`."""

    __slots__ = ("given", "is_foreign", "taken")

    def __init__(self) -> None:
        self.taken: Resources = {}
        self.given: Resources = {}
        # True when a resource names another allocation role than the offer's.
        self.is_foreign = False

    def turn(self, old: Kind, new: Kind, value: Value) -> None:
        add_to(self.taken, {old: value})
        add_to(self.given, {new: value})


def convert(type_: str, body: Json, role: str | None, roles: tuple[str, ...] | None, agent: Agent) -> Conversion:
    """Compute a conversion. Raises Refused.

    `roles` are the roles of the framework, None for the operator, who may use every role.
    """
    rows = body.get("resources" if type_.endswith("RESERVE") else "volumes", [])
    fault = resource_fault(rows)
    if fault is not None:
        raise Refused(f"Invalid resources: {fault}")
    conversion = Conversion()
    for row in rows:
        kind, value, allocated = parse_one(row)
        allocated = allocated or role
        if allocated != role:
            conversion.is_foreign = True
        shown = f"{label(kind, allocated)}:{amount(value)}"
        match type_:
            case "RESERVE":
                _check_reservation(kind, shown, allocated, roles)
                conversion.turn(_strip_reservation(kind), kind, value)
            case "UNRESERVE":
                _check_unreservation(kind, shown)
                conversion.turn(kind, _strip_reservation(kind), value)
            case "CREATE":
                _check_volume(kind, agent)
                conversion.turn(_strip_volume(kind), kind, value)
            case "DESTROY":
                if kind.disk is None or kind not in agent.total:
                    raise Refused("Persistent volumes not found")
                conversion.turn(kind, _strip_volume(kind), value)
    return conversion


def _check_reservation(kind: Kind, shown: str, role: str | None, roles: tuple[str, ...] | None) -> None:
    if not kind.reservations or kind.reservations[-1]["type"] != "DYNAMIC":
        raise Refused(f"Resource {shown} is not dynamically reserved")
    if roles is not None and kind.role not in roles:
        names = ", ".join(roles)
        raise Refused(
            f"A reserve operation was attempted for a resource allocated to role '{role}', "
            f"but the framework only has roles '{{ {names} }}'"
        )


def _check_unreservation(kind: Kind, shown: str) -> None:
    _check_reservation(kind, shown, None, None)
    if kind.disk is not None:
        raise Refused(
            f"A dynamically reserved persistent volume {shown} cannot be unreserved directly. "
            "Please destroy the persistent volume first then unreserve the resource"
        )


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


def _strip_volume(kind: Kind) -> Kind:
    disk = {key: value for key, value in (kind.disk or {}).items() if key == "source"}
    return kind_of(kind.name, kind.type, kind.reservations, disk or None, kind.revocable)


def _strip_reservation(kind: Kind) -> Kind:
    """Return the kind without its last reservation."""
    return kind_of(kind.name, kind.type, kind.reservations[:-1], kind.disk, kind.revocable)
