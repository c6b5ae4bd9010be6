"""Rebalancing of a cluster's hosts: what it is for, the moves of pods that a plan makes, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.layout import Domains
from peloton.model.pod import Label, PodShape


class Goal(StrEnum):
    """Why a pod moves."""

    FREE = "FREE"  # its room lets a pod in that fits nowhere
    SPREAD = "SPREAD"  # onto hosts that are far emptier than the others, as new ones are
    EMPTY = "EMPTY"  # its host is emptied: the few pods there fit on hosts in use


class Stays(StrEnum):
    """Why a pod does not move."""

    BATCH = "of batch jobs"  # they end by themselves, and would lose their work
    DAEMON = "of daemons"  # each belongs to its host
    EXTERNAL = "not Peloton's"  # their owner decides
    LEAVING = "leaving already"
    VOLUME = "with a volume on the host"
    REVOCABLE = "revocable"
    UPDATE = "of a service whose update is under way"
    SLA = "kept by the SLA"


@dataclass(frozen=True, slots=True)
class PodNow:
    """A pod on a host. ``stays``: why it cannot be moved."""

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
    home: Hostname = Hostname("")  # noqa: RUF009 - to which they come back, if it has room


@dataclass(frozen=True, slots=True)
class JobSpread:
    """Where the pods of a job are, by the rules of its shapes that spread."""

    domains: Mapping[PodShape, Sequence[Domains]]
    is_whole: bool = True
    """No pod is in another cluster, whose hosts are not known here."""


@dataclass(frozen=True, slots=True)
class PodCensus:
    """The pods of a cluster. ``others``: pods on hosts that are of no service, counted by why they stay. ``grants``:
    how many pods of each service may be taken down now; one without an entry has none left. ``spread``: of the jobs
    whose pods spread."""

    pods: Sequence[PodNow] = ()
    others: Mapping[Hostname, Mapping[Stays, int]] = field(default_factory=dict)
    waiting: Sequence[WaitingPods] = ()
    grants: Mapping[JobId, int] = field(default_factory=dict)
    spread: Mapping[JobId, JobSpread] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evening:
    """A job has more pods in one domain of a label than its rule lets it have above another."""

    label: str
    source: str
    target: str
    source_count: int  # with the pod
    target_count: int  # without it
    max_skew: int


@dataclass(frozen=True, slots=True)
class MoveReason:
    """Loads are the largest share in use of any resource, in thousandths."""

    goal: Goal
    source_load: int  # before the moves of the goal there
    target_load: int  # with the pod
    move_count: int = 1  # that this goal takes on this host in all, of which the SLA lets some go later
    waiting_job: JobId = JobId("")  # noqa: RUF009 - whose pod fits nowhere, for FREE
    mean_load: int = 0  # of all hosts, for SPREAD
    is_reserved: bool = False  # the host is, for the pod that waits
    evening: Evening | None = None  # for SPREAD: what the move evens, if not the load of hosts


@dataclass(frozen=True, slots=True)
class Move:
    pod_id: PodId
    source: Hostname
    target: Hostname
    why: MoveReason


@dataclass(frozen=True, slots=True)
class RebalancePlan:
    """Moves in the order in which they are made; they may be made all at once. ``stuck``: jobs with pods that fit
    nowhere and that no bounded number of moves would let in. ``staying``: pods that do not move, counted by why."""

    moves: tuple[Move, ...] = ()
    stuck: tuple[JobId, ...] = ()
    staying: tuple[tuple[Stays, int], ...] = ()


class RebalanceState(StrEnum):
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPING = "STOPPING"  # no further pods move; those that do are followed to their end
    STOPPED = "STOPPED"


class RebalanceAct(StrEnum):
    """What people may do to the rebalancing of a cluster."""

    PAUSE = "PAUSE"
    RESUME = "RESUME"
    STOP = "STOP"


class MoveState(StrEnum):
    """What has become of a move."""

    MOVING = "MOVING"
    MOVED = "MOVED"
    ELSEWHERE = "ELSEWHERE"  # the pod runs again, on another host than was meant
    ENDED = "ENDED"  # the pod is not to run any more
    LATE = "LATE"  # the pod has not run again for so long that nobody waits for it


@dataclass(frozen=True, slots=True)
class RebalanceSpec:
    goals: tuple[Goal, ...]
    moves_per_hour: int


@dataclass(frozen=True, slots=True)
class RebalanceProgress:
    """As the last step left it. Bounded, whatever moves."""

    state: RebalanceState = RebalanceState.STOPPED
    move_count: int = 0  # since it was started
    moving_count: int = 0
    hour_count: int = 0  # moves of the last hour
    stuck: tuple[str, ...] = ()  # jobs with pods that fit nowhere and that no moves let in
    staying: tuple[tuple[str, int], ...] = ()  # pods that do not move, counted by why
    waiting_for: str = ""

    @property
    def is_over(self) -> bool:
        return self.state is RebalanceState.STOPPED


@dataclass(frozen=True, slots=True)
class Rebalance:
    """The rebalancing of a cluster as it is stored. Times are unix nanoseconds, 0 = unset."""

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
    """A move that was begun."""

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
    """A pod that was asked to move, as it is now."""

    run_id: int
    host: str
    is_running: bool
    is_wanted: bool  # to run
