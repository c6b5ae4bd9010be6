"""Simulated hosts that fail and recover: one timer for each host that can fail."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from services.lab.mesos.master.agents import Agents
from services.lab.mesos.master.maintenance import Maintenance
from services.lab.mesos.master.registry import Registry
from services.lab.mesos.model import Agent
from services.lab.shared.clock import Clock
from services.lab.shared.simulation.outcomes import HostFailures, Simulation

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FailingHosts:
    simulation: Simulation
    clock: Clock
    registry: Registry
    agents: Agents
    maintenance: Maintenance

    def start(self) -> None:
        for agent in self.registry.by_host.values():
            failures = self.simulation.host_failures(agent.spec)
            if failures is not None:
                self._wait(agent, failures, 0)

    def _wait(self, agent: Agent, failures: HostFailures, number: int) -> None:
        up_s = self.simulation.up_s(agent.spec, failures, number)
        self.clock.call_later(up_s, self._fail, agent, failures, number)

    def _fail(self, agent: Agent, failures: HostFailures, number: int) -> None:
        if agent.gone:
            return
        if not agent.online:
            # A drill has stopped it; only a drill starts it again.
            self._wait(agent, failures, number + 1)
            return
        repair_s = self.simulation.repair_s(agent.spec, failures, number)
        log.info("host %s fails for %.1f s", agent.spec.name, repair_s)
        if failures.keeps_tasks:
            self.agents.disconnect(agent)
        else:
            self.agents.crash(agent)
        self.clock.call_later(repair_s, self._repair, agent, failures, number)

    def _repair(self, agent: Agent, failures: HostFailures, number: int) -> None:
        if not self.maintenance.is_down(agent):
            self.agents.register(agent)
        self._wait(agent, failures, number + 1)
