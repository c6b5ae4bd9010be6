"""Host pools: virtual partitions of the hosts of all clusters. A host is in exactly one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from peloton.model.ids import Hostname
from peloton.model.resources import Resources

DEFAULT_HOST_POOL = "default"
"""Where a host is if nobody said otherwise. It always exists."""
HOST_POOL_LABEL = "peloton/host-pool"
"""Every host has this label once host pools are in use: the name of its host pool."""
ORIGINAL_HOST_POOL_LABEL = "host_pool"
"""The same under its older name, which constraints use."""
SERVED_LABEL = "peloton/host-pool-serves"
"""Every host has this label once host pools are in use: the workloads that its host pool serves, with commas between
them."""
DISK_LABEL = "peloton/host-pool-disk"
"""A host has this label where its host pool announces disk with a factor: that in percent."""
HOST_POOL_NAME_MAX = 63


class Workload(StrEnum):
    """What kind of work a pod is, by which it is routed to host pools."""

    ANY = ""  # it goes to hosts of all host pools
    BATCH = "batch"  # not preemptible
    SHARED = "shared"  # preemptible batch
    STATELESS = "stateless"
    STATEFUL = "stateful"
    GPU = "gpu"

    __hash__ = str.__hash__  # Enum's own is slow, and every shape of a pod has one


class Factors(NamedTuple):
    """Announced room in percent of what a host has. Gpus and ports are never announced twice."""

    cpu_percent: int = 100
    memory_percent: int = 100
    disk_percent: int = 100


AT_PAR = Factors()
FACTOR_PERCENT_MAX = 1_000


@dataclass(frozen=True, slots=True)
class HostPool:
    """``serves``: workloads that are asked for. The default host pool serves beside them what no host pool serves."""

    name: str
    serves: frozenset[Workload] = frozenset()
    factors: Factors = AT_PAR
    created_ns: int = 0
    minimum: int = 0  # hosts that the mover leaves it


class HostInPool(NamedTuple):
    """The host pool in which a host is, and the one in which it is to be; other than the first while it moves."""

    current: str
    desired: str

    @property
    def is_moving(self) -> bool:
        return self.current != self.desired


IN_DEFAULT = HostInPool(DEFAULT_HOST_POOL, DEFAULT_HOST_POOL)


@dataclass(frozen=True, slots=True)
class HostPools:
    """All host pools at one moment. ``version`` rises with each change."""

    version: int = 0
    pools: Mapping[str, HostPool] = field(default_factory=lambda: {DEFAULT_HOST_POOL: HostPool(DEFAULT_HOST_POOL)})
    hosts: Mapping[Hostname, HostInPool] = field(default_factory=dict)  # without those that are at rest in the default
    lent: Mapping[Hostname, str] = field(default_factory=dict)  # host that the mover took -> the host pool it was in
    at_most: Mapping[Hostname, int] = field(default_factory=dict)  # host that moves -> hosts that may be away then
    is_mover_on: bool = False

    def of(self, hostname: str) -> HostInPool:
        return self.hosts.get(Hostname(hostname), IN_DEFAULT)


class PoolRoom(NamedTuple):
    """Hosts of a host pool that take pods: all that they announce, and what their pods have asked for."""

    host_count: int = 0
    capacity: Resources = Resources()
    used: Resources = Resources()


def joined_rooms(rooms: Iterable[PoolRoom]) -> PoolRoom:
    total = PoolRoom()
    for room in rooms:
        total = PoolRoom(total.host_count + room.host_count, total.capacity + room.capacity, total.used + room.used)
    return total


@dataclass(frozen=True, slots=True)
class Occupancy:
    """What is on a host. Sums are over its pods; a pod that has not started yet has run for no time."""

    hostname: Hostname
    pod_count: int = 0
    unpreemptible_count: int = 0
    controller_count: int = 0
    priority_sum: int = 0
    run_s_sum: int = 0
