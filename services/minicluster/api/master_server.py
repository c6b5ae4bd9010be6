"""The port of the master: which API or page answers which path."""

from __future__ import annotations

from urllib.parse import parse_qs, unquote

import orjson

from services.minicluster.agents.images import Images
from services.minicluster.agents.sandbox_collector import Collector
from services.minicluster.api import agent_statistics, v0_state, v0_summary
from services.minicluster.api.calls import method_fault
from services.minicluster.api.drills import Drills
from services.minicluster.api.images import PATH as IMAGES_PATH
from services.minicluster.api.images import ImagesApi
from services.minicluster.api.operator import OperatorApi
from services.minicluster.api.operator_events import OperatorEvents
from services.minicluster.api.sandboxes import PATH as SANDBOXES_PATH
from services.minicluster.api.sandboxes import SandboxesApi
from services.minicluster.api.scheduler import SchedulerApi
from services.minicluster.clock import Clock
from services.minicluster.http.authentication import Authentication, agent_realm, master_realm
from services.minicluster.http.cross_site import Guard
from services.minicluster.http.server import HttpServer, Request, Response, json_page, not_found, plain
from services.minicluster.master.master import Master
from services.minicluster.master.registry import VERSION
from services.minicluster.settings import MiniclusterSettings


class MasterServer:
    def __init__(
        self, settings: MiniclusterSettings, clock: Clock, master: Master, images: Images, collector: Collector
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._registry = registry = master.registry
        self._frameworks = master.frameworks
        self._maintenance = master.maintenance
        guard = Guard(settings.host, settings.allowed_hosts)
        self.http = HttpServer(self._handle, settings.request_body_bytes, guard)
        self._authentication = Authentication(settings.credentials)
        self._scheduler = SchedulerApi(master, settings.stream_buffer_bytes)
        self._operator = OperatorApi(master, settings, OperatorEvents(settings, clock, master))
        self._drills = Drills(
            settings.token, registry, master.agents, master.maintenance, master.failover, self.http.drop_connections
        )
        self._images = ImagesApi(images, registry.by_host)
        self._sandboxes = SandboxesApi(collector)

    def _handle(self, request: Request) -> Response | bytes | None:
        path = request.path
        if (refusal := self._authentication.refuse(request, master_realm(path))) is not None:
            return refusal
        if path == "/api/v1/scheduler":
            return self._scheduler.handle(request)
        if path == IMAGES_PATH:
            return self._images.handle(request)
        if path == SANDBOXES_PATH:
            return self._drills.refuse(request) or self._sandboxes.handle(request)
        if path.startswith("/minicluster/"):
            return self._drills.handle(request)
        if path.startswith("/slave("):
            return self._simulated_agent(request, unquote(path))
        path = path.removeprefix("/master")
        if path == "/api/v1/scheduler":
            return self._scheduler.handle(request)
        if path == "/api/v1":
            return self._operator.handle(request)
        return self._get(path, request)

    def _simulated_agent(self, request: Request, path: str) -> Response:
        """Simulated agents have no port of their own: `/slave(2)/containers` is of the second."""
        name, _, rest = path.removeprefix("/slave(").partition(")")
        if (refusal := self._authentication.refuse(request, agent_realm(rest))) is not None:
            return refusal
        agents = list(self._registry.by_host.values()) if self._settings.simulate else []
        if not name.isdigit() or not 0 < int(name) <= len(agents) or rest not in agent_statistics.PATHS:
            return not_found()
        agent = agents[int(name) - 1]
        if not agent.online:
            return plain(503, "Agent has not finished recovery")
        return json_page(orjson.dumps(agent_statistics.page(agent, rest)))

    def _get(self, path: str, request: Request) -> Response:
        registry, maintenance = self._registry, self._maintenance
        match path:
            case "/health":
                return plain(200, "")
            case "/version":
                return json_page(orjson.dumps(VERSION))
            case "/redirect":
                location = f"//{registry.hostname}:{registry.port}"
                return Response(307, b"", (("Location", location),))
            case "/state":
                return json_page(orjson.dumps(v0_state.state(registry, self._settings)))
            case "/state-summary":
                return json_page(orjson.dumps(v0_summary.state_summary(registry)))
            case "/frameworks":
                return json_page(orjson.dumps(v0_summary.frameworks(registry)))
            case "/roles":
                return json_page(orjson.dumps(v0_summary.roles(registry)))
            case "/quota":
                return json_page(b"{}")
            case "/weights":
                return json_page(b"[]")
            case "/slaves":
                return json_page(orjson.dumps(v0_state.slaves(registry, full=True)))
            case "/tasks":
                query = parse_qs(request.query)
                limit = _number(query.get("limit"), v0_state.TASKS_LIMIT)
                offset = _number(query.get("offset"), 0)
                return json_page(orjson.dumps(v0_state.tasks(registry, limit, offset)))
            case "/flags":
                return json_page(orjson.dumps({"flags": v0_state.flags(registry, self._settings)}))
            case "/metrics/snapshot":
                return json_page(orjson.dumps(v0_state.metrics(registry, self._clock.now())))
            case "/maintenance/schedule":
                return json_page(orjson.dumps(maintenance.schedule()))
            case "/maintenance/status":
                return json_page(orjson.dumps(maintenance.status()))
            case "/teardown":
                return self._teardown(request)
            case _:
                return not_found()

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
