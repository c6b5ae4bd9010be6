"""Mesos as the host manager knows it, without processes and threads: offers, tasks, and statuses that are on their way
until the story delivers them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from peloton.model.ids import Hostname, PodId
from peloton.model.pod import PodState, PodStatus
from peloton.model.resources import Resources
from services.hostmgr.mesos.resources import OfferedResources
from services.hostmgr.mesos.wire import MesosRefusal
from services.hostmgr.room import RegisteredHost

Json = dict[str, Any]
CAPACITY = Resources.of(4, 8_192, 20_000)


class Clock:
    """Virtual time, in the words of the module ``time``."""

    def __init__(self) -> None:
        self.ns = 1_800_000_000 * 10**9

    def __call__(self) -> int:
        return self.ns

    def time_ns(self) -> int:
        return self.ns

    def monotonic(self) -> float:
        return self.ns / 1e9

    def pass_s(self, seconds: float) -> None:
        self.ns += int(seconds * 1e9)


@dataclass(slots=True)
class Machine:
    name: str
    number: int = 0  # of times it has registered
    is_up: bool = True
    tasks: dict[PodId, Resources] = field(default_factory=dict)

    @property
    def agent_id(self) -> str:
        return f"{self.name}-S{self.number}"

    @property
    def free(self) -> Resources:
        used = sum(self.tasks.values(), Resources())
        assert all(u <= c for u, c in zip(used, CAPACITY, strict=True)), f"{self.name} is filled beyond what it has"
        return CAPACITY - used


class SimulatedMesos:
    """The part of ``Subscription`` that the host manager calls, and what happens to hosts and tasks."""

    connected = True
    master = "simulated"

    def __init__(self, clock: Clock, names: Sequence[str]) -> None:
        self._clock = clock
        self.machines = {name: Machine(name) for name in names}
        self.offers: dict[str, str] = {}  # -> machine
        self.to_offer = set(names)
        self.to_rescind: list[str] = []
        self.news: dict[PodId, deque[PodStatus]] = {}
        self._offer_count = 0

    # Calls of the host manager.

    def send_all(self, calls: Sequence[Json]) -> list[MesosRefusal | None]:
        for call in calls:
            match call["type"]:
                case "ACCEPT":
                    tasks = call["accept"]["operations"][0]["launch"]["task_infos"]
                    self._launch([o["value"] for o in call["accept"]["offer_ids"]], tasks)
                case "DECLINE":
                    for offer in call["decline"]["offer_ids"]:
                        self._take_back(offer["value"])
                case "KILL":
                    self._kill(PodId.parse(call["kill"]["task_id"]["value"]))
                case "RECONCILE":
                    asked = [PodId.parse(task["task_id"]["value"]) for task in call["reconcile"]["tasks"]]
                    self._tell(asked or sorted(self.running()))
        return [None] * len(calls)

    def _launch(self, offer_ids: Sequence[str], tasks: Sequence[Json]) -> None:
        machines = [self.machines[name] for name in map(self._take_back, offer_ids) if name]
        for task in tasks:
            pod_id, pot = PodId.parse(task["task_id"]["value"]), OfferedResources()
            pot.add(task["resources"])
            assert pod_id not in self.running(), f"{pod_id} runs already"
            if len(machines) < len(offer_ids) or not machines[0].is_up:
                self._note(pod_id, PodState.LOST, "", "REASON_INVALID_OFFERS")
                continue
            machines[0].tasks[pod_id] = pot.total(revocable=False)
            assert machines[0].free is not None
            self._note(pod_id, PodState.STARTING, machines[0].name)
            self._note(pod_id, PodState.RUNNING, machines[0].name)

    def _take_back(self, offer_id: str) -> str:
        name = self.offers.pop(offer_id, "")
        if name and self.machines[name].is_up:
            self.to_offer.add(name)
        return name

    def _kill(self, pod_id: PodId) -> None:
        machine = self.running().get(pod_id)
        if machine is None:
            self._tell([pod_id])
        else:
            self.end(machine, pod_id, PodState.KILLED)

    def _tell(self, pod_ids: Sequence[PodId]) -> None:
        running = self.running()
        for pod_id in pod_ids:
            machine = running.get(pod_id)
            if machine is None and pod_id in self.news:
                continue  # what became of it is on its way
            state = PodState.LOST if machine is None else PodState.RUNNING
            self._note(pod_id, state, machine.name if machine else "", "REASON_RECONCILIATION")

    def _note(self, pod_id: PodId, state: PodState, host: str, reason: str = "") -> None:
        agent = self.machines[host].agent_id if host else ""
        status = PodStatus(pod_id, state, self._clock.ns, host, agent, f"Command {state}", reason)
        self.news.setdefault(pod_id, deque()).append(status)

    # What happens.

    def running(self) -> dict[PodId, Machine]:
        return {pod_id: machine for machine in self.machines.values() for pod_id in machine.tasks}

    def end(self, machine: Machine, pod_id: PodId, state: PodState) -> None:
        del machine.tasks[pod_id]
        self._note(pod_id, state, machine.name)
        self.to_offer.add(machine.name)

    def lose(self, name: str) -> list[PodId]:
        """Returns the pods that are lost with it."""
        machine = self.machines[name]
        lost, machine.tasks, machine.is_up = sorted(machine.tasks), {}, False
        for pod_id in lost:
            self._note(pod_id, PodState.LOST, name, "REASON_AGENT_REMOVED")
        for offer_id in [o for o, of in self.offers.items() if of == name]:
            del self.offers[offer_id]
            self.to_rescind.append(offer_id)
        self.to_offer.discard(name)
        return lost

    def bring_back(self, name: str) -> None:
        machine = self.machines[name]
        if not machine.is_up:
            machine.is_up, machine.number = True, machine.number + 1
            self.to_offer.add(name)

    def subscribe(self) -> None:
        """Another host manager: all offers are made anew."""
        self.offers.clear()
        self.to_rescind.clear()
        self.to_offer = {name for name, machine in self.machines.items() if machine.is_up}

    def make_offers(self) -> list[Json]:
        """Of all that has become free, one offer a machine."""
        made = []
        for name in sorted(self.to_offer):
            free = self.machines[name].free
            kinds = (("cpus", free.cpu_milli / 1000), ("mem", free.memory_mib), ("disk", free.disk_mib))
            for old in [o for o, of in self.offers.items() if of == name]:
                del self.offers[old]
                self.to_rescind.append(old)
            if not free.cpu_milli:
                continue
            self._offer_count += 1
            offer_id = f"O{self._offer_count}"
            self.offers[offer_id] = name
            made.append({
                "id": {"value": offer_id},
                "agent_id": {"value": self.machines[name].agent_id},
                "hostname": name,
                "resources": [{"name": k, "type": "SCALAR", "scalar": {"value": v}} for k, v in kinds if v > 0],
            })  # fmt: skip
        self.to_offer.clear()
        return made

    def some_news(self, random: Random, most: int) -> list[PodStatus]:
        """Of each pod in their order, of several pods in any."""
        found = []
        while self.news and len(found) < most:
            pod_id = random.choice(sorted(self.news))
            found.append(self.news[pod_id].popleft())
            if not self.news[pod_id]:
                del self.news[pod_id]
        return found

    def agents(self) -> list[RegisteredHost]:
        up = [machine for machine in self.machines.values() if machine.is_up]
        return [RegisteredHost(m.agent_id, Hostname(m.name), "10.0.0.1:5051", CAPACITY, Resources(), {}) for m in up]
