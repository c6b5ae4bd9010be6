"""A pod's states, its record and its events."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from peloton.model.host_pool import Workload
from peloton.model.ids import JobId, PodId
from peloton.model.layout import Layout
from peloton.model.resources import Resources


class PodState(StrEnum):
    """State of a pod, and its goal. Values are the wire spelling of v0 TaskState."""

    UNKNOWN = "UNKNOWN"
    INITIALIZED = "INITIALIZED"  # created, not yet in a queue
    PENDING = "PENDING"  # in its pool's queue
    READY = "READY"  # admitted: its resources count against the pool
    LAUNCHED = "LAUNCHED"  # committed to a host; the launch may not have reached the cluster yet
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    LOST = "LOST"
    PREEMPTING = "PREEMPTING"
    KILLING = "KILLING"
    KILLED = "KILLED"
    DELETED = "DELETED"
    # Clients may filter by these; no pod is ever in one of them.
    PLACING = "PLACING"
    PLACED = "PLACED"
    LAUNCHING = "LAUNCHING"
    RESERVED = "RESERVED"

    @property
    def public(self) -> PodState:
        """The state that clients see: an admitted pod that waits for a host is PENDING."""
        return PodState.PENDING if self is PodState.READY else self


TERMINAL = frozenset({PodState.SUCCEEDED, PodState.FAILED, PodState.LOST, PodState.KILLED, PodState.DELETED})
QUEUED = frozenset({PodState.INITIALIZED, PodState.PENDING})
ON_HOST = frozenset({PodState.LAUNCHED, PodState.STARTING, PodState.RUNNING, PodState.PREEMPTING, PodState.KILLING})
"""States in which the pod may exist on a host."""
ALLOCATED = ON_HOST | {PodState.READY}
"""States whose resources count as the pool's allocation."""


ENDING_GOALS = frozenset({PodState.KILLED, PodState.PREEMPTING, PodState.DELETED})
"""Goals of pods that end without a next run. PREEMPTING: a batch pod that was evicted with killOnPreempt."""


class NextRun(IntEnum):
    """Reason for the next run of an ended instance. Values are stored."""

    NONE = 0  # no next run
    REPLACE = 1  # a newer run or configuration is wanted, or it was evicted
    RETRY = 2  # it failed, and retries are left
    RELAUNCH = 3  # its launch never took effect


class HealthState(StrEnum):
    INVALID = "INVALID"
    DISABLED = "DISABLED"
    HEALTH_UNKNOWN = "HEALTH_UNKNOWN"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"


class TerminationReason(StrEnum):
    """Reason for which a run ended. Values are the wire's without TERMINATION_STATUS_REASON_."""

    INVALID = "INVALID"
    KILLED_ON_REQUEST = "KILLED_ON_REQUEST"
    FAILED = "FAILED"
    KILLED_HOST_MAINTENANCE = "KILLED_HOST_MAINTENANCE"
    PREEMPTED_RESOURCES = "PREEMPTED_RESOURCES"
    DEADLINE_TIMEOUT_EXCEEDED = "DEADLINE_TIMEOUT_EXCEEDED"
    KILLED_FOR_UPDATE = "KILLED_FOR_UPDATE"
    KILLED_FOR_RESTART = "KILLED_FOR_RESTART"
    KILLED_FOR_SLA_AWARE_RESTART = "KILLED_FOR_SLA_AWARE_RESTART"


class Cause(StrEnum):
    """Cause of a run's end, in words independent of the cluster manager."""

    PROGRAM = "its program ended"  # also when the cause is unknown
    MEMORY = "it used more memory than it may"
    DISK = "it used more disk than it may"
    LIMIT = "it used more of a resource than it may"
    TIME = "it ran longer than it may"
    CONTAINER = "its container could not be started"
    PIPE = "a pipe of its container broke"
    EXECUTOR = "what ran it on its host ended"
    AGENT = "the agent of its host could not run it"
    HOST_LOST = "its host is lost"
    HOST_GONE = "its host was taken out of its cluster"
    HOST_DRAINED = "its host is drained"
    PREEMPTED = "its host had too few resources left for it"
    FRAMEWORK = "its cluster removed the framework"
    REMOVED = "it was removed from its cluster"  # by another client of the cluster
    NOT_STARTED = "it was killed before it started"
    RESOURCES_GONE = "its resources were taken before it was launched"
    INVALID = "its cluster does not take it"
    IMAGE = "its image cannot be pulled"  # refused by the registry, or no such image
    NO_ENDING = "nothing ended it"  # report of a live run, or the answer to a reconciliation


@dataclass(frozen=True, slots=True)
class Termination:
    reason: TerminationReason
    exit_code: int = 0
    signal: str = ""


class Strategy(StrEnum):
    """Strategy by which the pods of one job are distributed over hosts."""

    PACK_HOST = "PACK_HOST"
    SPREAD_JOB = "SPREAD_JOB"
    EMPTIEST_HOST = "EMPTIEST_HOST"  # default of services
    DEFRAGMENT = "DEFRAGMENT"
    LEAST_LOADED = "LEAST_LOADED"


