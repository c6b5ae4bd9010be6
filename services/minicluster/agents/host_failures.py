"""Simulated hosts that fail and come back: one timer for each host that can."""

from __future__ import annotations

import logging

from services.minicluster.clock import Clock
from services.minicluster.master.agents import Agents
from services.minicluster.master.maintenance import Maintenance
from services.minicluster.master.registry import Registry
from services.minicluster.model import Agent
from services.minicluster.simulation.outcomes import HostFailures, Simulation

log = logging.getLogger(__name__)


class FailingHosts:
    def __init__(
        self, simulation: Simulation, clock: Clock, registry: Registry, agents: Agents, maintenance: Maintenance
    ) -> None:
        self._simulation = simulation
        self._clock = clock
        self._registry = registry
        self._agents = agents
        self._maintenance = maintenance

    def start(self) -> None:
        for agent in self._registry.by_host.values():
            failures = self._simulation.host_failures(agent.spec)
            if failures is not None:
                self._wait(agent, failures, 0)

    def _wait(self, agent: Agent, failures: HostFailures, number: int) -> None:
        up_s = self._simulation.up_s(agent.spec, failures, number)
        self._clock.call_later(up_s, self._fail, agent, failures, number)

    def _fail(self, agent: Agent, failures: HostFailures, number: int) -> None:
        if agent.gone:
            return
        if not agent.online:
            # A drill has stopped it, and will start it again.
            self._wait(agent, failures, number + 1)
            return
        repair_s = self._simulation.repair_s(agent.spec, failures, number)
        log.info("host %s fails for %.1f s", agent.spec.name, repair_s)
        if failures.keeps_tasks:
            self._agents.lost(agent)
        else:
            self._agents.crash(agent)
        self._clock.call_later(repair_s, self._repair, agent, failures, number)

    def _repair(self, agent: Agent, failures: HostFailures, number: int) -> None:
        if not self._maintenance.is_down(agent):
            self._agents.register(agent)
        self._wait(agent, failures, number + 1)
