"""Hosts, leases of hosts, and placements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from peloton.model.host_pool import HostInPool, Workload
from peloton.model.ids import Hostname, JobId
from peloton.model.layout import Domains
from peloton.model.pod import Label, PodShape
from peloton.model.reason import ClusterReason, Infeasibility, Infeasible, PlacementReason, RefusingHosts
from peloton.model.resources import Resources

CLUSTER_LABEL = "peloton/cluster"
"""Every host has this label: the name of its cluster."""
CLUSTER_KIND_LABEL = "peloton/cluster-kind"
"""Every host has this label: ``mesos``, ``kubernetes`` or ``memory``."""
VOLUMES_LABEL = "peloton/volumes"
"""Of hosts that keep volumes for pods; its value is ``KEPT``."""
KEPT = "kept"
SECRETS_LABEL = "peloton/secrets"
"""Of hosts that cannot give pods the secrets of their jobs; its value is ``NOT_MOUNTED``."""
NOT_MOUNTED = "not-mounted"

POD_SLOTS_UNLIMITED = 2**31
"""Of a host that limits the amounts of its pods, and not their number."""


class HostState(StrEnum):
    UP = "UP"
    DRAINING = "DRAINING"
    DRAINED = "DRAINED"
    DOWN = "DOWN"


@dataclass(frozen=True, slots=True)
class Host:
    """A host as a person sees it."""

    hostname: Hostname
    state: HostState
    capacity: Resources
    revocable: Resources
    free: Resources
    labels: tuple[tuple[str, str], ...] = ()
    ip: str = ""
    goal: HostState = HostState.UP
    revocable_held: Resources = field(default_factory=Resources)
    avoided: str = ""  # why pods prefer other hosts
    reserved: str = ""  # for which pod the room that frees there is kept, until when and why
    pool: HostInPool | None = None  # None: host pools are not in use


class HostPoolCapacity(NamedTuple):
    """Sums over the hosts of a host pool that take pods."""

    name: str
    serves: frozenset[Workload]
    up: Resources
    slack_cpu_milli: int = 0


class Capacity(NamedTuple):
    """Sums over the hosts of a cluster, or of all clusters."""

    up: Resources  # of hosts that take pods
    revocable: Resources  # of those
    registered: Resources  # of all hosts, also those that are draining or down for maintenance
    host_pools: tuple[HostPoolCapacity, ...] = ()  # of ``up``, which they add up to; empty: host pools are not in use


class ClusterSums(NamedTuple):
    """Sums over the hosts of one cluster, as its time series have them."""

    capacity: Resources  # of hosts that take pods
    registered: Resources  # of all that are there
    allocation: Resources  # what whoever uses the cluster holds of those, revocable cpu included
    slack_allocation_milli: int  # the revocable part
    slack_milli: int  # revocable cpu of hosts that take pods
    use: Resources  # measured, in cpu and memory, on the hosts that are measured
    measured_count: int
    states: Mapping[HostState, int]


@dataclass(frozen=True, slots=True)
class LeasedHost:
    """Free resources of one host, reserved for the holder of a lease until it launches, releases, or the lease ends."""

    hostname: Hostname
    free: Resources
    revocable: Resources
    ports: tuple[tuple[int, int], ...] = ()  # inclusive ranges
    labels: tuple[tuple[str, str], ...] = ()
    pod_labels: tuple[tuple[Label, int], ...] = ()  # label named by a wanted pod -> pods there
    capacity: Resources = field(default_factory=Resources)
    is_shunned: bool = False  # pods of the job failed there: it comes last
    pod_slots: int = POD_SLOTS_UNLIMITED  # pods that it still takes, whatever they ask for
    load_beyond: tuple[int, int] = (0, 0)  # cpu and memory measured beyond what pods hold, in thousandths of the host


@dataclass(frozen=True, slots=True)
class HostLease:
    lease_id: str
    hosts: tuple[LeasedHost, ...]
    refused: dict[PodShape, tuple[RefusingHosts, ...]] = field(default_factory=dict)  # where the hosts are too few
    awaited: tuple[tuple[int, Hostname], ...] = ()  # instances that wait for room on their own host
    infeasible: dict[PodShape, Infeasible] = field(default_factory=dict)  # that no host could take even if empty
    domains: dict[PodShape, tuple[Domains, ...]] = field(default_factory=dict)  # of shapes that spread
    reserved: tuple[tuple[int, Hostname], ...] = ()  # an instance, and the host that is reserved for it
    short: frozenset[PodShape] = field(default=frozenset(), compare=False)  # too little was found: not on the wire
    homeless: frozenset[PodShape] = field(default=frozenset(), compare=False)  # nothing was found: not on the wire


@dataclass(frozen=True, slots=True)
class ReadyGang:
    """Admitted pods that must be placed together: one shape, ``(instance_id, run_id)`` each."""

    shape: PodShape
    pods: tuple[tuple[int, int], ...]
    labels: tuple[Label, ...] = ()  # of the pods, as far as constraints of their job name them
    desired_host: str = ""  # of a pod that stands alone: the host it comes back to
    desired_cluster: str = ""  # of that host
    waited_s: float = 0.0  # of a pod that stands alone: since it was admitted
    vain_count: int = 0  # of such a pod: admissions in a row for which no host was found


@dataclass(frozen=True, slots=True)
class Desired:
    """A wanted pod that is to come back to a host."""

    instance_id: int
    hostname: Hostname
    shape: PodShape


@dataclass(frozen=True, slots=True)
class ComingBack:
    """A pod that leaves a host to come back to it, with what it will need there."""

    job_id: JobId
    instance_id: int
    hostname: Hostname
    resources: Resources
    grace_s: int


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """Clusters in the order of trial, and why others are passed over."""

    order: tuple[str, ...]
    passed_over: tuple[ClusterReason, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacedPod:
    instance_id: int
    run_id: int
    ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """Pods of one job that go to one host."""

    hostname: Hostname
    pods: tuple[PlacedPod, ...]


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Like pods that found no host. Of a gang the first member stands for all."""

    instances: tuple[int, ...]
    infeasible: Infeasibility = ()
    unfit: str = ""  # how histories say it that were recorded before reasons were values

    @property
    def fits_no_host(self) -> bool:
        return bool(self.infeasible or self.unfit)


