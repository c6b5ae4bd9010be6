"""Maintenance windows of machines: unavailability on offers, inverse offers, machines down and up again."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

import orjson

from services.lab.mesos.master import scheduler_events
from services.lab.mesos.master.agents import Agents
from services.lab.mesos.master.allocation import refuse_seconds
from services.lab.mesos.master.offers import Offers
from services.lab.mesos.master.registry import Registry
from services.lab.mesos.model import Agent, Framework
from services.lab.mesos.nanoseconds import in_nanoseconds
from services.lab.mesos.resources import Json
from services.lab.shared.clock import Clock

DRAINING, DOWN = "DRAINING", "DOWN"


@dataclass(eq=False)
class Machine:
    id: Json
    unavailability: Json
    mode: str = DRAINING
    # framework id -> its last answer to an inverse offer
    statuses: dict[str, Json] = field(default_factory=dict)


class Maintenance:
    def __init__(
        self, allocation_interval_s: float, clock: Clock, registry: Registry, offers: Offers, agents: Agents
    ) -> None:
        self._allocation_interval_s = allocation_interval_s
        self._clock = clock
        self._registry = registry
        self._offers = offers
        self._agents = agents
        self._windows: list[Json] = []
        self._machines: dict[tuple[str, str], Machine] = {}
        # (framework id, agent id) -> protocol time before which it gets no inverse offer
        self._quiet: dict[tuple[str, str], float] = {}

    def reset_state(self) -> None:
        """Reset for another master, whose registry is empty."""
        self._windows = []
        self._machines.clear()
        self._quiet.clear()

    # operator calls; each returns the text of a 400 or None

    def schedule(self) -> Json:
        return {"windows": self._windows} if self._windows else {}

    def status(self) -> Json:
        result: Json = {}
        draining = []
        for machine in self._machines.values():
            if machine.mode == DRAINING:
                row: Json = {"id": machine.id}
                if machine.statuses:
                    row["statuses"] = list(machine.statuses.values())
                draining.append(row)
        down = [machine.id for machine in self._machines.values() if machine.mode == DOWN]
        if draining:
            result["draining_machines"] = draining
        if down:
            result["down_machines"] = down
        return result

    def update(self, schedule: Json) -> str | None:
        """Replace the whole schedule; every outstanding offer of the cluster is rescinded, scheduled or not."""
        windows = schedule.get("windows", [])
        fault = _windows_fault(windows)
        if fault is not None:
            return fault
        wanted = {_key(id_): (id_, window) for window in windows for id_ in window["machine_ids"]}
        for key, machine in self._machines.items():
            if machine.mode == DOWN and key not in wanted:
                return f"Machine '{_text(machine.id)}' is deactivated and cannot be removed from the schedule"
        machines: dict[tuple[str, str], Machine] = {}
        for key, (id_, window) in wanted.items():
            machine = Machine(id_, window["unavailability"])
            if key in self._machines:
                machine.mode = self._machines[key].mode
            machines[key] = machine
        self._machines = machines
        self._windows = windows
        self._quiet.clear()
        for agent in self._offers.agents.values():
            found = machines.get(self._key_of(agent))
            agent.unavailability = None if found is None else found.unavailability
            self._offers.rescind_agent(agent)
            self.rescind_inverse(agent)
            self._offers.reoffer(agent)
        return None

    def _mode_fault(self, ids: list[Json], mode: str, way: str) -> str | None:
        for id_ in ids:
            machine = self._machines.get(_key(id_))
            if machine is None or machine.mode != mode:
                return f"Machine '{_text(id_)}' is not in {mode} mode and cannot be brought {way}"
        return None

    def begin(self, ids: list[Json]) -> str | None:
        fault = _ids_fault(ids) or self._mode_fault(ids, DRAINING, "down")
        if fault is not None:
            return fault
        for id_ in ids:
            self._machines[_key(id_)].mode = DOWN
            for agent in self._agents_of(id_):
                self._agents.remove(agent, "Operator initiated 'Machine DOWN'")
        return None

    def end(self, ids: list[Json]) -> str | None:
        """Remove machines from the schedule and restart their agents, like a supervisor."""
        fault = _ids_fault(ids) or self._mode_fault(ids, DOWN, "up")
        if fault is not None:
            return fault
        keys = {_key(id_) for id_ in ids}
        for key in keys:
            del self._machines[key]
        windows = []
        for window in self._windows:
            rest = [id_ for id_ in window["machine_ids"] if _key(id_) not in keys]
            if rest:
                windows.append({**window, "machine_ids": rest})
        self._windows = windows
        for id_ in ids:
            for agent in self._agents_of(id_):
                agent.unavailability = None
                self._agents.restart(agent)
        return None

    def is_down(self, agent: Agent) -> bool:
        machine = self._machines.get(self._key_of(agent))
        return machine is not None and machine.mode == DOWN

    def _key_of(self, agent: Agent) -> tuple[str, str]:
        return (agent.spec.name.lower(), self._registry.host)

    def _agents_of(self, id_: Json) -> list[Agent]:
        key = _key(id_)
        return [agent for agent in self._registry.agents.values() if self._key_of(agent) == key]

    # inverse offers

    def offer_inverse(self) -> None:
        """Send inverse offers after each allocation to every framework with resources on a scheduled agent."""
        if not self._machines:
            return
        now = self._clock.now()
        for agent in self._offers.agents.values():
            if agent.unavailability is None:
                continue
            holders = {offer.framework.id: offer.framework for offer in agent.all_offers}
            holders |= {task.framework.id: task.framework for task in agent.all_tasks if not task.released}
            for framework in holders.values():
                if not framework.connected or any(item is agent for item in framework.inverse.values()):
                    continue
                if self._quiet.get((framework.id, agent.id), 0.0) > now:
                    continue
                id_ = self._offers.next_id()
                framework.inverse[id_] = agent
                framework.send(scheduler_events.inverse_offer(id_, framework, agent, self._registry.host))

    def answer(self, framework: Framework, body: Json, accept: bool) -> None:
        seconds = refuse_seconds(body.get("filters"), self._allocation_interval_s)
        for item in body.get("inverse_offer_ids", ()):
            agent = framework.inverse.pop(item["value"], None)
            if agent is None:
                continue
            self._quiet[(framework.id, agent.id)] = self._clock.now() + seconds
            machine = self._machines.get(self._key_of(agent))
            if machine is not None:
                machine.statuses[framework.id] = {
                    "status": "ACCEPT" if accept else "DECLINE",
                    "framework_id": {"value": framework.id},
                    "timestamp": in_nanoseconds(self._clock.wall()),
                }

    def rescind_inverse(self, agent: Agent) -> None:
        for framework in self._registry.frameworks.values():
            for id_ in [id_ for id_, item in framework.inverse.items() if item is agent]:
                del framework.inverse[id_]
                framework.send(scheduler_events.rescind_inverse_offer(id_))

    def drop_inverse(self, framework: Framework) -> None:
        framework.inverse.clear()
        for key in [key for key in self._quiet if key[0] == framework.id]:
            del self._quiet[key]


def _key(id_: Json) -> tuple[str, str]:
    return (id_.get("hostname", "").lower(), id_.get("ip", ""))


def _text(id_: Json) -> str:
    return orjson.dumps({key: id_[key] for key in ("hostname", "ip") if key in id_}).decode()


def _ids_fault(ids: list[Json]) -> str | None:
    if not ids:
        return "List of machines is empty"
    return _machines_fault(ids, set())


def _machines_fault(ids: list[Json], seen: set[tuple[str, str]]) -> str | None:
    for id_ in ids:
        if not id_.get("hostname") and not id_.get("ip"):
            return "Both 'hostname' and 'ip' for a machine are empty"
        if id_.get("ip"):
            try:
                ipaddress.IPv4Address(id_["ip"])
            except ValueError:
                return f"Failed to parse IPv4: {id_['ip']}"
        if _key(id_) in seen:
            return f"Machine '{_text(id_)}' appears more than once in the schedule"
        seen.add(_key(id_))
    return None


def _windows_fault(windows: list[Json]) -> str | None:
    seen: set[tuple[str, str]] = set()
    for window in windows:
        ids = window.get("machine_ids", [])
        if not ids:
            return "List of machines in the maintenance window is empty"
        fault = _machines_fault(ids, seen)
        if fault is not None:
            return fault
        if window["unavailability"].get("duration", {}).get("nanoseconds", 0) < 0:
            return "Unavailability 'duration' is negative"
    return None
