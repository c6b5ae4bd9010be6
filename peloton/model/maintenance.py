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
    """What an operator may do to a host whose maintenance has begun."""

    COMPLETE = "COMPLETE"  # it is DOWN and may come back
    CANCEL = "CANCEL"  # it is not DOWN yet and stays in service
    FORCE = "FORCE"  # its pods leave without grants


@dataclass(frozen=True, slots=True)
class MaintenanceRequest:
    hostname: Hostname
    ip: str
    at_most: int = 0  # hosts that may be away at a time for this one to begin; 0 = the installation's bound
    deadline_s: int = 0  # of drain, after which an operator may force it
    reason: str = ""
    capacity: Resources = Resources()  # noqa: RUF009 - frozen
    to_pool: str = ""  # host pool to which it moves instead of going down


@dataclass(frozen=True, slots=True)
class Blocker:
    """Pods of one job that may not leave the host yet."""

    job_id: str
    pod_count: int
    reason: str


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """The result of the last round of a drain."""

    pod_count: int = 0  # on the host
    leaving_count: int = 0  # of them asked to leave
    blockers: tuple[Blocker, ...] = ()
    waiting_for: str = ""


@dataclass(frozen=True, slots=True)
class HostMaintenance:
    """The stored maintenance of a host; a host without one is UP and stays so. Times are unix nanoseconds."""

    cluster: str
    hostname: Hostname
    state: HostState
    goal: HostState  # DOWN, or UP again; of a host that moves, DOWN until it is in its host pool
    ip: str = ""
    seq: int = 0  # in the order of the requests
    at_most: int = 0
    deadline_s: int = 0
    is_forced: bool = False
    reason: str = ""
    requested_ns: int = 0
    drained_from_ns: int = 0  # when its drain began; 0 = it waits for its turn
    changed_ns: int = 0
    progress: DrainProgress = DrainProgress()
    capacity: Resources = Resources()  # noqa: RUF009 - frozen; at the request: Mesos forgets hosts that are down
    to_pool: str = ""  # host pool to which it moves once it is drained, instead of going down

    @property
    def is_move(self) -> bool:
        return bool(self.to_pool)

    @property
    def deadline_ns(self) -> int:
        """From when on the drain may be forced; 0 while it has not begun."""
        return self.drained_from_ns + self.deadline_s * NS_PER_S if self.drained_from_ns else 0

    @property
    def waits_for_turn(self) -> bool:
        return self.state is HostState.UP and self.goal is HostState.DOWN

    @property
    def is_away(self) -> bool:
        """Takes no pods, and counts against the bound."""
        return self.state is not HostState.UP

    @property
    def is_over(self) -> bool:
        return self.state is HostState.UP and self.goal is HostState.UP


@dataclass(frozen=True, slots=True)
class Resident:
    """A pod that storage believes on a host."""

    job_id: JobId
    instance_id: int
    job_type: JobType
    is_leaving: bool  # it is ending, here for good or to run anew
    has_volume: bool = False  # on this host: it can run nowhere else
