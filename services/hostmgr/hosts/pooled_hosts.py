"""The hosts of this cluster as their host pools announce them: with the label of the pool, and more room by its
factors. Until host pools are in use hosts stay as the cluster announces them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from peloton.lifecycle.host_pools import announced, announced_room, announced_with_volumes, host_pool_labels, serving
from peloton.model.host_pool import AT_PAR, Factors, HostInPool, HostPools, Workload
from peloton.model.ids import Hostname
from peloton.model.resources import Resources
from services.hostmgr.driver import NOTHING, RegisteredHost
from services.hostmgr.hosts.asked_amounts import AskedAmounts


@dataclass(frozen=True, slots=True)
class _Pool:
    """What a host has of its host pool; equal ones are the same object."""

    labels: Mapping[str, str]
    factors: Factors


class PooledHosts:
    """``HostBook`` owns it, and its lock."""

    def __init__(self) -> None:
        self.asked = AskedAmounts()
        self._pools: HostPools | None = None
        self._by_name: dict[str, _Pool] = {}
        # -> as the cluster announces it, its host pool then, as the host pool announces it
        self._hosts: dict[Hostname, tuple[RegisteredHost, _Pool, RegisteredHost]] = {}

    @property
    def are_used(self) -> bool:
        return self._pools is not None

    @property
    def pools(self) -> HostPools | None:
        """As they are now; None while host pools are not in use."""
        return self._pools

    @property
    def version(self) -> int:
        """Of what is known; rises with each change."""
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

    def take_in(self, hosts: Sequence[RegisteredHost]) -> tuple[Sequence[RegisteredHost], list[Hostname]]:
        """All hosts as their host pools announce them, and which have changed or are gone; the others are the same
        objects as before."""
        if self._pools is None:
            return hosts, []
        changed: list[Hostname] = []
        found: dict[Hostname, tuple[RegisteredHost, _Pool, RegisteredHost]] = {}
        for host in hosts:
            pool, known = self._of(host.hostname), self._hosts.get(host.hostname)
            if known is not None and known[0] is host and known[1] is pool:
                found[host.hostname] = known
            else:
                found[host.hostname] = (host, pool, _announced(host, pool))
                changed.append(host.hostname)
        changed += self._hosts.keys() - found.keys()
        self._hosts = found
        return [seen for _, _, seen in found.values()], changed

    def again(self) -> tuple[Sequence[RegisteredHost], list[Hostname]]:
        """The hosts that were taken in last, after host pools have changed."""
        return self.take_in([host for host, *_ in self._hosts.values()])

    def _of(self, hostname: str) -> _Pool:
        assert self._pools is not None
        return self._by_name[self._pools.of(hostname).current]

    def serves(self) -> dict[str, frozenset[Workload]]:
        """What each host pool serves; none while host pools are not in use."""
        return serving(self._pools.pools.values()) if self._pools is not None else {}

    def place_of(self, hostname: str) -> HostInPool | None:
        """None while host pools are not in use."""
        return self._pools.of(hostname) if self._pools is not None else None

    def pool_of(self, hostname: str) -> str:
        """The name of its host pool, once host pools are in use."""
        assert self._pools is not None
        return self._pools.of(hostname).current

    def moving(self) -> dict[Hostname, str]:
        places = self._pools.hosts if self._pools is not None else {}
        return {host: place.desired for host, place in places.items() if place.is_moving}

    def move_bounds(self) -> dict[Hostname, int]:
        return dict(self._pools.at_most) if self._pools is not None else {}

    def labels_of(self, hostname: str) -> Mapping[str, str]:
        return self._of(hostname).labels if self._pools is not None else {}

    def factors_of(self, hostname: str) -> Factors:
        return self._of(hostname).factors if self._pools is not None else AT_PAR

    def room_of(self, hostname: Hostname, free: Resources) -> Resources:
        """What may be given to pods there of so much free room of the cluster: none of what volumes have. Nothing
        before the host is registered: until then it is not known how much it has."""
        if self._pools is None:
            return free
        known = self._hosts.get(hostname)
        capacity = known[2].capacity - Resources(disk_mib=known[0].volumes_mib) if known is not None else NOTHING
        return announced_room(free, capacity, self.asked.on_host(hostname), self._of(hostname).factors)


def _announced(host: RegisteredHost, pool: _Pool) -> RegisteredHost:
    """Of what a host has, ``beside`` says how much of it is not in its capacity: it is negative where the capacity is
    announced with a factor."""
    labels = {**host.labels, **pool.labels}
    if pool.factors == AT_PAR:
        return replace(host, labels=labels)
    capacity = announced_with_volumes(host.capacity, host.volumes_mib, pool.factors)
    held = capacity - announced(host.free, pool.factors)
    beside = host.capacity + host.beside - capacity
    return replace(host, capacity=capacity, labels=labels, held=held, beside=beside)
