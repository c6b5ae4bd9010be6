"""A minicluster: the master's port, one port per real agent, and everything behind them in one process."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from urllib.parse import parse_qs, unquote

import orjson

from services.minicluster import state_v0, statistics, summary_v0
from services.minicluster.agent_api import PATH as AGENT_API_PATH
from services.minicluster.agent_api import RECORDIO_TYPE, AgentApi, SessionInput
from services.minicluster.authentication import Authentication, agent_realm, master_realm
from services.minicluster.clock import Clock
from services.minicluster.collector import PATH as SANDBOXES_PATH
from services.minicluster.collector import Collector, SandboxesApi
from services.minicluster.cross_site import Guard
from services.minicluster.drills import Drills
from services.minicluster.estimator import Estimator
from services.minicluster.executor import RealRuntime
from services.minicluster.failover import AGENTS_BACK_S, MasterFailover
from services.minicluster.files import Files
from services.minicluster.host_failures import FailingHosts
from services.minicluster.http import HttpServer, Request, Response, json_page, not_found, plain
from services.minicluster.images import PATH as IMAGES_PATH
from services.minicluster.images import ImagesApi
from services.minicluster.master import VERSION, Master
from services.minicluster.model import Agent
from services.minicluster.operator_api import OperatorApi
from services.minicluster.processes import Processes
from services.minicluster.scheduler_api import SchedulerApi, method_fault
from services.minicluster.sessions import Sessions
from services.minicluster.settings import MiniclusterSettings
from services.minicluster.simulated import SimulatedRuntime
from services.minicluster.usage import UsageMonitor

log = logging.getLogger(__name__)


class AgentServer:
    """The HTTP side of one real agent: state, health and the files of its sandboxes."""

    def __init__(self, master: Master) -> None:
        self._master = master
        self.agent: Agent | None = None
        self._files: Files | None = None
        self._api: AgentApi | None = None
        self._sessions: Sessions | None = None
        settings = master.settings
        self._authentication = Authentication(settings.credentials)
        guard = Guard(settings.host, settings.allowed_hosts)
        self.http = HttpServer(self._handle, settings.request_body_bytes, guard, self._body_reader)

    def attach(self, agent: Agent, runtime: RealRuntime) -> None:
        self.agent = agent
        self._files = Files(self._master.settings.data_dir, agent.id)
        self._api, self._sessions = AgentApi(runtime, runtime.sessions), runtime.sessions

    def _body_reader(self, path: str, headers: dict[str, str], client: asyncio.Transport) -> SessionInput | None:
        is_input = _agent_path(path) == AGENT_API_PATH and headers.get("content-type") == RECORDIO_TYPE
        if not is_input or self._sessions is None or self._authentication.principal(headers) is None:
            return None
        return SessionInput(self._sessions, client)

    def _handle(self, request: Request) -> Response | bytes | None:
        assert self.agent is not None
        assert self._files is not None
        assert self._api is not None
        path = _agent_path(request.path)
        if (refusal := self._authentication.refuse(request, agent_realm(path))) is not None:
            return refusal
        if not (self.agent.online or self.agent.returns) and not path.startswith("/files"):
            return plain(503, "Agent has not finished recovery")
        if path == AGENT_API_PATH:
            return self._api.handle(request)
        if path == "/health":
            return plain(200, "")
        if path == "/version":
            return json_page(orjson.dumps(VERSION))
        if path in ("/state", "/state.json"):
            return json_page(orjson.dumps(state_v0.agent_state(self._master, self.agent, VERSION)))
        if path in statistics.PATHS:
            return json_page(orjson.dumps(statistics.page(self.agent, path)))
        if path.startswith("/files/"):
            return self._files.handle(request)
        return not_found()


def _agent_path(path: str) -> str:
    return unquote(path).removeprefix("/slave(1)")


class Minicluster:
    """`start` returns when the ports listen and the agents are registered; `stop` leaves no process behind."""

    def __init__(self, settings: MiniclusterSettings, clock: Clock | None = None) -> None:
        settings = replace(settings, data_dir=settings.data_dir.resolve())
        self.settings = settings
        self.clock = clock or Clock(settings.time_scale)
        self.master = Master(settings, self.clock)
        guard = Guard(settings.host, settings.allowed_hosts)
        self._http = HttpServer(self._handle, settings.request_body_bytes, guard)
        self._authentication = Authentication(settings.credentials)
        self._scheduler = SchedulerApi(self.master)
        self._operator = OperatorApi(self.master, VERSION)
        self._failover = MasterFailover(self.master)
        self._drills = Drills(self.master, self._failover, self._http.drop_connections)
        self._images = ImagesApi(self.master.images, self.master.agents.by_name)
        self._agent_servers: list[AgentServer] = []
        self._processes: Processes | None = None
        self._collector = Collector(self.clock, settings.sandbox_retention_s, settings.sandbox_disk_mb * 1024 * 1024)
        self._sandboxes = SandboxesApi(self._collector)

    @property
    def port(self) -> int:
        return self._http.port

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.settings.data_dir.mkdir(parents=True, exist_ok=True)
        self.clock.attach(loop)
        await self._http.start(self.settings.host, self.settings.port, self.settings.tls)
        self.master.start(loop, self._http.port)
        if self.settings.simulate:
            runtime = SimulatedRuntime(self.master)
            for number, spec in enumerate(self.settings.hosts, 1):
                agent = self.master.agents.create(spec, self._http.port, number)
                agent.runtime = runtime
                self.master.agents.register(agent)
            FailingHosts(self.master).start()
        else:
            await self._start_real(loop)
        Estimator(self.master).start()
        log.info("minicluster with %d agents on port %d", len(self.settings.hosts), self.port)

    async def _start_real(self, loop: asyncio.AbstractEventLoop) -> None:
        self._processes = Processes(self.settings.data_dir)
        self._processes.start(loop)
        monitor = UsageMonitor(self.settings, self.clock)
        self._collector.start(self.settings.data_dir)
        ports = self.settings.agent_ports
        for index, spec in enumerate(self.settings.hosts):
            server = AgentServer(self.master)
            await server.http.start(self.settings.host, ports[index] if index < len(ports) else 0, self.settings.tls)
            self._agent_servers.append(server)
            agent = self.master.agents.create(spec, server.http.port)
            runtime = RealRuntime(self.master, agent, self._processes, monitor, self._collector)
            server.attach(agent, runtime)
            agent.runtime = runtime
            self.master.agents.register(agent)

    async def stop(self) -> None:
        self.master.stop()
        self.clock.stop()
        for agent in self.master.agents.known.values():
            if agent.runtime is not None:
                await agent.runtime.close()
        if self._processes is not None:
            await self._processes.close()
        await self._collector.close()
        for server in self._agent_servers:
            await server.http.stop()
        await self._http.stop()

    def stop_master(self) -> None:
        """As if the master's process had ended: agents and tasks run on."""
        if not self.master.is_away:
            self._failover.leave()
            self._http.pause()
            log.info("the master is away; agents and their tasks run on")

    async def start_master(self) -> None:
        """It comes back knowing what is in its registry; agents look for it."""
        if self.master.is_away:
            await self._http.start(self.settings.host, self._http.port, self.settings.tls)
            count = self._failover.lead(AGENTS_BACK_S)
            log.info("the master is back; %d agents look for it", count)

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
        agents = list(self.master.agents.by_name.values()) if self.settings.simulate else []
        if not name.isdigit() or not 0 < int(name) <= len(agents) or rest not in statistics.PATHS:
            return not_found()
        agent = agents[int(name) - 1]
        if not agent.online:
            return plain(503, "Agent has not finished recovery")
        return json_page(orjson.dumps(statistics.page(agent, rest)))

    def _get(self, path: str, request: Request) -> Response:
        master = self.master
        match path:
            case "/health":
                return plain(200, "")
            case "/version":
                return json_page(orjson.dumps(VERSION))
            case "/redirect":
                location = f"//{master.info()['hostname']}:{self.port}"
                return Response(307, b"", (("Location", location),))
            case "/state":
                return json_page(orjson.dumps(state_v0.state(master, VERSION)))
            case "/state-summary":
                return json_page(orjson.dumps(summary_v0.state_summary(master)))
            case "/frameworks":
                return json_page(orjson.dumps(summary_v0.frameworks(master)))
            case "/roles":
                return json_page(orjson.dumps(summary_v0.roles(master)))
            case "/quota":
                return json_page(b"{}")
            case "/weights":
                return json_page(b"[]")
            case "/slaves":
                return json_page(orjson.dumps(state_v0.slaves(master, full=True)))
            case "/tasks":
                query = parse_qs(request.query)
                limit = _number(query.get("limit"), state_v0.TASKS_LIMIT)
                offset = _number(query.get("offset"), 0)
                return json_page(orjson.dumps(state_v0.tasks(master, limit, offset)))
            case "/flags":
                return json_page(orjson.dumps({"flags": state_v0.flags(master)}))
            case "/metrics/snapshot":
                return json_page(orjson.dumps(state_v0.metrics(master)))
            case "/maintenance/schedule":
                return json_page(orjson.dumps(master.maintenance.schedule()))
            case "/maintenance/status":
                return json_page(orjson.dumps(master.maintenance.status()))
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
        framework = self.master.live.get(ids[0])
        if framework is None:
            return plain(400, "No framework found with specified ID")
        self.master.frameworks.remove(framework)
        return plain(200, "")


def _number(values: list[str] | None, default: int) -> int:
    return int(values[0]) if values and values[0].isdigit() else default


async def serve(settings: MiniclusterSettings, stop: asyncio.Event) -> None:
    """Run until `stop` is set."""
    cluster = Minicluster(settings)
    try:
        await cluster.start()
        await stop.wait()
    finally:
        await cluster.stop()
