"""Daemons: jobs with one pod on each matching host, whose instances are bound to hosts."""

from __future__ import annotations

from dataclasses import dataclass

from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.pod import PodShape
from peloton.model.reason import PlacementReason, RefusingHosts
from peloton.model.resources import Resources


@dataclass(frozen=True, slots=True)
class Seat:
    """The host to which an instance of a daemon is bound, or was bound last."""

    instance_id: int
    hostname: Hostname
    cluster: str
    gone_ns: int = 0  # time since which the host does not match; 0 = the host matches
    is_wanted: bool = True  # whether the goal of the pod is to run


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon whose goal is to run. ``shape``: the resources and constraints of one pod. ``life`` rises when the
    daemon is stopped and started."""

    job_id: JobId
    shape: PodShape
    life: int = 0


@dataclass(frozen=True, slots=True)
class WaitingDaemonPod:
    """A pod of a daemon that is not on its host yet."""

    instance_id: int
    run_id: int
    hostname: Hostname
    shape: PodShape


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A pod on the host where a daemon has to run. ``holds``: the ordinary (not revocable) resources of the pod."""

    pod_id: PodId
    priority: int
    started_ns: int
    holds: Resources
    may_leave: bool  # the pod is preemptible
    is_leaving: bool
    ends_itself: bool = False  # the pod belongs to a batch job


@dataclass(frozen=True, slots=True)
class DaemonStep:
    """Result of one step of matching a daemon to its hosts. ``more``: the next step follows at once, with the instances
    above ``after``."""

    changed_count: int = 0  # instances created or ended with their hosts
    launched_count: int = 0
    waiting_count: int = 0  # examined, and still not on their hosts
    more: bool = False
    after: int = -1
    why: PlacementReason = ()  # why the waiting pods wait
    is_over: bool = False  # the daemon has to end


@dataclass(frozen=True, slots=True)
class DaemonReach:
    """Number of hosts of a cluster that match a daemon, and why the others refuse it."""

    matching_count: int
    refusing: tuple[RefusingHosts, ...] = ()
    cluster: str = ""  # empty if there is only one cluster


@dataclass(frozen=True, slots=True)
class DaemonHost:
    """A host that matches a daemon which is only planned. ``left``: capacity that the other daemons leave.
    ``has_capacity``: one pod fits now."""

    hostname: Hostname
    capacity: Resources
    left: Resources
    has_capacity: bool = False
    is_unavailable: bool = False  # in maintenance


@dataclass(frozen=True, slots=True)
class DaemonPlan:
    """Capacity for a planned daemon on the hosts of a cluster. Each matching host counts once: ``unavailable_count``
    are in maintenance, ``free_count`` have free resources now, ``evicting_count`` would have them after the eviction of
    ``evicted_count`` preemptible pods, ``waiting_count`` have to wait until other pods end. ``unchecked_count`` have no
    free resources, and their pods were not examined. ``overhead``: the daemon's part of ``capacity``, which counts
    hosts that take pods."""

    reach: DaemonReach
    unavailable_count: int = 0
    free_count: int = 0
    evicting_count: int = 0
    evicted_count: int = 0
    waiting_count: int = 0
    unchecked_count: int = 0
    overhead: Resources = Resources()  # noqa: RUF009 - frozen
    capacity: Resources = Resources()  # noqa: RUF009 - frozen
