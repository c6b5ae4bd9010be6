"""Hosts, leases of hosts, and placements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
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
"""Label of every host with the name of its cluster."""
CLUSTER_KIND_LABEL = "peloton/cluster-kind"
"""Label of every host with the kind of its cluster: ``mesos``, ``kubernetes`` or ``memory``."""
VOLUMES_LABEL = "peloton/volumes"
"""Label of hosts that keep volumes for pods; its value is ``KEPT``."""
KEPT = "kept"
SECRETS_LABEL = "peloton/secrets"
"""Label of hosts that cannot give pods the secrets of their jobs; its value is ``NOT_MOUNTED``."""
NOT_MOUNTED = "not-mounted"

POD_SLOTS_UNLIMITED = 2**31
"""Slots of a host that limits the resources of its pods, but not their number."""


class HostState(StrEnum):
    UP = "UP"
    DRAINING = "DRAINING"
    DRAINED = "DRAINED"
    DOWN = "DOWN"


@dataclass(frozen=True, slots=True)
class Host:
    """A host as shown to users."""

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
    reserved: str = ""  # the pod for which free resources there are reserved, until when and why
    pool: HostInPool | None = None  # None: host pools are not in use


class HostPoolCapacity(NamedTuple):
    """Sums over the hosts of a host pool that take pods."""

    name: str
    serves: frozenset[Workload]
    up: Resources
    slack_cpu_milli: int = 0


class Capacity(NamedTuple):
    """Sums over the hosts of a cluster, or of all clusters."""

    up: Resources  # hosts that take pods
    revocable: Resources  # revocable resources of these hosts
    registered: Resources  # all hosts, including draining hosts and hosts down for maintenance
    host_pools: tuple[HostPoolCapacity, ...] = ()  # they add up to ``up``; empty: host pools are not in use


class ClusterSums(NamedTuple):
    """Sums over the hosts of one cluster, for its time series."""

    capacity: Resources  # hosts that take pods
    registered: Resources  # all hosts present
    allocation: Resources  # resources of these held by pods of any owner, including revocable cpu
    slack_allocation_milli: int  # revocable part of the allocation
    slack_milli: int  # revocable cpu of hosts that take pods
    use: Resources  # measured, in cpu and memory, on the hosts that are measured
    measured_count: int
    states: Mapping[HostState, int]


@dataclass(frozen=True, slots=True)
class LeasedHost:
    """Free resources of one host, held by a lease until its holder launches or releases, or the lease expires."""

    hostname: Hostname
    free: Resources
    revocable: Resources
    ports: tuple[tuple[int, int], ...] = ()  # inclusive ranges
    labels: tuple[tuple[str, str], ...] = ()
    pod_labels: tuple[tuple[Label, int], ...] = ()  # label that a constraint names -> pods with it on the host
    capacity: Resources = field(default_factory=Resources)
    is_deprioritized: bool = False  # pods of the job failed there: it is tried last
    pod_slots: int = POD_SLOTS_UNLIMITED  # number of pods that it still takes, whatever their resources
    load_beyond: tuple[int, int] = (0, 0)  # cpu and memory measured beyond what pods hold, in thousandths of the host


@dataclass(frozen=True, slots=True)
class HostLease:
    lease_id: str
    hosts: tuple[LeasedHost, ...]
    refused: dict[PodShape, tuple[RefusingHosts, ...]] = field(default_factory=dict)  # where the hosts are too few
    awaited: tuple[tuple[int, Hostname], ...] = ()  # instances that wait for free resources on their own host
    infeasible: dict[PodShape, Infeasible] = field(default_factory=dict)  # pods that no host could take even if empty
    domains: dict[PodShape, tuple[Domains, ...]] = field(default_factory=dict)  # for shapes that spread
    reserved: tuple[tuple[int, Hostname], ...] = ()  # instance and the host reserved for it
    short: frozenset[PodShape] = field(default=frozenset(), compare=False)  # not enough hosts found: not on the wire
    without_host: frozenset[PodShape] = field(default=frozenset(), compare=False)  # no host found: not on the wire
    has_deprioritized_hosts: bool = field(default=False, compare=False)  # not on the wire


@dataclass(frozen=True, slots=True)
class ReadyGang:
    """Admitted pods that must be placed together: one shape, ``(instance_id, run_id)`` each."""

    shape: PodShape
    pods: tuple[tuple[int, int], ...]
    labels: tuple[Label, ...] = ()  # pod labels that constraints of the job name
    desired_host: str = ""  # preferred host of a pod that is not in a gang
    desired_cluster: str = ""  # cluster of that host
    waited_s: float = 0.0  # time since admission of a pod that is not in a gang
    vain_count: int = 0  # consecutive admissions of such a pod without a host


@dataclass(frozen=True, slots=True)
class Desired:
    """A wanted pod that has to return to a host."""

    instance_id: int
    hostname: Hostname
    shape: PodShape


def count_shapes(gangs: Iterable[ReadyGang]) -> list[tuple[PodShape, int]]:
    """Return the number of pods of each shape, in order of first appearance."""
    counts: Counter[PodShape] = Counter()
    for gang in gangs:
        counts[gang.shape] += len(gang.pods)
    return list(counts.items())


def find_desired(gangs: Iterable[ReadyGang]) -> list[Desired]:
    """Return the pods that return to a host."""
    return [Desired(gang.pods[0][0], Hostname(gang.desired_host), gang.shape) for gang in gangs if gang.desired_host]


@dataclass(frozen=True, slots=True)
class ComingBack:
    """A pod that leaves a host and will return, with the resources that it will need there."""

    job_id: JobId
    instance_id: int
    hostname: Hostname
    resources: Resources
    grace_s: int


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """Clusters in the order of trial, and why others are skipped."""

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
    """Pods of one shape without a host. For a gang, ``instances`` holds the first member only."""

    instances: tuple[int, ...]
    infeasible: Infeasibility = ()
    unfit: str = ""  # the text in histories recorded before reasons were values

    @property
    def fits_no_host(self) -> bool:
        return bool(self.infeasible or self.unfit)


@dataclass(frozen=True, slots=True)
class PlacementBatch:
    """Result of one placement pass: pods by host under a lease, and why the others found no host.

    ``unplaced`` omits pods that wait for free resources on their own host. It omits the instances in ``reserved``, too,
    which wait for a host reserved for them.
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
    refused_count: int = 0  # no longer wanted, or launched by an earlier call
    failed_count: int = 0  # refused by the host; these pods have a new run
    why: PlacementReason = ()  # why nothing was launched
    requeued_count: int = 0  # returned to the queue


class LaunchedBatch(NamedTuple):
    """Result of one placement and the launch of its pods."""

    launch: LaunchResult
    left: PlacementBatch  # pods without a host; the placements were launched and are not repeated here


@dataclass(frozen=True, slots=True)
class GangLaunch:
    """Result of one attempt to place and launch a whole gang."""

    launched_count: int = 0
    failed_count: int = 0  # refused by the host; the gang is queued again
    why: PlacementReason = ()  # why nothing was launched
    infeasible: Infeasibility = ()  # a member fits no host, even an empty one


PREFETCH_MAX = 10_000
"""Maximum pairs of image and host that are fetched ahead at a time."""


@dataclass(frozen=True, slots=True)
class Prefetched:
    asked_count: int = 0  # pairs of image and host that were requested
    is_possible: bool = True  # False: no prefetcher is configured
