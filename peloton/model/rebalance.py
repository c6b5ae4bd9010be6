"""Rebalancing of a cluster's hosts: its goals, the planned moves of pods, and its progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.layout import Domains
from peloton.model.pod import Label, PodShape


class Goal(StrEnum):
    """Reason for which a pod moves."""

    FREE = "FREE"  # frees resources for a pod that fits on no host
    SPREAD = "SPREAD"  # to hosts far below the mean load, such as new ones
    EMPTY = "EMPTY"  # empties a host whose few pods fit on hosts in use


class Stays(StrEnum):
    """Reason for which a pod does not move."""

    BATCH = "of batch jobs"  # they end by themselves, and would lose their work
    DAEMON = "of daemons"  # each is bound to its host
    EXTERNAL = "not Peloton's"  # their controller decides
    LEAVING = "leaving already"
    VOLUME = "with a volume on the host"
    REVOCABLE = "revocable"
    UPDATE = "of a service whose update is under way"
    SLA = "kept by the SLA"


@dataclass(frozen=True, slots=True)
class PodNow:
    """A pod on a host. ``stays``: why the pod cannot be moved."""

    pod_id: PodId
    hostname: Hostname
    shape: PodShape
    labels: tuple[Label, ...] = ()
    stays: Stays | None = None


@dataclass(frozen=True, slots=True)
class WaitingPods:
    """Admitted pods of one shape that have no host."""

    job_id: JobId
    shape: PodShape
    count: int
    labels: tuple[Label, ...] = ()
    waited_s: float = 0.0
    home: Hostname = Hostname("")  # noqa: RUF009 - preferred host, if it has free resources


@dataclass(frozen=True, slots=True)
class JobSpread:
    """Domains of a job's pods, by the shapes of the job that spread."""

    domains: Mapping[PodShape, Sequence[Domains]]
    is_whole: bool = True
    """All pods are in this cluster; the hosts of other clusters are unknown here."""


@dataclass(frozen=True, slots=True)
class PodCensus:
    """The pods of a cluster. ``others``: pods on hosts that belong to no service, counted by the reason why they stay.
    ``grants``: pods of each service that may be taken down now; a missing entry means none. ``spread``: jobs whose pods
    spread."""

    pods: Sequence[PodNow] = ()
    others: Mapping[Hostname, Mapping[Stays, int]] = field(default_factory=dict)
    waiting: Sequence[WaitingPods] = ()
    grants: Mapping[JobId, int] = field(default_factory=dict)
    spread: Mapping[JobId, JobSpread] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpreadExcess:
    """Excess of a job's pods in one domain of a label over another, above the rule's maximum skew."""

    label: str
    source: str
    target: str
    source_count: int  # including the pod
    target_count: int  # without the pod
    max_skew: int


@dataclass(frozen=True, slots=True)
class MoveReason:
    """Reason of one move. Loads are the highest utilization of any resource, in thousandths."""

    goal: Goal
    source_load: int  # before the moves of the goal there
    target_load: int  # including the pod
    move_count: int = 1  # moves of this goal from this host, some of them delayed by the SLA
    waiting_job: JobId = JobId("")  # noqa: RUF009 - job whose pod fits on no host, for FREE
    mean_load: int = 0  # mean of all hosts, for SPREAD
    is_reserved: bool = False  # the source is reserved for the waiting pod
    spread_excess: SpreadExcess | None = None  # for SPREAD: the domains that the move evens, if not the load of hosts


@dataclass(frozen=True, slots=True)
class Move:
    pod_id: PodId
    source: Hostname
    target: Hostname
    why: MoveReason


@dataclass(frozen=True, slots=True)
class RebalancePlan:
    """Moves in their order; all may be made at once. ``stuck``: jobs with pods that fit nowhere, and for which no
    bounded number of moves frees enough. ``staying``: pods that do not move, counted by reason."""

    moves: tuple[Move, ...] = ()
    stuck: tuple[JobId, ...] = ()
    staying: tuple[tuple[Stays, int], ...] = ()


class RebalanceState(StrEnum):
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPING = "STOPPING"  # no further pods move; moves under way are finished
    STOPPED = "STOPPED"


class RebalanceAct(StrEnum):
    """Request of an operator for the rebalancing of a cluster."""

    PAUSE = "PAUSE"
    RESUME = "RESUME"
    STOP = "STOP"


class MoveState(StrEnum):
    """State of a move."""

    MOVING = "MOVING"
    MOVED = "MOVED"
    ELSEWHERE = "ELSEWHERE"  # the pod runs again, on another host than planned
    ENDED = "ENDED"  # the pod has to end
    LATE = "LATE"  # the pod did not run again within the timeout


@dataclass(frozen=True, slots=True)
class RebalanceSpec:
    goals: tuple[Goal, ...]
    moves_per_hour: int


@dataclass(frozen=True, slots=True)
class RebalanceProgress:
    """Result of the last step, of bounded size."""

    state: RebalanceState = RebalanceState.STOPPED
    move_count: int = 0  # since the start
    moving_count: int = 0
    hour_count: int = 0  # moves of the last hour
    stuck: tuple[str, ...] = ()  # jobs with pods that fit nowhere and that no moves help
    staying: tuple[tuple[str, int], ...] = ()  # pods that do not move, counted by reason
    waiting_for: str = ""

    @property
    def is_over(self) -> bool:
        return self.state is RebalanceState.STOPPED


@dataclass(frozen=True, slots=True)
class Rebalance:
    """The stored rebalancing of a cluster. Times are unix nanoseconds, 0 = unset."""

    cluster: str
    spec: RebalanceSpec
    state: RebalanceState = RebalanceState.RUNNING
    move_count: int = 0
    progress: RebalanceProgress = field(default_factory=RebalanceProgress)
    started_ns: int = 0
    updated_ns: int = 0

    @property
    def is_active(self) -> bool:
        return self.state is not RebalanceState.STOPPED


@dataclass(frozen=True, slots=True)
class MoveRecord:
    """A move that was started."""

    pod_id: PodId  # the run that left
    source: Hostname
    target: Hostname
    goal: Goal
    reason: str
    state: MoveState
    begun_ns: int
    ended_ns: int = 0


@dataclass(frozen=True, slots=True)
class PodAfter:
    """The current run of a pod that was asked to move."""

    run_id: int
    host: str
    is_running: bool
    is_wanted: bool  # its goal is to run
