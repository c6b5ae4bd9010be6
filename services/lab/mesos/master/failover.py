"""Failover to another master, as after the death of the leading one, whose in-memory state is lost.

The registry keeps agents, maintenance and operator settings. The new master learns frameworks and tasks from their
agents, each of which registers after a moment; frameworks subscribe again and reconcile. It sends no update for tasks
that come back. It waits for an agent that was stopped meanwhile, and marks it unreachable on a timeout. A new master
with an empty registry waits for no agent and reports their tasks as unknown. It treats each agent that registers as a
new one, and sends frameworks an update for each of its tasks.
"""

from __future__ import annotations

import random

from services.lab.mesos.master.agents import Agents
from services.lab.mesos.master.frameworks import Frameworks
from services.lab.mesos.master.maintenance import Maintenance
from services.lab.mesos.master.offers import Offers
from services.lab.mesos.master.registry import Registry
from services.lab.mesos.model import Agent
from services.lab.shared.clock import Clock

AGENTS_BACK_S = 1.0
"""Time in seconds within which agents register with a new master (Mesos: --registration_backoff_factor)."""
AGENT_REREGISTER_TIMEOUT_S = 600.0
"""Time in seconds that a new master waits for known agents (Mesos: --agent_reregister_timeout)."""


class Failover:
    def __init__(
        self,
        clock: Clock,
        registry: Registry,
        offers: Offers,
        frameworks: Frameworks,
        agents: Agents,
        maintenance: Maintenance,
    ) -> None:
        self._clock = clock
        self._registry = registry
        self._offers = offers
        self._frameworks = frameworks
        self._agents = agents
        self._maintenance = maintenance
        self._random = random.Random(0)

    def run(self, agents_back_s: float, empty_registry: bool = False) -> int:
        """Replace the master at once; returns the number of agents that return within ``agents_back_s``.

        The caller drops the connections.
        """
        self.leave()
        return self.lead(agents_back_s, empty_registry)

    def leave(self) -> None:
        """Stop the leading master; agents and tasks continue without one."""
        registry = self._registry
        registry.is_away = True
        self._offers.reset_state(registry.id)
        self._frameworks.reset_state()
        for agent in registry.agents.values():
            if not agent.gone and (agent.registered or agent.recovered):
                returns = agent.online or agent.returns
                self._agents.forget(agent)
                agent.returns = returns

    def lead(self, agents_back_s: float, empty_registry: bool = False) -> int:
        """Start a new master from the registry; returns the number of agents that return within ``agents_back_s``."""
        registry = self._registry
        registry.lead_again(self._clock.wall())
        self._offers.reset_state(registry.id)
        agents = list(registry.agents.values())
        if empty_registry:
            self._maintenance.reset_state()
            for agent in agents:
                self._agents.unlist(agent)
        return sum(self._await(agent, agents_back_s) for agent in agents)

    def _await(self, agent: Agent, agents_back_s: float) -> bool:
        if agent.returns:
            delay_s = self._random.uniform(0.0, agents_back_s)
            agent.timer = self._clock.call_later(delay_s, self._agents.register, agent)
        elif agent.recovered:
            agent.timer = self._clock.call_later(AGENT_REREGISTER_TIMEOUT_S, self._agents.give_up, agent)
        return agent.returns
