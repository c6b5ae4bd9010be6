"""The port to a cluster: what the host manager needs of Mesos, of Kubernetes, or of whatever runs pods on hosts.

A driver announces hosts with their room, and what becomes of pods; it launches, kills, acknowledges, reconciles and
drains. ``tests/conformance/driver`` says what every driver must do; ``memory`` is the smallest that does it.

Words of one cluster (offers, agents, nodes, watches) stay in its driver. ``host_id``, ``room_id`` and tokens are the
driver's own, and opaque to all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from peloton.api.v0.task import task_pb2
from peloton.model.host import HostState
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.job import JobRecord
from peloton.model.pod import Label, PodShape, PodStatus
from peloton.model.resources import Resources

Ports = tuple[tuple[int, int], ...]
"""Ranges, both ends included."""
Holder = tuple[JobId, bool]
"""A job, and whether for its gang: a job's gang is placed apart from its other pods."""
Token = tuple[str, ...]
"""What the driver needs to acknowledge a report."""
NOTHING = Resources()


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What this cluster can do beyond running pods on hosts."""

    shares_room: bool = False
    """Room that is announced to us is kept from other users of the cluster until we give it back."""
    has_revocable_room: bool = False
    measures_use: bool = False
    """``samples_of`` says what pods use."""
    serves_files: bool = False
    """``sandbox`` and ``output_tail`` read what pods wrote on their hosts."""
    settles_s: float = 0.0
    """So long after a session began all hosts have come that the cluster knew before."""


# What a driver announces.


@dataclass(slots=True)
class RegisteredHost:
    """A host of the cluster and all that it has, whatever is free there."""

    host_id: str  # another one when the machine has been replaced; stored with pods as ``agent_id``
    hostname: Hostname
    ip: str
    capacity: Resources
    revocable: Resources
    labels: dict[str, str]
    revocable_held: Resources = NOTHING
    state: HostState = HostState.UP
    withdrawn: str = ""  # why it takes nothing: what an operator of the cluster did
    held: Resources = NOTHING  # by pods of whoever uses the cluster

    @property
    def free(self) -> Resources:
        return Resources(*(max(have - held, 0) for have, held in zip(self.capacity, self.held, strict=True)))


@dataclass(slots=True)
class Room:
    """What we may use of one host now. Several of one host add up; each is used once, as a whole: what a launch leaves
    of it is announced anew."""

    room_id: str
    hostname: Hostname
    host_id: str
    free: Resources
    revocable: Resources
    ports: Ports
    labels: Mapping[str, str]
    goes_ns: int = 0  # when the cluster takes the host away for maintenance; 0 = not


@dataclass(slots=True)
class PodReport:
    """What the cluster says of a pod."""

    pod: str  # its id, as text: it need not be one of ours
    told: str  # the state in our words, or the cluster's word where we have none
    read: Callable[[], PodStatus | None]  # called when it is stored: nearly all answers say what is known
    token: Token = ()  # it comes again until it is acknowledged; empty: it comes once
    is_answer: bool = False  # to ``reconcile``

    @property
    def status(self) -> PodStatus | None:
        """None: nothing of it can be stored."""
        return self.read()


class UseSample(NamedTuple):
    """Counters of one process group on a host."""

    key: str  # the same at each look
    pod_id: PodId | None  # None: not a pod of ours
    cpu_s: float  # used since it began
    at_s: float  # when that was measured
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Files of a pod, and who serves them."""

    address: str  # host:port
    paths: tuple[str, ...]
    control_plane: str  # host:port
    container_id: str


class DriverEvents(Protocol):
    """What a driver reports, from any of its threads. Only ``hosts_registered`` may wait, for storage."""

    def connected(self) -> None:
        """A session begins. All room is announced in it, and pods may have changed unseen."""

    def disconnected(self) -> None:
        """The session is over, and with it all room that was announced."""

    def hosts_registered(self, hosts: Sequence[RegisteredHost]) -> None:
        """All of them. Those that have not changed should be the same objects. Raises what storage does: then they are
        announced again soon."""

    def room_announced(self, rooms: Sequence[Room]) -> None: ...
    def room_withdrawn(self, room_ids: Sequence[str]) -> None: ...

    def idle_room(self, until_s: float, kept: int, limit: int) -> list[str]:
        """Gives up room that came until then (monotonic) and that nobody uses or has leased, but for so much that is
        kept; the driver gives it back to the cluster."""
        ...

    def reported(self, report: PodReport) -> None: ...

    def host_returned(self) -> None:
        """A host came back to a control plane that did not know what runs there: pods that must end are told again."""

    def refused(self, why: str) -> None:
        """The cluster will not have us until somebody changes a setting."""


# What a driver is asked.