@dataclass(frozen=True, slots=True)
class HostLabel:
    """Constraint leaf: the number of ``key=value`` labels of the host, compared with ``count``."""

    key: str
    value: str
    condition: str = "="  # one of < = >
    count: int = 1


@dataclass(frozen=True, slots=True)
class PodLabel:
    """Constraint leaf: the number of pods with ``key=value`` on the host, compared with ``count``."""

    key: str
    value: str
    condition: str = "<"
    count: int = 1


@dataclass(frozen=True, slots=True)
class AllOf:
    constraints: tuple[Constraint, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    constraints: tuple[Constraint, ...]


Constraint = HostLabel | PodLabel | AllOf | AnyOf
Label = tuple[str, str]
"""Key and value of a label."""
PORT_LABEL = "peloton/port"
"""Label of pods with a static port, whose value is the port. Their constraint excludes hosts with another such pod.
Pods with dynamic ports have the label on their host."""


@dataclass(frozen=True, slots=True)
class HostPreference:
    """Preference of a pod: hosts that meet the constraint score ``weight`` more. It excludes no host."""

    weight: int
    constraint: Constraint  # on labels of the host alone


def port_label(number: int) -> Label:
    return PORT_LABEL, str(number)


@dataclass(frozen=True, slots=True)
class PodShape:
    """Properties of a pod that admission and placement use: pods of one shape are interchangeable."""

    resources: Resources
    port_count: int = 0
    revocable: bool = False
    preemptible: bool = False
    controller: bool = False
    strategy: Strategy = Strategy.PACK_HOST
    constraint: Constraint | None = None
    volume_mib: int = 0  # of its volume, not in the resources; included when a new volume is placed
    workload: Workload = Workload.ANY  # set for placement only
    layout: Layout | None = None  # relative to other pods of the job
    preferences: tuple[HostPreference, ...] = ()


@dataclass(frozen=True, slots=True)
class ShapeRange:
    """Instances ``start .. start+count-1`` of a job, all of one shape."""

    start: int
    count: int
    shape: PodShape


@dataclass(frozen=True, slots=True)
class PodRecord:
    """The stored runtime of an instance: its current run. Times are unix nanoseconds, 0 when unset."""

    job_id: JobId
    instance_id: int
    run_id: int
    state: PodState
    goal: PodState
    config_version: int
    desired_config_version: int
    desired_run_id: int
    prev_run_id: int = 0
    host: str = ""
    desired_host: str = ""  # preferred host of the next run
    agent_id: str = ""
    cluster: str = ""  # cluster of its last launch
    ports: dict[str, int] = field(default_factory=dict)
    message: str = ""
    reason: str = ""
    health: HealthState = HealthState.DISABLED
    initial_health: HealthState = HealthState.DISABLED  # health of a new run
    failure_count: int = 0
    max_failures: int = 0
    queue_seq: int = 0  # position in the queue, kept on eviction; 0 = none
    vain_count: int = 0  # consecutive admissions without a host
    held_until_ns: int = 0  # end of the backoff of a PENDING pod
    started_ns: int = 0
    completed_ns: int = 0
    updated_ns: int = 0
    next_run: NextRun = NextRun.NONE  # of an ended pod
    due_ns: int = 0  # when the next run is due
    run_seconds: float = 0.0  # sum over finished runs; times the limits this is the resource usage
    termination: Termination | None = None
    revision: int = 1

    @property
    def pod_id(self) -> PodId:
        return PodId(self.job_id, self.instance_id, self.run_id)


@dataclass(frozen=True, slots=True)
class PodEvent:
    """One write of a pod's runtime: the state after the write."""

    job_id: JobId
    instance_id: int
    run_id: int
    desired_run_id: int
    prev_run_id: int
    state: PodState
    goal: PodState
    config_version: int
    desired_config_version: int
    host: str
    agent_id: str
    message: str
    reason: str
    health: HealthState
    time_ns: int


class ContainerState(StrEnum):
    """State of a container. Values are the wire's without CONTAINER_STATE_."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class ContainerStatus:
    """State of one container of a run with several."""

    name: str
    state: ContainerState
    is_init: bool = False  # runs to its end before the others start
    reason: str = ""
    message: str = ""
    exit_code: int = 0
    started_ns: int = 0
    completed_ns: int = 0


@dataclass(frozen=True, slots=True)
class PodStatus:
    """Report of a host about a pod, independent of the cluster manager. ``time_ns``: the time of the change on the
    host."""

    pod_id: PodId
    state: PodState
    time_ns: int
    host: str = ""
    agent_id: str = ""
    message: str = ""
    reason: str = ""
    healthy: bool | None = None
    cause: Cause = Cause.PROGRAM
    containers: tuple[ContainerStatus, ...] = ()  # set for pods with several containers
    waits: bool = False  # a container cannot be started yet; ``message`` says why
