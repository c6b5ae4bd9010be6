"""Hosts in the form shown to users."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from peloton.lifecycle.constraints import label_pairs
from peloton.lifecycle.reason_text import explain_avoidance
from peloton.model.host import Host, HostState
from peloton.model.ids import Hostname
from peloton.model.maintenance import HostMaintenance
from peloton.model.misfit import Misfit
from peloton.model.resources import Resources
from services.hostmgr.driver import NOTHING, RegisteredHost

T = TypeVar("T")


def list_hosts(
    hosts: Mapping[Hostname, RegisteredHost],
    withdrawn: Mapping[Hostname, RegisteredHost],
    maintained: Mapping[Hostname, HostMaintenance],
    free: Mapping[Hostname, Resources],
    avoided: Mapping[Hostname, tuple[Misfit, float]],
    cluster_labels: Mapping[str, str],
    wall_ns: int,
    names: Collection[str] = (),
) -> list[Host]:
    """Return registered hosts, hosts that cluster operators have made unschedulable, and hosts in maintenance that are
    neither, by host name. ``avoided`` has the reason and the remaining seconds. ``cluster_labels`` apply to every host,
    including hosts that are down. ``names`` selects hosts; empty selects all."""
    if names:
        hosts, withdrawn, maintained = _select(hosts, names), _select(withdrawn, names), _select(maintained, names)
    found = [_describe_registered(a, maintained.get(name), free.get(name, NOTHING)) for name, a in hosts.items()]
    found += [_withdrawn(host) for name, host in withdrawn.items() if name not in maintained]
    found += [_describe_unregistered(host, cluster_labels) for name, host in maintained.items() if name not in hosts]
    for at, host in enumerate(found):
        if host.hostname in avoided:
            why, seconds = avoided[host.hostname]
            end = datetime.fromtimestamp(wall_ns / 1e9 + seconds, UTC)
            found[at] = replace(host, avoided=f"{explain_avoidance(why)}, until {end:%Y-%m-%d %H:%M:%S} UTC")
    return sorted(found, key=lambda host: host.hostname)


def _select(hosts: Mapping[Hostname, T], names: Collection[str]) -> dict[Hostname, T]:
    return {name: hosts[name] for name in map(Hostname, names) if name in hosts}


def _describe_registered(host: RegisteredHost, maintained: HostMaintenance | None, free: Resources) -> Host:
    state, goal = (maintained.state, maintained.goal) if maintained else (HostState.UP, HostState.UP)
    labels = label_pairs(host.labels)
    amounts = (host.capacity, host.revocable, free)
    return Host(
        host.hostname, state, *amounts, labels=labels, ip=host.ip, goal=goal, revocable_held=host.revocable_held
    )


def _withdrawn(host: RegisteredHost) -> Host:
    labels = label_pairs(host.labels)
    amounts = (NOTHING, NOTHING, NOTHING)
    goal = HostState.UP if host.state is HostState.UP else HostState.DRAINED
    return Host(host.hostname, host.state, *amounts, labels=labels, ip=host.ip, goal=goal, avoided=host.withdrawn)


def _describe_unregistered(host: HostMaintenance, cluster_labels: Mapping[str, str]) -> Host:
    labels = tuple(sorted(cluster_labels.items()))
    return Host(host.hostname, host.state, NOTHING, NOTHING, NOTHING, labels, ip=host.ip, goal=host.goal)
