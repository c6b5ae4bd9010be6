"""ACCEPT and DECLINE. The offers of an ACCEPT are checked as a whole, then its operations run in order against what is
left of them."""

from __future__ import annotations

from services.minicluster.identifiers import id_fault
from services.minicluster.master import scheduler_events
from services.minicluster.master.acceptance import Acceptance
from services.minicluster.master.allocation import refuse_seconds
from services.minicluster.master.offers import Offers
from services.minicluster.master.operations import Operations
from services.minicluster.master.status_updates import StatusUpdates
from services.minicluster.master.task_groups import TaskGroups
from services.minicluster.master.task_rules import (
    Wanted,
    command_fault,
    custom_executor_fault,
    resource_fault,
    task_fault,
    too_much,
)
from services.minicluster.master.tasks import Tasks
from services.minicluster.model import Framework, Offer, Task
from services.minicluster.resources import Json, added, take_from

_LAUNCHES = ("LAUNCH", "LAUNCH_GROUP")


class OfferAnswers:
    def __init__(
        self,
        allocation_interval_s: float,
        offers: Offers,
        updates: StatusUpdates,
        tasks: Tasks,
        groups: TaskGroups,
        operations: Operations,
    ) -> None:
        self._allocation_interval_s = allocation_interval_s
        self._offers = offers
        self._updates = updates
        self._tasks = tasks
        self._groups = groups
        self._operations = operations

    def accept(self, framework: Framework, call: Json) -> None:
        ids = [item["value"] for item in call.get("offer_ids", ())]
        operations = call.get("operations", ())
        fault, offers = self._check(framework, ids)
        if fault is not None:
            for offer in offers:
                self._offers.discard(offer)
            self._refuse(framework, operations, fault)
            return
        agent = offers[0].agent
        resources = offers[0].resources
        for offer in offers[1:]:
            resources = added(resources, offer.resources)
        for offer in offers:
            self._offers.use(offer)
        acceptance = Acceptance(framework, agent, offers[0].role, dict(resources))
        for operation in operations:
            self._run(acceptance, operation)
        self._leave(acceptance, call.get("filters"))

    def decline(self, framework: Framework, call: Json) -> None:
        seconds = refuse_seconds(call.get("filters"), self._allocation_interval_s)
        for item in call.get("offer_ids", ()):
            offer = framework.offers.get(item["value"])
            if offer is not None:
                self._offers.discard(offer)
                self._offers.refuse(framework, offer.agent, offer.role, offer.resources, seconds)

    def _leave(self, acceptance: Acceptance, filters: Json | None) -> None:
        seconds = refuse_seconds(filters, self._allocation_interval_s)
        framework, agent, role = acceptance.framework, acceptance.agent, acceptance.role
        self._offers.recover(agent, framework.id, role, acceptance.left)
        self._offers.refuse(framework, agent, role, acceptance.left, seconds)

    def _check(self, framework: Framework, ids: list[str]) -> tuple[str | None, list[Offer]]:
        """The first fault, and the offers of the list that are still valid and the framework's."""
        valid: dict[str, Offer] = {}
        fault = None if ids else "No offers specified"
        seen: set[str] = set()
        for id_ in ids:
            offer = self._offers.outstanding.get(id_)
            if offer is None:
                fault = fault or f"Offer {id_} is no longer valid"
            elif id_ in seen:
                fault = fault or f"Duplicate offer {id_} in offer list"
            elif offer.framework is not framework:
                whose = f"{offer.framework.id} while framework {framework.id} is expected"
                fault = fault or f"Offer {id_} has invalid framework {whose}"
            else:
                valid[id_] = offer
            seen.add(id_)
        offers = list(valid.values())
        for offer in offers[1:]:
            first = offers[0]
            if fault is None and offer.role != first.role:
                fault = (
                    "Aggregated offers must be allocated to the same role. "
                    f"Offer {offer.id} uses role '{offer.role}' but another is using role '{first.role}'"
                )
            if fault is None and offer.agent is not first.agent:
                fault = (
                    "Aggregated offers must belong to one single agent. "
                    f"Offer {offer.id} uses agent {offer.agent.id} and agent {first.agent.id}"
                )
        return fault, offers

    def _refuse(self, framework: Framework, operations: list[Json], fault: str) -> None:
        state = "TASK_DROPPED" if framework.partition_aware else "TASK_LOST"
        for operation in operations:
            if operation.get("type") in _LAUNCHES:
                for info in _infos(operation):
                    self._updates.from_master(
                        framework,
                        info["task_id"]["value"],
                        state,
                        message=f"Task launched with invalid offers: {fault}",
                        reason="REASON_INVALID_OFFERS",
                        agent_id=info["agent_id"]["value"],
                    )
            elif "id" in operation:
                status = {
                    "operation_id": operation["id"],
                    "state": "OPERATION_ERROR",
                    "message": f"Operation attempted with invalid offers: {fault}",
                }
                framework.send(scheduler_events.operation_status(status))

    def _run(self, acceptance: Acceptance, operation: Json) -> None:
        type_ = operation.get("type")
        if type_ in _LAUNCHES:
            infos = _infos(operation)
            if "id" in operation:
                self._errors(acceptance, infos, f"The `id` field cannot be set on {type_} operations")
            elif type_ == "LAUNCH":
                self._launch(acceptance, infos)
            elif infos or "launch_group" in operation:
                self._groups.launch(acceptance, operation["launch_group"])
        elif type_ is not None:
            self._operations.apply(acceptance, operation)

    def _errors(self, acceptance: Acceptance, infos: list[Json], fault: str, reason: str = "TASK_INVALID") -> None:
        for info in infos:
            self._updates.from_master(
                acceptance.framework,
                info["task_id"]["value"],
                "TASK_ERROR",
                message=fault,
                reason=f"REASON_{reason}",
                agent_id=info["agent_id"]["value"],
            )

    def _launch(self, acceptance: Acceptance, infos: list[Json]) -> None:
        """Tasks are judged one by one, but one malformed resource refuses them all."""
        for info in infos:
            fault = resource_fault(info.get("resources", ()))
            if fault is not None:
                self._errors(acceptance, infos, fault)
                return
        for info in infos:
            fault = self._launch_one(acceptance, info)
            if fault is not None:
                self._errors(acceptance, [info], fault)

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
        task = Task(info["task_id"]["value"], framework, agent, info, wanted.resources, role)
        self._tasks.add(task)
        agent.runtime.launch(task)
        return None


def _infos(operation: Json) -> list[Json]:
    if operation.get("type") == "LAUNCH":
        infos: list[Json] = operation.get("launch", {}).get("task_infos", [])
    else:
        infos = operation.get("launch_group", {}).get("task_group", {}).get("tasks", [])
    return infos
