"""Port of the master, with the routes of its APIs and pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote

import orjson

from services.lab.mesos.agents.sandbox_collector import Collector
from services.lab.mesos.api import agent_statistics, v0_state, v0_summary
from services.lab.mesos.api.calls import method_fault
from services.lab.mesos.api.drills import Drills
from services.lab.mesos.api.operator import OperatorApi
from services.lab.mesos.api.operator_events import OperatorEvents
from services.lab.mesos.api.own_pages import PREFIX, OwnPages
from services.lab.mesos.api.scheduler import SchedulerApi
from services.lab.mesos.http.authentication import Authentication, agent_realm, master_realm
from services.lab.mesos.master.master import Master
from services.lab.mesos.master.registry import VERSION
from services.lab.mesos.settings import MiniclusterSettings
from services.lab.shared.clock import Clock
from services.lab.shared.http.cross_site import Guard
from services.lab.shared.http.server import HttpServer, Request, Response, json_page, not_found, plain
from services.lab.shared.images import Images


class MasterServer:
    def __init__(
        self, settings: MiniclusterSettings, clock: Clock, master: Master, images: Images, collector: Collector
    ) -> None:
        self._settings = settings
        self._registry = registry = master.registry
        self._frameworks, maintenance = master.frameworks, master.maintenance
        guard = Guard(settings.host, settings.allowed_hosts)
        self.http = HttpServer(self._handle, guard)
        self._authentication = Authentication(settings.credentials)
        self._scheduler = SchedulerApi(master)
        self._operator = OperatorApi(master, settings, OperatorEvents(clock, master))
        drills = Drills(registry, master.agents, maintenance, master.failover, self.http.drop_connections)
        self._own = OwnPages(settings.token, registry, drills, images, collector)
        self._pages: dict[str, Callable[[], Any]] = {
            "/version": lambda: VERSION,
            "/state": lambda: v0_state.state(registry, settings),
            "/state-summary": lambda: v0_summary.state_summary(registry),
            "/frameworks": lambda: v0_state.frameworks(registry),
            "/roles": lambda: v0_summary.roles(registry),
            "/quota": lambda: {},
            "/weights": lambda: [],
            "/slaves": lambda: v0_state.slaves(registry, full=True),
            "/flags": lambda: {"flags": v0_state.flags(registry, settings)},
            "/maintenance/schedule": maintenance.schedule,
            "/maintenance/status": maintenance.status,
        }

    def _handle(self, request: Request) -> Response | bytes | None:
        path = request.path
        if (refusal := self._authentication.refuse(request, master_realm(path))) is not None:
            return refusal
        if path == "/api/v1/scheduler":
            return self._scheduler.handle(request)
        if path.startswith(PREFIX):
            return self._own.handle(request)
        if path.startswith("/slave("):
            return self._simulated_agent(request, unquote(path))
        path = path.removeprefix("/master")
        if path == "/api/v1/scheduler":
            return self._scheduler.handle(request)
        if path == "/api/v1":
            return self._operator.handle(request)
        if path == "/tasks":
            return self._tasks(request)
        if path == "/health":
            return plain(200, "")
        if path == "/redirect":
            location = f"//{self._registry.hostname}:{self._registry.port}"
            return Response(307, b"", (("Location", location),))
        if path == "/teardown":
            return self._teardown(request)
        page = self._pages.get(path)
        return not_found() if page is None else json_page(orjson.dumps(page()))

    def _simulated_agent(self, request: Request, path: str) -> Response:
        """Answer for an agent without a port of its own: `/slave(2)/monitor/statistics` refers to the second one."""
        name, _, rest = path.removeprefix("/slave(").partition(")")
        if (refusal := self._authentication.refuse(request, agent_realm(rest))) is not None:
            return refusal
        agents = list(self._registry.by_host.values()) if self._settings.simulate else []
        if not name.isdigit() or not 0 < int(name) <= len(agents):
            return not_found()
        agent = agents[int(name) - 1]
        if not agent.online:
            return plain(503, "Agent has not finished recovery")
        if rest == "/flags":
            return json_page(orjson.dumps({"flags": v0_state.agent_flags(self._settings)}))
        return json_page(orjson.dumps(agent_statistics.page(agent))) if rest == agent_statistics.PATH else not_found()

    def _tasks(self, request: Request) -> Response:
        query = parse_qs(request.query)
        limit, offset = _number(query.get("limit"), v0_state.TASKS_LIMIT), _number(query.get("offset"), 0)
        return json_page(orjson.dumps(v0_state.tasks(self._registry, limit, offset)))

    def _teardown(self, request: Request) -> Response:
        if request.method != "POST":
            return method_fault(request)
        form = parse_qs(request.body.decode("utf-8", "replace"))
        ids = form.get("frameworkId")
        if not ids:
            return plain(400, "Missing 'frameworkId' query parameter in the request body")
        framework = self._registry.frameworks.get(ids[0])
        if framework is None:
            return plain(400, "No framework found with specified ID")
        self._frameworks.remove(framework)
        return plain(200, "")


def _number(values: list[str] | None, default: int) -> int:
    return int(values[0]) if values and values[0].isdigit() else default
