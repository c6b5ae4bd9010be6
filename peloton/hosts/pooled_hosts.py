"""The hosts of this cluster with their host pools applied: with the label of the pool, and more resources by its
overcommit factors. While host pools are disabled hosts stay as the cluster reports them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from peloton.hosts.announced import NOTHING, RegisteredHost
from peloton.hosts.asked_amounts import AskedAmounts
from peloton.lifecycle.host_pools import (
    announce,
    announce_with_volumes,
    compute_announced_free,
    host_pool_labels,
    serving,
)
from peloton.model.host_pool import AT_PAR, Factors, HostPools, Workload
from peloton.model.ids import Hostname
from peloton.model.resources import Resources


@dataclass(frozen=True, slots=True)
class _Pool:
    """Properties that a host inherits from its host pool; equal ones are the same object."""

    labels: Mapping[str, str]
    factors: Factors


class PooledHosts:
    """Hosts with their host pools."""

    def __init__(self) -> None:
        self.asked = AskedAmounts()
        self._pools: HostPools | None = None
        self._by_name: dict[str, _Pool] = {}
        # -> host as reported by the cluster, its host pool at that time, host with the pool applied
        self._hosts: dict[Hostname, tuple[RegisteredHost, _Pool, RegisteredHost]] = {}

    @property
    def are_used(self) -> bool:
        return self._pools is not None

    @property
    def pools(self) -> HostPools | None:
        """Return the host pools; None while they are disabled."""
        return self._pools

    @property
    def version(self) -> int:
        """Return the version of the host pools, which rises with each change."""
        return self._pools.version if self._pools is not None else -1

    def set_pools(self, pools: HostPools) -> None:
        serves = serving(pools.pools.values())
        fresh = {
            name: _Pool(host_pool_labels(name, serves[name], pool.factors), pool.factors)
            for name, pool in pools.pools.items()
        }
        before = self._by_name
        self._by_name = {name: before[name] if before.get(name) == pool else pool for name, pool in fresh.items()}
        self._pools = pools

    def update(self, hosts: Sequence[RegisteredHost]) -> tuple[Sequence[RegisteredHost], list[Hostname]]:
        """Apply host pools to all hosts. Returns the hosts, and which of them have changed or are gone; the others
        are the same objects as before."""
        if self._pools is None:
            return hosts, []
        changed: list[Hostname] = []
        found: dict[Hostname, tuple[RegisteredHost, _Pool, RegisteredHost]] = {}
        for host in hosts:
            pool, known = self._pool_for(host.hostname), self._hosts.get(host.hostname)
            if known is not None and known[0] is host and known[1] is pool:
                found[host.hostname] = known
            else:
                found[host.hostname] = (host, pool, _apply_pool(host, pool))
                changed.append(host.hostname)
        changed += self._hosts.keys() - found.keys()
        self._hosts = found
        return [seen for _, _, seen in found.values()], changed

    def again(self) -> tuple[Sequence[RegisteredHost], list[Hostname]]:
        """Apply changed host pools to the hosts of the last call of ``update``."""
        return self.update([host for host, *_ in self._hosts.values()])

    def _pool_for(self, hostname: str) -> _Pool:
        assert self._pools is not None
        return self._by_name[self._pools.of(hostname).current]

    def serves(self) -> dict[str, frozenset[Workload]]:
        """Return the workloads that each host pool serves; empty while host pools are disabled."""
        return serving(self._pools.pools.values()) if self._pools is not None else {}

    def pool_of(self, hostname: str) -> str:
        """Return the name of the host pool, once host pools are enabled."""
        assert self._pools is not None
        return self._pools.of(hostname).current

    def moving(self) -> dict[Hostname, str]:
        places = self._pools.hosts if self._pools is not None else {}
        return {host: place.desired for host, place in places.items() if place.is_moving}

    def move_bounds(self) -> dict[Hostname, int]:
        return dict(self._pools.at_most) if self._pools is not None else {}

    def labels_of(self, hostname: str) -> Mapping[str, str]:
        return self._pool_for(hostname).labels if self._pools is not None else {}

    def factors_of(self, hostname: str) -> Factors:
        return self._pool_for(hostname).factors if self._pools is not None else AT_PAR

    def free_on(self, hostname: Hostname, free: Resources) -> Resources:
        """Return the resources available to pods out of these free resources of the cluster, without the disk of
        volumes. Nothing is available before the host is registered, as its capacity is unknown until then."""
        if self._pools is None:
            return free
        known = self._hosts.get(hostname)
        capacity = known[2].capacity - Resources(disk_mib=known[0].volumes_mib) if known is not None else NOTHING
        return compute_announced_free(free, capacity, self.asked.on_host(hostname), self._pool_for(hostname).factors)


def _apply_pool(host: RegisteredHost, pool: _Pool) -> RegisteredHost:
    """Apply a host pool to a host. The rest of the machine, outside its capacity, is negative where
    factors raise the capacity."""
    labels = {**host.labels, **pool.labels}
    if pool.factors == AT_PAR:
        return replace(host, labels=labels)
    capacity = announce_with_volumes(host.capacity, host.volumes_mib, pool.factors)
    held = capacity - announce(host.free, pool.factors)
    held_by_others = host.capacity + host.held_by_others - capacity
    return replace(host, capacity=capacity, labels=labels, held=held, held_by_others=held_by_others)
