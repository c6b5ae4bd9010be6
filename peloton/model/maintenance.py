"""Maintenance of a host: request, state and progress."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from peloton.model.host import HostState
from peloton.model.ids import Hostname, JobId
from peloton.model.job import JobType
from peloton.model.resources import Resources
from peloton.model.times import NS_PER_S


class MaintenanceAct(StrEnum):
    """Operator's request for a host that is in maintenance."""

    COMPLETE = "COMPLETE"  # bring up a host that is DOWN
    CANCEL = "CANCEL"  # keep a host that is not DOWN yet in service
    FORCE = "FORCE"  # pods are evicted even if the SLA of their job forbids it


@dataclass(frozen=True, slots=True)
class MaintenanceRequest:
    hostname: Hostname
    ip: str
    at_most: int = 0  # maximum of unavailable hosts, this one included; 0 = the installation's default
    deadline_s: int = 0  # seconds of draining after which an operator may force it
    reason: str = ""
    capacity: Resources = Resources()  # noqa: RUF009 - frozen
    to_pool: str = ""  # host pool to which the host moves instead of going down


@dataclass(frozen=True, slots=True)
class Blocker:
    """Pods of one job that may not be evicted yet."""

    job_id: str
    pod_count: int
    reason: str


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """Result of the last round of a drain."""

    pod_count: int = 0  # pods on the host
    leaving_count: int = 0  # of these, pods that are being evicted
    blockers: tuple[Blocker, ...] = ()
    waiting_for: str = ""


@dataclass(frozen=True, slots=True)
class HostMaintenance:
    """Stored maintenance of a host. A host without one is UP. Times are unix nanoseconds."""

    cluster: str
    hostname: Hostname
    state: HostState
    goal: HostState  # DOWN, or UP once it is to return; for a move, DOWN until the host is in its new host pool
    ip: str = ""
    seq: int = 0  # order of the requests
    at_most: int = 0
    deadline_s: int = 0
    is_forced: bool = False
    reason: str = ""
    requested_ns: int = 0
    drained_from_ns: int = 0  # start of its drain; 0 = it waits for its turn
    changed_ns: int = 0
    progress: DrainProgress = DrainProgress()
    capacity: Resources = Resources()  # noqa: RUF009 - frozen; stored because Mesos forgets hosts that are down
    to_pool: str = ""  # host pool to which the host moves after the drain, instead of going down

    @property
    def is_move(self) -> bool:
        return bool(self.to_pool)

    @property
    def deadline_ns(self) -> int:
        """Time after which the drain may be forced; 0 until the drain begins."""
        return self.drained_from_ns + self.deadline_s * NS_PER_S if self.drained_from_ns else 0

    @property
    def waits_for_turn(self) -> bool:
        return self.state is HostState.UP and self.goal is HostState.DOWN

    @property
    def is_unavailable(self) -> bool:
        """True if the host takes no pods, and counts against the maximum of unavailable hosts."""
        return self.state is not HostState.UP

    @property
    def is_over(self) -> bool:
        return self.state is HostState.UP and self.goal is HostState.UP


def make_in_service(cluster: str, hostname: str) -> HostMaintenance:
    """Return the record of a host that is not in maintenance: it is UP, and stays UP."""
    return HostMaintenance(cluster, Hostname(hostname), HostState.UP, HostState.UP)


@dataclass(frozen=True, slots=True)
class HostedPod:
    """A pod that is on a host according to storage."""

    job_id: JobId
    instance_id: int
    job_type: JobType
    is_leaving: bool  # the run is being ended
    has_volume: bool = False  # its volume is on this host, so that it can run on no other
