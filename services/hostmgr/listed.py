"""Hosts as people see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from peloton.model.host import Host, HostState
from peloton.model.ids import Hostname
from peloton.model.maintenance import HostMaintenance
from peloton.model.resources import Resources
from services.hostmgr.room import NOTHING, RegisteredHost


def listed(
    agents: Mapping[Hostname, RegisteredHost],
    withdrawn: Mapping[Hostname, RegisteredHost],
    maintained: Mapping[Hostname, HostMaintenance],
    free: Mapping[Hostname, Resources],
    avoided: Mapping[Hostname, tuple[str, float]],
    wall_ns: int,
) -> list[Host]:
    """Registered agents, those that operators of Mesos have withdrawn, and those in maintenance that are neither; by
    host name. ``avoided``: why, and for how many seconds from now."""
    found = [_registered(a, maintained.get(name), free.get(name, NOTHING)) for name, a in agents.items()]
    found += [_withdrawn(agent) for name, agent in withdrawn.items() if name not in maintained]
    found += [_gone(host) for name, host in maintained.items() if name not in agents]
    for at, host in enumerate(found):
        if host.hostname in avoided:
            why, seconds = avoided[host.hostname]
            end = datetime.fromtimestamp(wall_ns / 1e9 + seconds, UTC)
            found[at] = replace(host, avoided=f"{why.removeprefix('avoided ')}, until {end:%Y-%m-%d %H:%M:%S} UTC")
    return sorted(found, key=lambda host: host.hostname)


def _registered(agent: RegisteredHost, maintained: HostMaintenance | None, free: Resources) -> Host:
    state, goal = (maintained.state, maintained.goal) if maintained else (HostState.UP, HostState.UP)
    labels = tuple(sorted(agent.labels.items()))
    amounts = (agent.capacity, agent.revocable, free)
    return Host(agent.hostname, state, *amounts, labels, agent.ip, goal, agent.revocable_held)


def _withdrawn(agent: RegisteredHost) -> Host:
    labels = tuple(sorted(agent.labels.items()))
    amounts = (NOTHING, NOTHING, NOTHING)
    goal = HostState.UP if agent.state is HostState.UP else HostState.DRAINED
    return Host(agent.hostname, agent.state, *amounts, labels, agent.ip, goal, avoided=agent.withdrawn)


def _gone(host: HostMaintenance) -> Host:
    nothing = Resources()
    return Host(host.hostname, host.state, nothing, nothing, nothing, ip=host.ip, goal=host.goal)
