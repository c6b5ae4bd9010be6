"""ACCEPT and DECLINE.

The offers of an ACCEPT are checked as a whole, then its operations are applied in order to the remaining resources.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from services.lab.mesos.identifiers import id_fault
from services.lab.mesos.master.allocation import refuse_seconds
from services.lab.mesos.master.offers import Offers
from services.lab.mesos.master.operations import Operations
from services.lab.mesos.master.status_updates import StatusUpdates
from services.lab.mesos.master.task_rules import (
    Wanted,
    command_fault,
    custom_executor_fault,
    resource_fault,
    task_fault,
    too_much,
)
from services.lab.mesos.master.tasks import Tasks
from services.lab.mesos.model import Acceptance, Framework, Offer, Task
from services.lab.mesos.resources import Json, sum_of, take_from


@dataclass(frozen=True)
class OfferAnswers:
    allocation_interval_s: float
    offers: Offers
    updates: StatusUpdates
    tasks: Tasks
    operations: Operations

    def accept(self, framework: Framework, call: Json) -> None:
        operations = call.get("operations", ())
        fault, offers = self._check(framework, [item["value"] for item in call.get("offer_ids", ())])
        if fault is not None:
            for offer in offers:
                self.offers.discard(offer)
            self._refuse(framework, operations, fault)
            return
        for offer in offers:
            self.offers.use(offer)
        agent, role = offers[0].agent, offers[0].role
        acceptance = Acceptance(framework, agent, role, sum_of(offer.resources for offer in offers))
        for operation in operations:
            self._run(acceptance, operation)
        self.offers.recover(agent, framework.id, role, acceptance.left)
        self.offers.refuse(framework, agent, role, acceptance.left, self._refuse_seconds(call))

    def decline(self, framework: Framework, call: Json) -> None:
        seconds = self._refuse_seconds(call)
        for item in call.get("offer_ids", ()):
            offer = framework.offers.get(item["value"])
            if offer is not None:
                self.offers.discard(offer)
                self.offers.refuse(framework, offer.agent, offer.role, offer.resources, seconds)

    def _refuse_seconds(self, call: Json) -> float:
        return refuse_seconds(call.get("filters"), self.allocation_interval_s)

    def _check(self, framework: Framework, ids: list[str]) -> tuple[str | None, list[Offer]]:
        """Return the first fault, and the valid offers of the list that belong to the framework."""
        valid: dict[str, Offer] = {}
        faults = [] if ids else ["No offers specified"]
        for id_ in ids:
            offer = self.offers.outstanding.get(id_)
            if offer is None:
                faults.append(f"Offer {id_} is no longer valid")
            elif id_ in valid:
                faults.append(f"Duplicate offer {id_} in offer list")
            elif offer.framework is not framework:
                whose = f"{offer.framework.id} while framework {framework.id} is expected"
                faults.append(f"Offer {id_} has invalid framework {whose}")
            else:
                valid[id_] = offer
        offers = list(valid.values())
        for offer in offers[1:]:
            first = offers[0]
            if offer.role != first.role:
                faults.append(
                    "Aggregated offers must be allocated to the same role. "
                    f"Offer {offer.id} uses role '{offer.role}' but another is using role '{first.role}'"
                )
            if offer.agent is not first.agent:
                faults.append(
                    "Aggregated offers must belong to one single agent. "
                    f"Offer {offer.id} uses agent {offer.agent.id} and agent {first.agent.id}"
                )
        return (faults[0] if faults else None), offers

    def _refuse(self, framework: Framework, operations: list[Json], fault: str) -> None:
        state = "TASK_DROPPED" if framework.partition_aware else "TASK_LOST"
        for operation in operations:
            if operation.get("type") == "LAUNCH":
                message = f"Task launched with invalid offers: {fault}"
                self.updates.refuse(framework, _infos(operation), state, "REASON_INVALID_OFFERS", message)

    def _run(self, acceptance: Acceptance, operation: Json) -> None:
        type_ = operation.get("type")
        if type_ == "LAUNCH":
            infos = _infos(operation)
            if "id" in operation:
                self._refuse_tasks(acceptance, infos, f"The `id` field cannot be set on {type_} operations")
            else:
                self._launch(acceptance, infos)
        elif type_ is not None:
            self.operations.apply(acceptance, operation)

    def _refuse_tasks(self, acceptance: Acceptance, infos: list[Json], fault: str) -> None:
        self.updates.refuse(acceptance.framework, infos, "TASK_ERROR", "REASON_TASK_INVALID", fault)

    def _launch(self, acceptance: Acceptance, infos: list[Json]) -> None:
        """Launch tasks, validated one by one, except that one malformed resource rejects them all."""
        for info in infos:
            fault = resource_fault(info.get("resources", ()))
            if fault is not None:
                self._refuse_tasks(acceptance, infos, fault)
                return
        for info in infos:
            fault = self._launch_one(acceptance, info)
            if fault is not None:
                self._refuse_tasks(acceptance, [info], fault)

    def _launch_one(self, acceptance: Acceptance, info: Json) -> str | None:
        framework, agent, role = acceptance.framework, acceptance.agent, acceptance.role
        fault = task_fault(framework, agent, info) or command_fault(info)
        if fault is not None:
            return fault
        if "executor" in info:
            return id_fault(info["executor"]["executor_id"]["value"]) or custom_executor_fault(info["executor"])
        wanted = Wanted(role).add(info["resources"], role)
        if not wanted.fits(acceptance.left):
            return too_much(wanted, acceptance.left, role)
        take_from(acceptance.left, wanted.resources)
        task = Task(info["task_id"]["value"], framework, agent, orjson.dumps(info), wanted.resources, role)
        self.tasks.add(task)
        agent.runtime.launch(task)
        return None


def _infos(operation: Json) -> list[Json]:
    infos: list[Json] = operation.get("launch", {}).get("task_infos", [])
    return infos
