"""/minicluster/agents: look at the agents, kill them and bring them back. /minicluster/master: replace the master."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from urllib.parse import unquote

import orjson

from services.minicluster.http.cross_site import body_fault
from services.minicluster.http.server import Connection, Request, Response, json_response, plain
from services.minicluster.master.agents import Agents
from services.minicluster.master.failover import AGENTS_BACK_S, Failover
from services.minicluster.master.maintenance import Maintenance
from services.minicluster.master.registry import Registry
from services.minicluster.model import Agent
from services.minicluster.resources import Json

PATHS = (
    "/minicluster/agents",
    "/minicluster/agents/<name>/stop",
    "/minicluster/agents/<name>/start",
    "/minicluster/agents/<name>/sicken",
    "/minicluster/agents/<name>/heal",
    "/minicluster/master/failover",
)
_NAMES_SHOWN = 10
AGENTS_BACK_MAX_S = 600.0


class Drills:
    def __init__(
        self,
        token: str,
        registry: Registry,
        agents: Agents,
        maintenance: Maintenance,
        failover: Failover,
        drop_connections: Callable[[Connection], None],
    ) -> None:
        """``token``: what callers show, empty for none; ``drop_connections``: all but this one."""
        self._token = token
        self._registry = registry
        self._agents = agents
        self._maintenance = maintenance
        self._failover = failover
        self._drop_connections = drop_connections

    def handle(self, request: Request) -> Response:
        if (refused := self.refuse(request)) is not None:
            return refused
        parts = unquote(request.path).split("/")[2:]
        if parts == ["master", "failover"]:
            return self._replace_master(request)
        if parts == ["agents"]:
            if request.method != "GET":
                return plain(405, f"GET /minicluster/agents lists the agents; {request.method} is not possible")
            rows = [self._row(agent) for agent in self._registry.by_host.values()]
            return json_response(orjson.dumps({"agents": rows}))
        if len(parts) != 3 or parts[0] != "agents" or parts[2] not in ("stop", "start", "sicken", "heal"):
            return plain(404, f"Expected {', '.join(PATHS)}")
        if request.method != "POST":
            return plain(405, f"Agents are stopped, started, sickened and healed with POST, not {request.method}")
        agent = self._registry.by_host.get(parts[1])
        if agent is None:
            names = list(self._registry.by_host)
            known = ", ".join(names[:_NAMES_SHOWN]) + (f", ... ({len(names)} in all)" if names[_NAMES_SHOWN:] else "")
            return plain(404, f"Unknown agent '{parts[1]}'; the agents are {known}")
        if agent.gone:
            return plain(409, f"Agent '{parts[1]}' has been marked gone")
        if parts[2] in ("sicken", "heal"):
            agent.sick = parts[2] == "sicken"
            return json_response(orjson.dumps(self._row(agent)))
        if parts[2] == "start" and self._maintenance.is_down(agent):
            return plain(409, f"The machine of agent '{parts[1]}' is DOWN for maintenance")
        if parts[2] == "start":
            return self._start(agent)
        try:
            body = orjson.loads(request.body) if request.body else {}
        except orjson.JSONDecodeError as error:
            return plain(400, f"The body is not JSON: {error}")
        if not isinstance(body, dict) or not isinstance(body.get("now", False), bool):
            return plain(400, 'Expected {} or {"now": true} or {"now": false}')
        return self._stop(agent, body.get("now", False))

    def refuse(self, request: Request) -> Response | None:
        """Of a call that would change something without the token, or with a form."""
        if request.method == "GET":
            return None
        given = request.headers.get("authorization", "")
        if self._token and not secrets.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            return plain(
                401, "Drills need the token that this minicluster was started with: Authorization: Bearer TOKEN"
            )
        text = body_fault(request.headers) if request.body else None
        return plain(415, text) if text is not None else None

    def _replace_master(self, request: Request) -> Response:
        if request.method != "POST":
            return plain(405, f"The master is replaced with POST, not {request.method}")
        try:
            body = orjson.loads(request.body) if request.body else {}
        except orjson.JSONDecodeError as error:
            return plain(400, f"The body is not JSON: {error}")
        seconds = body.get("agents_back_s", AGENTS_BACK_S) if isinstance(body, dict) else None
        empty_registry = body.get("empty_registry", False) if isinstance(body, dict) else None
        if not isinstance(empty_registry, bool):
            return plain(400, 'Expected {} or {"empty_registry": true} or {"empty_registry": false}')
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= AGENTS_BACK_MAX_S:
            return plain(400, f'Expected {{}} or {{"agents_back_s": N}} with 0 <= N <= {AGENTS_BACK_MAX_S:.0f}')
        count = self._failover.run(seconds, empty_registry)
        self._drop_connections(request.connection)
        return json_response(orjson.dumps({"master": self._registry.id, "agents": count}))

    def _row(self, agent: Agent) -> Json:
        tasks = [item.id for item in (agent.tasks or {}).values() if not item.released or not agent.registered]
        return {
            "name": agent.spec.name,
            "id": agent.id,
            "state": state(agent),
            "tasks": sorted(tasks),
            "sick": agent.sick,
        }

    def _stop(self, agent: Agent, now: bool) -> Response:
        """`now` is kill -9 with all executors; otherwise the agent ends alone and its tasks run on."""
        if not agent.online:
            return plain(409, f"Agent '{agent.spec.name}' is already {state(agent)}")
        if now:
            self._agents.crash(agent)
        else:
            self._agents.lost(agent)
        return json_response(orjson.dumps(self._row(agent)))

    def _start(self, agent: Agent) -> Response:
        if agent.online:
            return plain(409, f"Agent '{agent.spec.name}' is already {state(agent)}")
        self._agents.restart(agent)
        return json_response(orjson.dumps(self._row(agent)))


def state(agent: Agent) -> str:
    if agent.gone:
        return "GONE"
    if agent.unreachable_at is not None:
        return "UNREACHABLE"
    if not agent.online:
        return "RECOVERED" if agent.recovered else "DISCONNECTED" if agent.registered else "DOWN"
    if agent.drain is not None:
        return str(agent.drain["state"])
    return "DEACTIVATED" if agent.deactivated else "ACTIVE"