@dataclass(frozen=True, slots=True)
class PlacementBatch:
    """Result of one placement pass: pods by host under a lease, and why the rest found no host.

    ``unplaced`` leaves out pods that wait for room on their own host, and those in ``reserved``: instances that wait
    for a host which is reserved for them.
    """

    job_id: JobId
    lease_id: str
    placements: tuple[Placement, ...] = ()
    unplaced_count: int = 0
    why: PlacementReason = ()
    unplaced: tuple[Unplaced, ...] = ()
    reserved: tuple[int, ...] = ()

    @property
    def placed_count(self) -> int:
        return sum(len(p.pods) for p in self.placements)


@dataclass(frozen=True, slots=True)
class LaunchResult:
    launched_count: int
    refused_count: int = 0  # not wanted any more, or launched by an earlier call
    failed_count: int = 0  # the host refused; these pods get a new run
    why: PlacementReason = ()  # nothing was launched
    requeued_count: int = 0  # gave back their admission


@dataclass(frozen=True, slots=True)
class GangLaunch:
    """Result of one attempt to place a gang whole and to launch it."""

    launched_count: int = 0
    failed_count: int = 0  # the host refused; the gang is queued again
    why: PlacementReason = ()  # nothing was launched
    infeasible: Infeasibility = ()  # a member fits no host, even an empty one


PREFETCH_MAX = 10_000
"""Images on hosts that are fetched ahead at a time."""


@dataclass(frozen=True, slots=True)
class Prefetched:
    asked_count: int = 0  # pairs of image and host that were requested
    is_possible: bool = True  # False: no prefetcher is configured
