"""The agents that Mesos has, and sums over them that are kept: looked up for each question they would cost all hosts.

Under the lock of ``HostPool``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from peloton.model.ids import Hostname
from peloton.model.resources import Resources
from services.hostmgr.offers import NOTHING, Agent


class RegisteredAgents:
    def __init__(self) -> None:
        self.by_name: dict[Hostname, Agent] = {}
        self.holders: dict[Hostname, Agent] = {}  # of revocable cpu
        self.revocable_cpu_milli = 0
        self._capacity = [0, 0, 0, 0]  # [R]

    @property
    def total(self) -> Resources:
        return Resources(*self._capacity)

    def replace(self, agents: Iterable[Agent]) -> None:
        """These and no others are registered now. What is the same object as before costs next to nothing."""
        before, now = self.by_name, {agent.hostname: agent for agent in agents}
        for name in before.keys() - now.keys():
            self._count(before[name], -1)
        for name, agent in now.items():
            if (old := before.get(name)) is not agent:
                if old is not None:
                    self._count(old, -1)
                self._count(agent, 1)
        self.by_name = now

    def _count(self, agent: Agent, sign: int) -> None:
        self.revocable_cpu_milli += agent.revocable.cpu_milli * sign
        for kind, amount in enumerate(agent.capacity):
            self._capacity[kind] += amount * sign
        if agent.revocable_held.cpu_milli:
            if sign > 0:
                self.holders[agent.hostname] = agent
            else:
                del self.holders[agent.hostname]

    def capacity(self, away: Collection[Hostname], closed: Mapping[Hostname, int]) -> tuple[Resources, Resources, int]:
        """Sums without agents that are away, and how many are left. Of revocable cpu those that are closed count
        with no more than this: what pods hold where no more may come."""
        gone = {name: self.by_name[name] for name in away if name in self.by_name}
        total = self.total - sum((agent.capacity for agent in gone.values()), NOTHING)
        slack = self.revocable_cpu_milli - sum(agent.revocable.cpu_milli for agent in gone.values())
        for name in closed.keys() - gone.keys():
            if name in self.by_name:
                slack -= max(self.by_name[name].revocable.cpu_milli - closed[name], 0)
        return total, Resources(cpu_milli=slack), len(self.by_name) - len(gone)
