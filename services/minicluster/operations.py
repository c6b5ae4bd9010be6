"""RESERVE, UNRESERVE, CREATE, DESTROY, GROW_VOLUME, SHRINK_VOLUME: what they turn into what, and their statuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from services.minicluster import events
from services.minicluster.accept import Acceptance
from services.minicluster.allocator import DEFAULT_REFUSE_S
from services.minicluster.model import Agent, Framework, Operation
from services.minicluster.resources import (
    PORTS,
    THOUSAND,
    Json,
    Kind,
    Resources,
    Value,
    add_to,
    amount,
    contains,
    kind_of,
    label,
    parse_one,
    take_from,
    taken,
    text,
)
from services.minicluster.tasks import Wanted, resource_fault
from services.minicluster.updates import fresh_uuid
from services.minicluster.views import total as total_in_order

if TYPE_CHECKING:
    from services.minicluster.master import Master

_FIELDS = {
    "RESERVE": "reserve",
    "UNRESERVE": "unreserve",
    "CREATE": "create",
    "DESTROY": "destroy",
    "GROW_VOLUME": "grow_volume",
    "SHRINK_VOLUME": "shrink_volume",
}


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


class Operations:
    def __init__(self, master: Master) -> None:
        self._master = master
        self._clock = master.clock
        self._offers = master.offers

    # from ACCEPT

    def apply(self, acceptance: Acceptance, operation: Json) -> None:
        """Silent without an id; with one, an error comes once from the master, success until acknowledged."""
        field = _FIELDS.get(operation["type"])
        if field is None or field not in operation:
            return
        framework, agent = acceptance.framework, acceptance.agent
        try:
            conversion = convert(operation["type"], operation[field], acceptance.role, framework.roles, agent)
            if not conversion.wanted.fits(acceptance.left) or not contains(acceptance.left, conversion.taken):
                have = text(acceptance.left, acceptance.role)
                raise Refused(f"{have} does not contain {conversion.wanted.text()}", located=False)
        except Refused as error:
            if "id" in operation:
                message = str(error)
                if error.located:
                    message += f"; on agent {agent.id} at {agent.pid} ({agent.spec.name})"
                status = {"operation_id": operation["id"], "state": "OPERATION_ERROR", "message": message}
                framework.send(events.operation_status(status))
            return
        take_from(acceptance.left, conversion.taken)
        add_to(acceptance.left, conversion.given)
        # Kept in the agent's order, so that texts and later offers list the resources as the master does.
        self._change_total(agent, conversion, agent.free)
        acceptance.left = {kind: acceptance.left[kind] for kind in agent.total if kind in acceptance.left}
        if "id" in operation:
            item = Operation(operation["id"]["value"], framework, agent, operation, fresh_uuid())
            self._track(framework, item)

    def _change_total(self, agent: Agent, conversion: Conversion, free: Resources) -> None:
        total = taken(agent.total, conversion.taken)
        add_to(total, conversion.given)
        ordered = sorted(total, key=lambda kind: 0 if kind is PORTS else 1 if kind.reservations else 2)
        self._offers.set_total(agent, {kind: total[kind] for kind in ordered}, free)

    def change(self, agent: Agent, type_: str, body: Json) -> tuple[int, str]:
        """The operator API's form: (status, text). Offers that hold what is needed are rescinded first."""
        try:
            conversion = convert(type_, body, None, None, agent)
        except Refused as error:
            where = f"{agent.id} at {agent.pid} ({agent.spec.name})"
            return 400, f"Invalid {type_} operation on agent {where}: {error}"
        for offer in list((agent.offers or {}).values()):
            if contains(agent.free, conversion.taken):
                break
            # A short refusal, so that the operator wins the race against the next allocation.
            self._offers.rescind(offer)
            self._offers.refuse(offer.framework, agent, offer.role, offer.resources, DEFAULT_REFUSE_S)
        if not contains(agent.free, conversion.taken):
            return 409, f"{text(total_in_order(agent))} does not contain {text(conversion.taken)}"
        free = taken(agent.free, conversion.taken)
        add_to(free, conversion.given)
        self._change_total(agent, conversion, free)
        return 202, ""

    # statuses

    def _track(self, framework: Framework, item: Operation) -> None:
        # Keyed by uuid: an operation id may be used again while an older status is still unacknowledged.
        framework.operations[item.uuid] = item
        self._deliver(item, self._master.settings.update_retry_s)

    def _deliver(self, item: Operation, wait_s: float) -> None:
        item.framework.send(events.operation_status(status_of(item)))
        if item.retry is not None:
            item.retry.cancel()
        item.retry = self._clock.call_later(wait_s, self._again, item, wait_s)

    def _again(self, item: Operation, waited_s: float) -> None:
        if item.uuid in item.framework.operations:
            self._deliver(item, min(waited_s * 2, self._master.settings.update_retry_max_s))

    def resend(self, item: Operation) -> None:
        self._deliver(item, self._master.settings.update_retry_s)

    def acknowledge(self, framework: Framework, body: Json) -> None:
        item = framework.operations.get(body["uuid"])
        if item is not None and item.id == body["operation_id"]["value"]:
            del framework.operations[item.uuid]
            if item.retry is not None:
                item.retry.cancel()

    def drop(self, framework: Framework) -> None:
        for item in framework.operations.values():
            if item.retry is not None:
                item.retry.cancel()
        framework.operations.clear()

    def reconcile(self, framework: Framework, body: Json) -> None:
        asked = body.get("operations")
        known: dict[str, Operation] = {}
        for item in framework.operations.values():
            known.setdefault(item.id, item)
        if not asked:
            for item in known.values():
                status = {key: value for key, value in status_of(item).items() if key != "uuid"}
                framework.send(events.operation_status(status))
            return
        for entry in asked:
            found = known.get(entry["operation_id"]["value"])
            if found is not None:
                status = {key: value for key, value in status_of(found).items() if key != "uuid"}
            else:
                status = self._unknown(entry)
            framework.send(events.operation_status(status))

    def _unknown(self, entry: Json) -> Json:
        agent_id = entry.get("agent_id")
        if agent_id is None:
            message = "Reconciliation: Operation is unknown and no 'agent_id' was provided"
        elif agent_id["value"] in self._master.agents.known:
            message = "Reconciliation: Operation is unknown"
        else:
            message = "Reconciliation: Both operation and agent are unknown"
        status: Json = {
            "operation_id": entry["operation_id"],
            "state": "OPERATION_UNKNOWN",
            "message": message,
        }
        if agent_id is not None:
            status["agent_id"] = agent_id
        return status


def status_of(item: Operation) -> Json:
    return {
        "operation_id": {"value": item.id},
        "state": item.state,
        "uuid": {"value": item.uuid},
        "agent_id": {"value": item.agent.id},
    }


# Conversions: `roles` is None for the operator, who is in every role.


def convert(type_: str, body: Json, role: str | None, roles: tuple[str, ...] | None, agent: Agent) -> Conversion:
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
