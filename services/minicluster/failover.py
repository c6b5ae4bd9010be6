"""Another master takes over, as after the death of the leading one: what a master knows only in memory is gone.

The registry keeps agents, maintenance and what operators did. Frameworks and tasks are known again when their agents
come back, which they do by themselves, each after a moment; frameworks subscribe again and ask. No update is sent for
tasks that come back. An agent that is stopped meanwhile is waited for, and unreachable when it stays away.

With an empty registry the new master knows of no agent either: it waits for none, calls tasks there unknown, and takes
each agent that comes back as one that it does not know, and tells frameworks of its tasks.
"""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING

from services.minicluster.model import Agent

if TYPE_CHECKING:
    from services.minicluster.master import Master

AGENTS_BACK_S = 1.0
"""Within which agents register with a new master (Mesos: --registration_backoff_factor)."""
AGENT_REREGISTER_TIMEOUT_S = 600.0
"""How long a new master waits for the agents that it knows of (Mesos: --agent_reregister_timeout)."""


class MasterFailover:
    def __init__(self, master: Master) -> None:
        self._master = master
        self._random = random.Random(master.settings.seed)

    def run(self, agents_back_s: float, empty_registry: bool = False) -> int:
        """One follows at once. Returns how many agents come back, within so many seconds. The caller has the
        connections dropped."""
        self.leave()
        return self.lead(agents_back_s, empty_registry)

    def leave(self) -> None:
        """The master is gone, and until one leads agents and tasks are by themselves."""
        master = self._master
        master.is_away = True
        master.offers.begin_anew(master.id)
        master.frameworks.begin_anew()
        for agent in master.agents.known.values():
            if not agent.gone and (agent.registered or agent.recovered):
                returns = agent.online or agent.returns
                if agent.timer is not None:
                    agent.timer.cancel()
                    agent.timer = None
                master.agents.forget(agent)
                agent.returns = returns

    def lead(self, agents_back_s: float, empty_registry: bool = False) -> int:
        """A new master reads the registry. Returns how many agents come back, within so many seconds."""
        master = self._master
        master.is_away = False
        master.id = str(uuid.uuid4())
        master.started_at = master.clock.wall()
        master.offers.begin_anew(master.id)
        agents = list(master.agents.known.values())
        if empty_registry:
            master.maintenance.begin_anew()
            for agent in agents:
                master.agents.unknow(agent)
        return sum(self._await(agent, agents_back_s) for agent in agents)

    def _await(self, agent: Agent, agents_back_s: float) -> bool:
        agents, clock = self._master.agents, self._master.clock
        if agent.returns:
            agent.timer = clock.call_later(self._random.uniform(0.0, agents_back_s), agents.register, agent)
        elif agent.recovered:
            agent.timer = clock.call_later(AGENT_REREGISTER_TIMEOUT_S, agents.give_up, agent)
        return agent.returns
