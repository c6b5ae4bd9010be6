"""Simulated hosts that fail and come back: one timer for each host that can."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from services.minicluster.model import Agent
from services.minicluster.simulation import HostFailures

if TYPE_CHECKING:
    from services.minicluster.master import Master

log = logging.getLogger(__name__)


class FailingHosts:
    def __init__(self, master: Master) -> None:
        self._master = master
        self._clock = master.clock
        self._simulation = master.settings.simulation

    def start(self) -> None:
        for agent in self._master.agents.by_name.values():
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
            # Somebody has stopped it: it is theirs to start it again.
            self._wait(agent, failures, number + 1)
            return
        repair_s = self._simulation.repair_s(agent.spec, failures, number)
        log.info("host %s fails for %.1f s", agent.spec.name, repair_s)
        self._master.agents.lost(agent)
        if not failures.keeps_pods:
            agent.runtime.crash(list((agent.tasks or {}).values()))
        self._clock.call_later(repair_s, self._repair, agent, failures, number)

    def _repair(self, agent: Agent, failures: HostFailures, number: int) -> None:
        if not self._master.maintenance.is_down(agent):
            self._master.agents.register(agent)
        self._wait(agent, failures, number + 1)
