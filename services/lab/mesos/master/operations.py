"""Operations of frameworks and operators on resources: reservations and volumes.

The id of an operation is ignored: minicluster sends no status of operations.
"""

from __future__ import annotations

import logging

from services.lab.mesos.master.allocation import DEFAULT_REFUSE_S
from services.lab.mesos.master.hooks import Hook
from services.lab.mesos.master.offers import Offers
from services.lab.mesos.master.resource_conversions import CONVERSIONS, Conversion, Refused, convert
from services.lab.mesos.model import Acceptance, Agent
from services.lab.mesos.resources import (
    PORTS,
    Json,
    Resources,
    add_to,
    contains,
    in_listing_order,
    subtract,
    take_from,
    text,
)

log = logging.getLogger(__name__)


class Operations:
    def __init__(self, offers: Offers) -> None:
        self._offers = offers
        # Fired when an agent's resources have changed.
        self.changed: Hook[Agent] = Hook()

    def apply(self, acceptance: Acceptance, operation: Json) -> None:
        """Apply an operation of an ACCEPT; an invalid one changes nothing."""
        type_ = operation["type"]
        agent = acceptance.agent
        try:
            if type_ not in CONVERSIONS:
                raise Refused(f"{type_} is not emulated")
            if type_.lower() not in operation:
                raise Refused(f"Expecting '{type_.lower()}' to be present")
            conversion = convert(type_, operation[type_.lower()], acceptance.role, acceptance.framework.roles, agent)
            if conversion.is_foreign or not contains(acceptance.left, conversion.taken):
                raise Refused(f"{text(acceptance.left, acceptance.role)} does not contain {text(conversion.taken)}")
        except Refused as error:
            log.info("%s on agent %s is dropped: %s", type_, agent.spec.name, error)
            return
        take_from(acceptance.left, conversion.taken)
        add_to(acceptance.left, conversion.given)
        # Kept in the agent's order, so that texts and later offers list the resources like the master.
        self._change_total(agent, conversion, agent.free)
        acceptance.left = {kind: acceptance.left[kind] for kind in agent.total if kind in acceptance.left}

    def _change_total(self, agent: Agent, conversion: Conversion, free: Resources) -> None:
        total = subtract(agent.total, conversion.taken)
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
        free = subtract(agent.free, conversion.taken)
        add_to(free, conversion.given)
        self._change_total(agent, conversion, free)
        return 202, ""
