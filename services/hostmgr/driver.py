"""The port to a cluster: all that the host manager needs of Mesos, of Kubernetes, or of another cluster manager.

A driver announces hosts with their room, and reports pods; it launches, kills, acknowledges, reconciles and drains.
``tests/conformance/driver`` defines what every driver must do; ``memory`` is the smallest one.

Words of one cluster (offers, agents, nodes, watches) stay in its driver. ``host_id``, ``room_id`` and tokens are the
driver's own, and opaque to all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from peloton.api.convert import carried_labels, volume_spec
from peloton.api.pod_parts import pod_resources
from peloton.api.pod_parts import ports as pod_ports
from peloton.api.v0.task import task_pb2
from peloton.lifecycle.constraints import HostLabels, Labels
from peloton.lifecycle.host_pools import taken
from peloton.model.host import POD_SLOTS_UNLIMITED, HostState
from peloton.model.host_pool import AT_PAR, Factors
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.job import JobRecord
from peloton.model.pod import Label, PodShape, PodStatus, port_label
from peloton.model.resources import Resources, needed, ordinary
from peloton.model.secret import Secret
from peloton.model.volume import VolumeRecord

Ports = tuple[tuple[int, int], ...]
"""Ranges, both ends included."""
Holder = tuple[JobId, bool]
"""A job, and whether for its gang: a job's gang is placed apart from its other pods."""
Token = tuple[str, ...]
"""What the driver needs to acknowledge a report."""
NOTHING = Resources()


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What this cluster is, and what it can do beyond running pods on hosts."""

    kind: str = ""
    """Value of the label ``peloton/cluster-kind`` of its hosts."""
    shares_room: bool = False
    """Announced room is withheld from other users of the cluster until we give it back."""
    has_revocable_room: bool = False
    measures_use: bool = False
    """``samples_of`` says what pods use."""
    serves_files: bool = False
    """``sandbox`` and ``output_tail`` read what pods wrote on their hosts."""
    has_disruption_budgets: bool = False
    """Others who drain hosts ask the cluster which pods they may end: ``set_disruption_budgets`` decides that."""
    keeps_volumes: bool = False
    """Hosts keep volumes for pods, and ``destroy_volume`` removes them."""
    restart_s: float = 0.0
    """How long a host may be away for a restart of its own processes, and come back with all that it had."""
    settles_s: float = 0.0
    """How long after the begin of a session hosts may take to come back that the cluster knew before."""


# Events of a driver.


@dataclass(slots=True)
class RegisteredHost:
    """A host of the cluster and its capacity."""

    host_id: str  # changes when the machine is replaced; stored with pods as ``agent_id``
    hostname: Hostname
    ip: str
    capacity: Resources
    revocable: Resources
    labels: HostLabels
    revocable_held: Resources = NOTHING
    state: HostState = HostState.UP
    withdrawn: str = ""  # why it takes no pods: an act of an operator of the cluster
    held: Resources = NOTHING  # by pods of whoever uses the cluster
    beside: Resources = NOTHING  # what it has beyond the capacity: others hold it
    volumes: frozenset[str] | None = frozenset()  # ids of those that it keeps for us; None: it has not said yet
    volumes_begun: frozenset[str] = frozenset()  # ids of those that are half made or half destroyed
    volumes_mib: int = 0  # of its disk, which both have; part of what is held

    @property
    def free(self) -> Resources:
        return Resources(*(max(have - held, 0) for have, held in zip(self.capacity, self.held, strict=True)))


@dataclass(slots=True)
class Room:
    """An amount of one host that we may use now. Rooms of one host add up. A launch uses a room as a whole, and the
    cluster announces the rest anew."""

    room_id: str
    hostname: Hostname
    host_id: str
    free: Resources
    revocable: Resources
    ports: Ports
    labels: Labels
    goes_ns: int = 0  # when the cluster takes the host away; 0 = it does not
    pod_slots: int = POD_SLOTS_UNLIMITED  # pods that it takes, whatever they ask for
    volumes: frozenset[str] = frozenset()  # ids of those that no pod has now


@dataclass(slots=True)
class PodReport:
    """The cluster's report of a pod."""

    pod: str  # its id, as text: it need not be one of ours
    state_text: str  # our state, or the cluster's word where we have none
    read: Callable[[], PodStatus | None]  # only called to store it: nearly all answers repeat what is known
    token: Token = ()  # it comes again until it is acknowledged; empty: it comes once
    is_answer: bool = False  # to ``reconcile``

    @property
    def status(self) -> PodStatus | None:
        """None: it has nothing to store."""
        return self.read()


