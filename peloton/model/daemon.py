"""A daemon: a job with one pod on each host that matches, whose instances belong to hosts."""

from __future__ import annotations

from dataclasses import dataclass

from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.pod import PodShape
from peloton.model.reason import PlacementReason, RefusingHosts
from peloton.model.resources import Resources


@dataclass(frozen=True, slots=True)
class Seat:
    """The host that has an instance of a daemon, or had it last."""

    instance_id: int
    hostname: Hostname
    cluster: str
    gone_ns: int = 0  # since when the host does not match; 0 = it matches
    is_wanted: bool = True  # the goal of its pod: to run


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon whose goal is to run. ``shape``: what a host needs for one pod of it. ``life`` rises when it is stopped
    and started."""

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
    """A pod on the host where a daemon is to run. ``holds``: of the host's ordinary room."""

    pod_id: PodId
    priority: int
    started_ns: int
    holds: Resources
    may_leave: bool  # it is preemptible
    is_leaving: bool
    ends_itself: bool = False  # it is of a batch job


@dataclass(frozen=True, slots=True)
class DaemonStep:
    """What one step of following hosts did, and found to do. ``more``: the next step looks on at once, at instances
    above ``after``."""

    changed_count: int = 0  # instances that began or ended with their hosts
    launched_count: int = 0
    waiting_count: int = 0  # looked at, and still not on their hosts
    more: bool = False
    after: int = -1
    why: PlacementReason = ()  # of those that wait
    is_over: bool = False  # the daemon is to end


@dataclass(frozen=True, slots=True)
class DaemonReach:
    """On how many hosts of a cluster a daemon is to run, and why not on the others."""

    matching_count: int
    refusing: tuple[RefusingHosts, ...] = ()
    cluster: str = ""  # empty where there is only one


@dataclass(frozen=True, slots=True)
class DaemonHost:
    """A host that matches a daemon which is only planned. ``left``: of its capacity beside the other daemons.
    ``has_room``: for a pod of it, now."""

    hostname: Hostname
    capacity: Resources
    left: Resources
    has_room: bool = False
    is_away: bool = False  # in maintenance


@dataclass(frozen=True, slots=True)
class DaemonRoom:
    """What a daemon that is only planned would find on the hosts of a cluster. Each host that matches counts once:
    ``away_count`` are in maintenance, ``free_count`` have room now, ``evicting_count`` would have it without
    ``evicted_count`` preemptible pods, and on ``waiting_count`` it would wait until others end. ``unchecked_count``
    have no room, and the pods there were not looked at. ``overhead``: what it takes off ``capacity``, that of hosts
    which take pods."""

    reach: DaemonReach
    away_count: int = 0
    free_count: int = 0
    evicting_count: int = 0
    evicted_count: int = 0
    waiting_count: int = 0
    unchecked_count: int = 0
    overhead: Resources = Resources()  # noqa: RUF009 - frozen
    capacity: Resources = Resources()  # noqa: RUF009 - frozen
