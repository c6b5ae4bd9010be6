"""Minicluster: the master's port, one port per agent with processes, and all parts in one process."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from services.lab.mesos.agents.containers import ProcessRuntime
from services.lab.mesos.agents.host_failures import FailingHosts
from services.lab.mesos.agents.kept_resources import KeptResources
from services.lab.mesos.agents.sandbox_collector import Collector
from services.lab.mesos.agents.sessions import Sessions
from services.lab.mesos.agents.simulated_tasks import SimulatedRuntime
from services.lab.mesos.agents.slack_estimator import Estimator
from services.lab.mesos.agents.usage_monitor import UsageMonitor
from services.lab.mesos.api.agent_server import AgentServer
from services.lab.mesos.api.master_server import MasterServer
from services.lab.mesos.master.failover import AGENTS_BACK_S
from services.lab.mesos.master.host_resources import total_of
from services.lab.mesos.master.master import Master
from services.lab.mesos.settings import MiniclusterSettings
from services.lab.shared.clock import Clock
from services.lab.shared.images import Images
from services.lab.shared.processes import Processes

log = logging.getLogger(__name__)


class Minicluster:
    """Emulated Mesos. `start` returns when the ports listen and the agents are registered; `stop` ends all
    processes."""

    def __init__(self, settings: MiniclusterSettings, clock: Clock | None = None) -> None:
        self.settings = settings = replace(settings, data_dir=settings.data_dir.resolve())
        self.clock = clock or Clock(settings.time_scale)
        self.master = Master(settings, self.clock)
        self._images = Images(self.clock, self._download_s)
        self._collector = Collector(self.clock, settings.sandbox_retention_s, settings.sandbox_disk_mb * 1024 * 1024)
        self._server = MasterServer(settings, self.master, self._images, self._collector)
        self._agent_servers: list[AgentServer] = []
        self._processes: Processes | None = None

    @property
    def port(self) -> int:
        return self._server.http.port

    def _download_s(self, host: str, image: str) -> float:
        spec = self.master.registry.by_host[host].spec
        return self.settings.simulation.download_s(spec, image, self.settings.image_download_s)

    async def start(self) -> None:
        settings, master = self.settings, self.master
        loop = asyncio.get_running_loop()
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        self.clock.attach(loop)
        await self._server.http.start(settings.host, settings.port, settings.tls)
        master.start(loop, self.port)
        if settings.simulate:
            self._add_simulated_agents()
        else:
            await self._add_agents(loop)
        if settings.slack_interval_s is not None:
            Estimator(settings.slack_interval_s, self.clock, master.registry, master.offers).start()
        log.info("minicluster with %d agents on port %d", len(settings.hosts), self.port)

    def _add_simulated_agents(self) -> None:
        settings, master = self.settings, self.master
        runtime = SimulatedRuntime(settings, self.clock, self._images, master.updates)
        for number, spec in enumerate(settings.hosts, 1):
            master.agents.register(master.agents.create(spec, self.port, runtime, number))
        FailingHosts(settings.simulation, self.clock, master.registry, master.agents, master.maintenance).start()

    async def _add_agents(self, loop: asyncio.AbstractEventLoop) -> None:
        settings, master = self.settings, self.master
        self._processes = processes = Processes(settings.data_dir)
        processes.start(loop)
        monitor = UsageMonitor(settings, self.clock)
        self._collector.start(settings.data_dir)
        kept = KeptResources(settings.data_dir)
        master.operations.changed.connect(kept.save)
        for spec in settings.hosts:
            shared = (settings, self.clock, master.updates, self._images, processes, monitor, self._collector)
            runtime = ProcessRuntime(*shared, Sessions(processes))
            server = AgentServer(settings, runtime)
            await server.http.start(settings.host, 0, settings.tls)
            self._agent_servers.append(server)
            total = kept.restore(spec, total_of(spec))
            server.agent = master.agents.create(spec, server.http.port, runtime, total=total)
            master.agents.register(server.agent)

    async def stop(self) -> None:
        self.master.stop()
        self.clock.stop()
        for agent in self.master.registry.by_host.values():
            await agent.runtime.close()
        if self._processes is not None:
            await self._processes.close()
        await self._collector.close()
        for server in self._agent_servers:
            await server.http.stop()
        await self._server.http.stop()

    def stop_master(self) -> None:
        """Stop the master, as if its process had ended: agents and tasks continue."""
        if not self.master.registry.is_away:
            self.master.failover.leave()
            self._server.http.pause()
            log.info("the master is stopped; agents and their tasks continue")

    async def start_master(self) -> None:
        """Start a new master with the registry of the last one; agents reconnect."""
        if self.master.registry.is_away:
            await self._server.http.start(self.settings.host, self.port, self.settings.tls)
            count = self.master.failover.lead(AGENTS_BACK_S)
            log.info("the master is back; %d agents look for it", count)