class UseSample(NamedTuple):
    """Counters of one process group on a host."""

    key: str  # the same in each sample
    pod_id: PodId | None  # None: not a pod of ours
    cpu_s: float  # used since it began
    at_s: float  # when that was measured
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Files of a pod, and the addresses that serve them."""

    address: str  # host:port; empty: ``read_file`` reads them
    paths: tuple[str, ...]
    control_plane: str  # host:port
    container_id: str


class FilePiece(NamedTuple):
    data: bytes
    is_end: bool  # the file ends behind it


@dataclass(frozen=True, slots=True)
class CommandStart:
    """A command in a container of a pod."""

    container: str  # empty: the pod's first one
    argv: tuple[str, ...]
    has_input: bool
    has_terminal: bool


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a caller says to a command in a pod. Exchanges of a session are numbered from 0 on, and one that is repeated
    has the same answer and does nothing more."""

    session: str  # the caller's own name of it
    number: int
    start: CommandStart | None = None  # of number 0
    data: bytes = b""  # for its input
    ends_input: bool = False
    terminal: tuple[int, int] | None = None  # columns and rows, when they have changed
    is_last: bool = False  # the caller goes away, whatever the number is


class ExchangeAnswer(NamedTuple):
    stdout: bytes
    stderr: bytes
    exit_code: int | None  # None: the command runs, and there may be more output
    wants_input: bool  # false: it has not taken yet what it was given


class DriverEvents(Protocol):
    """What a driver reports, from any of its threads. Only ``hosts_registered`` may wait, for storage."""

    def connected(self) -> None:
        """A session begins. All room is announced in it, and pods may have changed unseen."""

    def disconnected(self) -> None:
        """The session is over, and with it all room that was announced."""

    def hosts_registered(self, hosts: Sequence[RegisteredHost]) -> None:
        """All; those that have not changed should be the same objects. Raises as storage does: then they come again."""

    def room_announced(self, rooms: Sequence[Room]) -> None: ...
    def room_withdrawn(self, room_ids: Sequence[str]) -> None: ...

    def idle_room(self, until_s: float, kept: int, limit: int) -> list[str]:
        """Gives up unused, unleased rooms that came until then (monotonic), except ``kept`` of them; the driver returns
        them to the cluster."""
        ...

    def reported(self, report: PodReport) -> None: ...

    def host_returned(self) -> None:
        """A host came back to a control plane that did not know its pods: kills are repeated there."""

    def refused(self, why: str) -> None:
        """The cluster refuses us until a setting changes."""


# Calls to a driver.


@dataclass(frozen=True, slots=True)
class RoomWish:
    """The result of a lease, from which the driver decides whether to request more room."""

    holder: Holder
    shapes: Sequence[PodShape]  # of the wanted pods
    short: frozenset[PodShape]  # without enough room
    is_poor: bool  # pods of the job failed on some of its hosts
    may_fit: Callable[[Sequence[PodShape]], bool]  # whether a host has room for one, announced or not


class PodTemplate:
    """Pods of one configuration of a job. Compared by identity: a driver caches what it derives from one."""

    def __init__(
        self, job: JobRecord, pool_path: str, config: task_pb2.TaskConfig, secrets: Sequence[Secret] = ()
    ) -> None:
        """``secrets``: with their data, files in all containers."""
        self.job = job
        self.pool_path = pool_path
        self.config = config
        self.secrets = tuple(secrets)
        self.resources = pod_resources(config)
        self.revocable = config.revocable or job.sla.revocable
        self.labels: tuple[Label, ...] = tuple((label.key, label.value) for label in config.labels)
        self.volume = volume_spec(config)
        self.dynamic_ports = [(port.name, port.envName) for port in pod_ports(config) if port.value == 0]

    @property
    def ordinary(self) -> Resources:
        """What a pod asks for without revocable cpu."""
        return ordinary(self.resources, self.revocable)

    def carried_labels(self, dealt: Iterable[int]) -> tuple[Label, ...]:
        """By which a pod with these dynamic ports counts on its host."""
        return (*carried_labels(self.config), *map(port_label, dealt))

    def ports(self, dealt: Sequence[int]) -> dict[str, int]:
        """Dynamic port names with the numbers dealt to a pod, in the order of the config."""
        return {name: number for (name, _), number in zip(self.dynamic_ports, dealt, strict=True)}


