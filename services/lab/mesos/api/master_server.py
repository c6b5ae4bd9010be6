"""Port of the master, with the routes of its APIs."""

from __future__ import annotations

from urllib.parse import unquote

import orjson

from services.lab.mesos.agents.sandbox_collector import Collector
from services.lab.mesos.api import agent_pages
from services.lab.mesos.api.drills import Drills
from services.lab.mesos.api.operator import OperatorApi
from services.lab.mesos.api.own_pages import PREFIX, OwnPages
from services.lab.mesos.api.scheduler import SchedulerApi
from services.lab.mesos.http.authentication import Authentication, agent_realm, master_realm
from services.lab.mesos.master.master import Master
from services.lab.mesos.master.registry import VERSION
from services.lab.mesos.settings import MiniclusterSettings
from services.lab.shared.http.cross_site import Guard
from services.lab.shared.http.server import HttpServer, Request, Response, json_page, not_found, plain
from services.lab.shared.images import Images


class MasterServer:
    def __init__(self, settings: MiniclusterSettings, master: Master, images: Images, collector: Collector) -> None:
        self._settings = settings
        self._registry = registry = master.registry
        guard = Guard(settings.host, settings.allowed_hosts)
        self.http = HttpServer(self._handle, guard)
        self._authentication = Authentication(settings.credentials)
        self._scheduler = SchedulerApi(master)
        self._operator = OperatorApi(master)
        drills = Drills(registry, master.agents, master.maintenance, master.failover, self.http.drop_connections)
        self._own = OwnPages(settings.token, registry, drills, images, collector)

    def _handle(self, request: Request) -> Response | bytes | None:
        path = request.path
        if (refusal := self._authentication.refuse(request, master_realm(path))) is not None:
            return refusal
        if path == "/api/v1/scheduler":
            return self._scheduler.handle(request)
        if path.startswith(PREFIX):
            return self._own.handle(request)
        if path.startswith("/slave("):
            return self._answer_for_agent(request, unquote(path))
        path = path.removeprefix("/master")
        if path == "/api/v1/scheduler":
            return self._scheduler.handle(request)
        if path == "/api/v1":
            return self._operator.handle(request)
        if path == "/health":
            return plain(200, "")
        return json_page(orjson.dumps(VERSION)) if path == "/version" else not_found()

    def _answer_for_agent(self, request: Request, path: str) -> Response:
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
            return json_page(orjson.dumps({"flags": agent_pages.flags(self._settings)}))
        return json_page(orjson.dumps(agent_pages.statistics(agent))) if rest == agent_pages.STATISTICS else not_found()
