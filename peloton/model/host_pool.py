"""Host pools: virtual partitions of the hosts of all clusters. A host is in exactly one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from peloton.model.ids import Hostname
from peloton.model.resources import Resources

DEFAULT_HOST_POOL = "default"
"""Host pool of hosts without an assignment. It always exists."""
HOST_POOL_LABEL = "peloton/host-pool"
"""Label of every host with the name of its host pool, once host pools are in use."""
ORIGINAL_HOST_POOL_LABEL = "host_pool"
"""Older name of the same label, which constraints use."""
SERVED_LABEL = "peloton/host-pool-serves"
"""Label of every host with the workloads that its host pool serves, separated by commas, once host pools are in use."""
DISK_LABEL = "peloton/host-pool-disk"
"""Label of a host whose host pool overcommits disk, with the factor in percent."""
HOST_POOL_NAME_MAX = 63


class Workload(StrEnum):
    """Kind of work of a pod, by which it is routed to host pools."""

    ANY = ""  # hosts of all host pools
    BATCH = "batch"  # not preemptible
    SHARED = "shared"  # preemptible batch
    STATELESS = "stateless"
    STATEFUL = "stateful"
    GPU = "gpu"

    __hash__ = str.__hash__  # faster than Enum's own, and every shape is hashed


class Factors(NamedTuple):
    """Announced resources in percent of a host's capacity. Gpus and ports are never overcommitted."""

    cpu_percent: int = 100
    memory_percent: int = 100
    disk_percent: int = 100


AT_PAR = Factors()
FACTOR_PERCENT_MAX = 1_000


@dataclass(frozen=True, slots=True)
class HostPool:
    """A host pool. ``serves``: requested workloads; the default host pool also serves each workload that no other
    serves."""

    name: str
    serves: frozenset[Workload] = frozenset()
    factors: Factors = AT_PAR
    created_ns: int = 0
    minimum: int = 0  # hosts that the mover leaves in it


class HostInPool(NamedTuple):
    """The current and the desired host pool of a host; they differ while the host moves."""

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
    hosts: Mapping[Hostname, HostInPool] = field(default_factory=dict)  # without hosts that are settled in the default
    lent: Mapping[Hostname, str] = field(default_factory=dict)  # host taken by the mover -> its original host pool
    at_most: Mapping[Hostname, int] = field(default_factory=dict)  # moving host -> unavailable hosts allowed for it
    is_mover_on: bool = False

    def of(self, hostname: str) -> HostInPool:
        return self.hosts.get(Hostname(hostname), IN_DEFAULT)


class HostPoolTotals(NamedTuple):
    """Hosts of a host pool that take pods: announced resources, and resources requested by their pods."""

    host_count: int = 0
    capacity: Resources = Resources()
    used: Resources = Resources()


def sum_totals(all_totals: Iterable[HostPoolTotals]) -> HostPoolTotals:
    total = HostPoolTotals()
    for of_pool in all_totals:
        total = HostPoolTotals(
            total.host_count + of_pool.host_count, total.capacity + of_pool.capacity, total.used + of_pool.used
        )
    return total


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Pods of a host, as sums. A pod that has not started counts a run time of 0."""

    hostname: Hostname
    pod_count: int = 0
    unpreemptible_count: int = 0
    controller_count: int = 0
    priority_sum: int = 0
    run_s_sum: int = 0