class PodLaunch(NamedTuple):
    """``factors``: of the room of its host. It takes that much less of the cluster than it asks for, and may use."""

    pod_id: PodId
    template: PodTemplate
    ports: tuple[int, ...]
    volume: VolumeRecord | None = None
    factors: Factors = AT_PAR

    @property
    def taken(self) -> Resources:
        """What it takes of the cluster. Slack is not announced with a factor."""
        asked = needed(self.template.resources)
        if self.factors == AT_PAR:
            return asked
        return taken(asked, self.factors._replace(cpu_percent=100) if self.template.revocable else self.factors)


@dataclass(frozen=True, slots=True)
class Claim:
    """All announced room of a host, taken for one launch."""

    hostname: Hostname
    host_id: str
    room_ids: tuple[str, ...]
    factors: Factors = AT_PAR  # with which its room was announced to pods


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
    """One session with one cluster at a time. Any thread may call. After an OSError the call may or may not have
    reached the cluster: the caller repeats it, or reconciles."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def is_connected(self) -> bool: ...

    @property
    def unready(self) -> str:
        """Why nothing may be launched now, but pods that others made; empty: everything may."""
        ...

    def start(self, events: DriverEvents) -> None:
        """Begin a session, under the identity of earlier ones: their pods are ours. Raises Unavailable."""

    def stop(self) -> None:
        """Pods run on. No events follow."""

    # Room.

    def want_room(self, wish: RoomWish) -> bool:
        """Called after each lease. Returns whether room has come meanwhile, so that another lease may find more."""
        ...

    def room_sufficed(self, holder: Holder, shapes: Sequence[PodShape]) -> None:
        """A lease found enough room for these shapes."""

    def return_room(self, room_ids: Sequence[str]) -> None:
        """Gives claimed room back; what was not used of it is announced anew."""

    # Pods.

    def launch(self, launches: Sequence[HostLaunch]) -> list[tuple[PodId, str]]:
        """Uses up the claims. A pod with a volume gets that; one that is INITIALIZED is made unless the host has it
        already. Returns pods that the cluster certainly did not take, and why; it reports the others. A
        claim without pods is given back. Raises OSError when it is unknown what arrived."""
        ...

    def destroy_volume(self, volume: VolumeRecord) -> None:
        """With all that is on it. Its host lists it no more once it is gone; may be repeated. Raises OSError."""
        ...

    def kill(self, pods: Sequence[PodOnHost]) -> None:
        """Ends them within the grace of their templates. The end of each is reported, also of unknown ones. Raises
        OSError."""

    def acknowledge(self, tokens: Sequence[Token]) -> None:
        """Raises OSError; then the reports come again."""

    def reconcile(self, pods: Sequence[PodOnHost]) -> None:
        """Has the cluster report these pods, or without any all of ours that it knows. For a pod whose host may still
        come back the answer may be missing. Raises OSError."""

    # Hosts.

    def drain(self, hosts: Sequence[HostAddress]) -> None:
        """Announces all hosts that go down, every few seconds; the cluster may tell its other users. Raises OSError."""

    def take_down(self, host: HostAddress) -> None:
        """The host leaves the cluster, and pods still on it are lost. May be repeated. Raises OSError."""

    def bring_up(self, host: HostAddress) -> None:
        """Ends the drain of the host, whether it is down or not. May be repeated. Raises OSError."""

    def set_disruption_budgets(self, minimums: Mapping[JobId, int]) -> None:
        """How many pods of each of these jobs must stay available when others drain hosts; those of other jobs may all
        go. A call makes a bounded number of changes, the next one the rest. Raises OSError."""

    # Output and use of pods.

    def samples_of(self, hostname: Hostname) -> list[UseSample]:
        """Of all pods on the host. Raises OSError when it does not answer, ValueError when its answer is broken."""
        ...

    def output_tail(self, pod: PodOnHost, limit_bytes: int) -> bytes:
        """The end of what the pod's command wrote to stderr. Raises OSError, ValueError."""
        ...

    def sandbox(self, pod: PodOnHost) -> Sandbox:
        """Raises NotFound, OSError."""
        ...

    def read_file(self, pod: PodOnHost, path: str, offset: int, follow: bool) -> FilePiece:
        """Of a sandbox without address, from this byte on. ``follow``: it is read on as it grows, and empty while there
        is no more; otherwise the file ends where it ends now. Raises NotFound, OSError."""
        ...

    def exchange(self, pod: PodOnHost, exchange: Exchange) -> ExchangeAnswer:
        """With a command in a pod whose sandbox has no address. Raises PelotonError (NotFound: neither the pod nor the
        session is here), OSError."""
        ...

    # Chores.

    def tend(self) -> None:
        """The driver's periodic work, on the caller's thread. Raises OSError, and what storage does."""

    @property
    def tend_in_s(self) -> float:
        """How soon it wants to be called."""
        ...
