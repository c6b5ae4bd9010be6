"""Operations on resources by frameworks and operators, and their statuses, which are sent until acknowledged."""

from __future__ import annotations

from services.lab.mesos.master import scheduler_events
from services.lab.mesos.master.allocation import DEFAULT_REFUSE_S
from services.lab.mesos.master.hooks import Hook
from services.lab.mesos.master.offers import Offers
from services.lab.mesos.master.registry import Registry
from services.lab.mesos.master.resource_conversions import Conversion, Refused, convert
from services.lab.mesos.master.status_updates import RETRY_MAX_S, fresh_uuid
from services.lab.mesos.model import Acceptance, Agent, Framework, Operation
from services.lab.mesos.resources import (
    PORTS,
    Json,
    Resources,
    add_to,
    contains,
    in_listing_order,
    take_from,
    taken,
    text,
)
from services.lab.shared.clock import Clock

_EMULATED = ("RESERVE", "UNRESERVE", "CREATE", "DESTROY", "GROW_VOLUME")


class Operations:
    def __init__(self, retry_s: float, clock: Clock, registry: Registry, offers: Offers) -> None:
        self._retry_s = retry_s
        self._clock = clock
        self._registry = registry
        self._offers = offers
        # Fired when an agent's resources have changed.
        self.changed: Hook[Agent] = Hook()

    # from ACCEPT

    def apply(self, acceptance: Acceptance, operation: Json) -> None:
        """Apply an operation: silent without an id; with one, an error is sent once, success until acknowledged."""
        type_ = operation["type"]
        framework, agent = acceptance.framework, acceptance.agent
        try:
            if type_ not in _EMULATED:
                raise Refused(f"{type_} is not emulated", located=False)
            if type_.lower() not in operation:
                raise Refused(f"Expecting '{type_.lower()}' to be present", located=False)
            conversion = convert(type_, operation[type_.lower()], acceptance.role, framework.roles, agent)
            if not conversion.wanted.fits(acceptance.left) or not contains(acceptance.left, conversion.taken):
                have = text(acceptance.left, acceptance.role)
                raise Refused(f"{have} does not contain {conversion.wanted.text()}", located=False)
        except Refused as error:
            if "id" in operation:
                message = str(error)
                if error.located:
                    message += f"; on agent {agent.id} at {agent.pid} ({agent.spec.name})"
                framework.send(scheduler_events.operation_error(operation["id"], message))
            return
        take_from(acceptance.left, conversion.taken)
        add_to(acceptance.left, conversion.given)
        # Kept in the agent's order, so that texts and later offers list the resources like the master.
        self._change_total(agent, conversion, agent.free)
        acceptance.left = {kind: acceptance.left[kind] for kind in agent.total if kind in acceptance.left}
        if "id" in operation:
            item = Operation(operation["id"]["value"], framework, agent, operation, fresh_uuid())
            framework.operations[item.uuid] = item
            self._deliver(item, self._retry_s)

    def _change_total(self, agent: Agent, conversion: Conversion, free: Resources) -> None:
        total = taken(agent.total, conversion.taken)
        add_to(total, conversion.given)
        ordered = sorted(total, key=lambda kind: 0 if kind is PORTS else 1 if kind.reservations else 2)
        self._offers.set_total(agent, {kind: total[kind] for kind in ordered}, free)
        self.changed(agent)

    def change(self, agent: Agent, type_: str, body: Json) -> tuple[int, str]:
        """Apply the operator API's form; returns (status, text). Offers with the required resources are rescinded
        first."""
        try:
            conversion = convert(type_, body, None, None, agent)
        except Refused as error:
            where = f"{agent.id} at {agent.pid} ({agent.spec.name})"
            return 400, f"Invalid {type_} operation on agent {where}: {error}"
        for offer in agent.all_offers:
            if contains(agent.free, conversion.taken):
                break
            # The framework refuses it for a while, so that the operator wins the race against the next allocation.
            self._offers.rescind(offer)
            self._offers.refuse(offer.framework, agent, offer.role, offer.resources, DEFAULT_REFUSE_S)
        if not contains(agent.free, conversion.taken):
            return 409, f"{text(in_listing_order(agent.total))} does not contain {text(conversion.taken)}"
        free = taken(agent.free, conversion.taken)
        add_to(free, conversion.given)
        self._change_total(agent, conversion, free)
        return 202, ""

    # statuses

    def _deliver(self, item: Operation, wait_s: float) -> None:
        item.framework.send(scheduler_events.operation_status(scheduler_events.status_of_operation(item)))
        if item.retry is not None:
            item.retry.cancel()
        item.retry = self._clock.call_later(wait_s, self._retry_delivery, item, wait_s)

    def _retry_delivery(self, item: Operation, waited_s: float) -> None:
        if item.uuid in item.framework.operations:
            self._deliver(item, min(waited_s * 2, RETRY_MAX_S))

    def resend_all(self, framework: Framework) -> None:
        """Send pending statuses again after the framework has returned."""
        for item in list(framework.operations.values()):
            self._deliver(item, self._retry_s)

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
        """Send the statuses of the operations in the call, or of all if it names none."""
        known: dict[str, Json] = {}
        for item in framework.operations.values():
            # Without the uuid: the framework does not acknowledge answers.
            status = scheduler_events.status_of_operation(item)
            known.setdefault(item.id, {key: value for key, value in status.items() if key != "uuid"})
        asked = body.get("operations")
        answers = [known.get(row["operation_id"]["value"]) or self._unknown_status(row) for row in asked or ()]
        for status in answers if asked else known.values():
            framework.send(scheduler_events.operation_status(status))

    def _unknown_status(self, entry: Json) -> Json:
        agent_id = entry.get("agent_id")
        if agent_id is None:
            text = "Operation is unknown and no 'agent_id' was provided"
        elif agent_id["value"] in self._registry.agents:
            text = "Operation is unknown"
        else:
            text = "Both operation and agent are unknown"
        status: Json = {
            "operation_id": entry["operation_id"],
            "state": "OPERATION_UNKNOWN",
            "message": f"Reconciliation: {text}",
        }
        return status if agent_id is None else {**status, "agent_id": agent_id}