@dataclass(frozen=True, slots=True)
class RoomWish:
    """A lease that could be better, or is as good as can be."""

    holder: Holder
    shapes: Sequence[PodShape]  # of the pods that it is for
    short: frozenset[PodShape]  # those of which it found too little room
    is_poor: bool  # pods of the job failed on some of its hosts
    may_fit: Callable[[Sequence[PodShape]], bool]  # some host has room for one of these, announced to us or not


class PodTemplate:
    """Pods of one configuration of a job, made once. Compared by identity: a driver keeps what it makes of one."""

    def __init__(self, job: JobRecord, pool_path: str, config: task_pb2.TaskConfig) -> None:
        self.job = job
        self.pool_path = pool_path
        self.config = config
        self.resources = Resources.of(
            config.resource.cpuLimit,
            config.resource.memLimitMb,
            config.resource.diskLimitMb,
            config.resource.gpuLimit,
        )
        self.revocable = config.revocable or job.sla.revocable
        self.labels: tuple[Label, ...] = tuple((label.key, label.value) for label in config.labels)
        self.dynamic_ports = [(port.name, port.envName) for port in config.ports if port.value == 0]

    def ports(self, dealt: Sequence[int]) -> dict[str, int]:
        """Dynamic port names with the numbers dealt to a pod, in the order of the config."""
        return {name: number for (name, _), number in zip(self.dynamic_ports, dealt, strict=True)}


class PodLaunch(NamedTuple):
    pod_id: PodId
    template: PodTemplate
    ports: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """All room that is announced of a host, taken for one launch."""

    hostname: Hostname
    host_id: str
    room_ids: tuple[str, ...]


class HostLaunch(NamedTuple):
    claim: Claim
    pods: Sequence[PodLaunch]


class PodOnHost(NamedTuple):
    """Where storage believes a pod; without host when it is not known."""

    pod_id: PodId
    hostname: str = ""
    host_id: str = ""


class HostAddress(NamedTuple):
    hostname: Hostname
    ip: str


class ClusterDriver(Protocol):
    """One session with one cluster at a time. Any thread may call; an OSError means that the cluster was not told, or
    that it is not known whether it was: the caller repeats, or reconciles."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def is_connected(self) -> bool: ...

    @property
    def unready(self) -> str:
        """Why nothing may be launched now; empty: it may."""
        ...

    def start(self, events: DriverEvents) -> None:
        """Begin a session, under the identity of earlier ones: their pods are ours. Raises Unavailable."""

    def stop(self) -> None:
        """Pods run on. No events follow."""

    # Room.

    def want_room(self, wish: RoomWish) -> bool:
        """After each lease. Returns whether room has come meanwhile, so that another lease may find more."""
        ...

    def room_sufficed(self, holder: Holder, shapes: Sequence[PodShape]) -> None:
        """A lease found enough for pods of these shapes."""

    def return_room(self, room_ids: Sequence[str]) -> None:
        """Claimed, and perhaps not used: what is left of it is announced anew."""

    # Pods.

    def launch(self, launches: Sequence[HostLaunch]) -> list[tuple[PodId, str]]:
        """Uses up the claims. Returns pods that the cluster certainly did not take, and why; of others it reports. A
        claim without pods is given back. Raises OSError when it is not known what arrived."""
        ...

    def kill(self, pods: Sequence[PodOnHost]) -> None:
        """Ends them within the grace of their templates; of each, also of one that is not known, an end is reported.
        Raises OSError."""

    def acknowledge(self, tokens: Sequence[Token]) -> None:
        """Raises OSError; then the reports come again."""

    def reconcile(self, pods: Sequence[PodOnHost]) -> None:
        """Have the cluster report of these, or, without any, of all that it knows of us. Of a pod whose host may still
        come there may be no answer yet. Raises OSError."""

    # Hosts.

    def drain(self, hosts: Sequence[HostAddress]) -> None:
        """All hosts that are to be taken down, told every few seconds; the cluster may tell its other users. Raises
        OSError."""

    def take_down(self, host: HostAddress) -> None:
        """The host leaves the cluster; what still runs there is lost. May be repeated. Raises OSError."""

    def bring_up(self, host: HostAddress) -> None:
        """It is drained no more, whether it was down or not. May be repeated. Raises OSError."""

    # What pods wrote and use.

    def samples_of(self, hostname: Hostname) -> list[UseSample]:
        """Of all pods on the host. Raises OSError, ValueError when the host does not answer, or not with numbers."""
        ...

    def output_tail(self, pod: PodOnHost, limit_bytes: int) -> bytes:
        """The end of what the pod's command wrote to stderr. Raises OSError, ValueError."""
        ...

    def sandbox(self, pod: PodOnHost) -> Sandbox:
        """Raises NotFound, OSError."""
        ...

    # Chores.

    def tend(self) -> None:
        """What the driver has to do now and then, on the caller's thread. Raises OSError, and what storage does."""

    @property
    def tend_in_s(self) -> float:
        """How soon it wants to be called."""
        ...
