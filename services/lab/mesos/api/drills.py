"""Drills: stop and start agents, degrade hosts, replace the master."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from services.lab.mesos.master.agents import Agents
from services.lab.mesos.master.failover import AGENTS_BACK_S, Failover
from services.lab.mesos.master.maintenance import Maintenance
from services.lab.mesos.master.registry import Registry
from services.lab.mesos.model import Agent
from services.lab.mesos.resources import Json
from services.lab.shared.http.server import Connection

VERBS = ("stop", "start", "degrade", "restore")
OLD_VERBS = {"sicken": "degrade", "heal": "restore"}
_NAMES_SHOWN = 10
AGENTS_BACK_MAX_S = 600.0


class Refused(Exception):
    """Error answer: an HTTP status and a text instead of JSON."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


@dataclass(frozen=True)
class Drills:
    """Drills of a minicluster; methods return JSON and raise Refused."""

    registry: Registry
    own_agents: Agents
    maintenance: Maintenance
    failover: Failover
    drop_connections: Callable[[Connection], None]
    """Callback that closes all connections of the master except the given one."""

    def agents(self) -> Json:
        return {"agents": [_row(agent) for agent in self.registry.by_host.values()]}

    def act(self, verb: str, name: str, body: Json) -> Json:
        agent = self._agent(name)
        verb = OLD_VERBS.get(verb, verb)
        match verb:
            case "stop":
                self._stop(agent, body.get("now", False))
            case "start":
                self._start(agent)
            case _:
                agent.is_degraded = verb == "degrade"
        return _row(agent)

    def _agent(self, name: str) -> Agent:
        agent = self.registry.by_host.get(name)
        if agent is None:
            names = list(self.registry.by_host)
            known = ", ".join(names[:_NAMES_SHOWN]) + (f", ... ({len(names)} in all)" if names[_NAMES_SHOWN:] else "")
            raise Refused(404, f"Unknown agent '{name}'; the agents are {known}")
        if agent.gone:
            raise Refused(409, f"Agent '{name}' has been marked gone")
        return agent

    def _stop(self, agent: Agent, now: object) -> None:
        """Stop an agent; `now` acts like kill -9 with all executors, otherwise its tasks continue."""
        if not isinstance(now, bool):
            raise Refused(400, 'Expected {} or {"now": true} or {"now": false}')
        if not agent.online:
            raise Refused(409, f"Agent '{agent.spec.name}' is already {_state(agent)}")
        if now:
            self.own_agents.crash(agent)
        else:
            self.own_agents.disconnect(agent)

    def _start(self, agent: Agent) -> None:
        if self.maintenance.is_down(agent):
            raise Refused(409, f"The machine of agent '{agent.spec.name}' is DOWN for maintenance")
        if agent.online:
            raise Refused(409, f"Agent '{agent.spec.name}' is already {_state(agent)}")
        self.own_agents.restart(agent)

    def replace_master(self, body: Json, caller: Connection) -> Json:
        seconds, empty_registry = body.get("agents_back_s", AGENTS_BACK_S), body.get("empty_registry", False)
        if not isinstance(empty_registry, bool):
            raise Refused(400, 'Expected {} or {"empty_registry": true} or {"empty_registry": false}')
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= AGENTS_BACK_MAX_S:
            raise Refused(400, f'Expected {{}} or {{"agents_back_s": N}} with 0 <= N <= {AGENTS_BACK_MAX_S:.0f}')
        count = self.failover.run(seconds, empty_registry)
        self.drop_connections(caller)
        return {"master": self.registry.id, "agents": count}


def _row(agent: Agent) -> Json:
    return {
        "name": agent.spec.name,
        "id": agent.id,
        "state": _state(agent),
        "tasks": sorted(task.id for task in agent.all_tasks if not task.released or not agent.registered),
        "degraded": agent.is_degraded,
    }


def _state(agent: Agent) -> str:
    if agent.gone:
        return "GONE"
    if agent.unreachable_at is not None:
        return "UNREACHABLE"
    if not agent.online:
        return "RECOVERED" if agent.recovered else "DISCONNECTED" if agent.registered else "DOWN"
    if agent.drain is not None:
        return str(agent.drain["state"])
    return "DEACTIVATED" if agent.deactivated else "ACTIVE"
