"""The port to a cluster: everything that the host manager requires of Mesos, Kubernetes or another cluster manager.

A driver reports hosts, offers of their free resources, and the states of pods; it launches, kills, acknowledges,
reconciles and drains. ``tests/conformance/driver`` defines what every driver must do; ``memory`` is the smallest one.

Terms of one cluster manager (agents, nodes, watches) stay in its driver. ``host_id``, ``resources_id`` and tokens
belong to the driver and are opaque to its callers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from peloton.api.convert import collect_labels, volume_spec
from peloton.api.pod_parts import pod_resources
from peloton.api.pod_parts import ports as pod_ports
from peloton.api.secret_values import secrets_by_key
from peloton.api.v0.task import task_pb2
from peloton.hosts.announced import NOTHING as NOTHING
from peloton.hosts.announced import Claim as Claim
from peloton.hosts.announced import FreeResources as FreeResources
from peloton.hosts.announced import Holder as Holder
from peloton.hosts.announced import Ports as Ports
from peloton.hosts.announced import RegisteredHost as RegisteredHost
from peloton.lifecycle.host_pools import scale_request
from peloton.model.host_pool import AT_PAR, Factors
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.job import JobRecord
from peloton.model.pod import Label, PodShape, PodStatus, port_label
from peloton.model.resources import Resources, compute_needed, ordinary
from peloton.model.secret import IMAGE, VARIABLE, Secret
from peloton.model.volume import VolumeRecord
from peloton.ports import ImagePrefetcher
from services.hostmgr.external_port import ExternalCluster

Token = tuple[str, ...]
"""Opaque data that the driver requires to acknowledge a report."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The kind of the cluster, and its features beyond running pods on hosts."""

    kind: str = ""
    """Value of the label ``peloton/cluster-kind`` of its hosts."""
    shares_capacity: bool = False
    """Offered resources are withheld from other users of the cluster until Peloton returns them."""
    announces_revocable: bool = False
    measures_use: bool = False
    """``samples_of`` reports the resource use of pods."""
    serves_files: bool = False
    """``sandbox`` and ``output_tail`` read files that pods wrote on their hosts."""
    has_disruption_budgets: bool = False
    """External drains ask the cluster which pods they may evict; ``set_disruption_budgets`` sets the answer."""
    keeps_volumes: bool = False
    """Hosts keep volumes for pods, and ``destroy_volume`` removes them."""
    restart_s: float = 0.0
    """Seconds for which a host may be unavailable during a restart of its own processes and keep its pods and
    volumes."""
    settles_s: float = 0.0
    """Seconds after the start of a session within which hosts that the cluster knew before may register again."""
    gang_address: str = ""
    """The address of a pod of a gang, with JOB and INSTANCE of ``lifecycle.discovery`` for its own; empty: it is that
    of its host."""
    images: ImagePrefetcher | None = None
    """Prefetcher of images on the hosts of the cluster."""
    list_ended: Callable[[], Sequence[PodStatus]] | None = None
    """Reader of the last statuses of pods that have ended, for a cluster whose ``reconcile`` does not report them;
    raises OSError."""
    external_pods: ExternalCluster | None = None
    """Pods of other clients of the cluster that Peloton places."""


# Events of a driver.


@dataclass(slots=True)
class PodReport:
    """The cluster's report of a pod."""

    pod: str  # its id as text; the pod may be external
    state_text: str  # the Peloton state, or the cluster's own word where Peloton has none
    read: Callable[[], PodStatus | None]  # called only to store the status: nearly all answers repeat a known state
    token: Token = ()  # the report is repeated until acknowledged; empty: it is sent once
    is_answer: bool = False  # to a ``reconcile`` call

    @property
    def status(self) -> PodStatus | None:
        """Return the status to store; None when there is none."""
        return self.read()


class UseSample(NamedTuple):
    """Counters of one process group on a host."""

    key: str  # equal in each sample of the group
    pod_id: PodId | None  # None: not a Peloton pod
    cpu_s: float  # used since the group started
    at_s: float  # time of the measurement
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
    is_end: bool  # no data follows


@dataclass(frozen=True, slots=True)
class CommandStart:
    """A command to start in a container of a pod."""

    container: str  # empty: the pod's first one
    argv: tuple[str, ...]
    has_input: bool
    has_terminal: bool


@dataclass(frozen=True, slots=True)
class Exchange:
    """A message of a caller to a command in a pod. Exchanges of a session are numbered from 0; a repeated number has
    the same answer and has no further effect."""

    session: str  # chosen by the caller
    number: int
    start: CommandStart | None = None  # set in exchange 0
    data: bytes = b""  # for the command's stdin
    ends_input: bool = False
    terminal: tuple[int, int] | None = None  # columns and rows, if changed
    is_last: bool = False  # the caller closes the session, whatever the number


class ExchangeAnswer(NamedTuple):
    stdout: bytes
    stderr: bytes
    exit_code: int | None  # None: the command is running, and more output may follow
    wants_input: bool  # False: the command has not consumed its earlier input yet


class DriverEvents(Protocol):
    """Events that a driver reports from any of its threads. Only ``hosts_registered`` may block, on storage."""

    def on_connect(self) -> None:
        """A session started. It offers all free resources again, and pods may have changed unobserved."""

    def on_disconnect(self) -> None:
        """The session ended, and all its offers are void."""

    def hosts_registered(self, hosts: Sequence[RegisteredHost]) -> None:
        """Report all hosts; unchanged hosts should be the same objects. Raises what storage raises; the driver then
        repeats the report."""

    def resources_announced(self, free_resources: Sequence[FreeResources]) -> None: ...
    def resources_withdrawn(self, resources_ids: Sequence[str]) -> None: ...

    def idle_resources(self, until_s: float, kept: int, limit: int) -> list[str]:
        """Remove unused, unleased offers received up to ``until_s`` (monotonic), except ``kept`` of them, and return
        their ids for the driver to return to the cluster."""
        ...

    def on_report(self, report: PodReport) -> None: ...

    def host_returned(self) -> None:
        """Report that a host came back to a control plane without records of its pods; the kills of its pods are
        repeated."""

    def on_refuse(self, why: str) -> None:
        """Report that the cluster rejects Peloton until a setting changes."""


# Calls to a driver.


@dataclass(frozen=True, slots=True)
class CapacityRequest:
    """The result of a lease, from which the driver decides whether to request more offers."""

    holder: Holder
    shapes: Sequence[PodShape]  # of the requested pods
    short: frozenset[PodShape]  # shapes with too few free resources
    has_deprioritized_hosts: bool  # pods of the job failed on some of the leased hosts
    may_fit: Callable[[Sequence[PodShape]], bool]  # whether a host could take one, offered or not


class PodTemplate:
    """The template of pods with one configuration of a job, compared by identity: drivers cache what they derive from
    it."""

    def __init__(
        self, job: JobRecord, pool_path: str, config: task_pb2.TaskConfig, secrets: Sequence[Secret] = ()
    ) -> None:
        """``secrets`` include their data; they are files in all containers, values of variables, or credentials of
        images."""
        self.job = job
        self.pool_path = pool_path
        self.config = config
        self.secrets = tuple(secrets)
        self.secret_files = tuple(one for one in self.secrets if one.is_file)
        self.secret_variables = secrets_by_key(self.secrets, VARIABLE)
        self.image_secrets = secrets_by_key(self.secrets, IMAGE)
        self.resources = pod_resources(config)
        self.revocable = config.revocable or job.sla.revocable
        self.needed = compute_needed(self.resources)
        self._counted_labels = collect_labels(config)
        self.labels: tuple[Label, ...] = tuple((label.key, label.value) for label in config.labels)
        self.volume = volume_spec(config)
        self.dynamic_ports = [(port.name, port.envName) for port in pod_ports(config) if port.value == 0]

    @property
    def ordinary(self) -> Resources:
        """Return the requested resources without revocable cpu."""
        return ordinary(self.resources, self.revocable)

    def collect_labels(self, allocated: Iterable[int]) -> tuple[Label, ...]:
        """Return the labels of a pod with these dynamic ports that its host counts."""
        return (*self._counted_labels, *map(port_label, allocated))

    def ports(self, allocated: Sequence[int]) -> dict[str, int]:
        """Return port names with the dynamic ports assigned to a pod, in the order of the config."""
        return {name: number for (name, _), number in zip(self.dynamic_ports, allocated, strict=True)}


Variables = tuple[tuple[str, str], ...]
"""Names and values: a tuple, so that launches can be hashed."""


class PodLaunch(NamedTuple):
    """A pod to launch. ``factors`` of its host scale what the pod takes of the cluster below what it requests and may
    use. ``variables`` are for all of its containers; one that a container sets itself keeps its value."""

    pod_id: PodId
    template: PodTemplate
    ports: tuple[int, ...]
    volume: VolumeRecord | None = None
    factors: Factors = AT_PAR
    variables: Variables = ()

    @property
    def taken(self) -> Resources:
        """Return the resources that the pod takes of the cluster. Slack is offered without a factor."""
        asked = self.template.needed
        if self.factors == AT_PAR:
            return asked
        return scale_request(asked, self.factors._replace(cpu_percent=100) if self.template.revocable else self.factors)


class HostLaunch(NamedTuple):
    claim: Claim
    pods: Sequence[PodLaunch]


class PodOnHost(NamedTuple):
    """A pod and the host that storage records for it; the host is empty when unknown."""

    pod_id: PodId
    hostname: str = ""
    host_id: str = ""


class HostAddress(NamedTuple):
    hostname: Hostname
    ip: str


class ClusterDriver(Protocol):
    """The client of one cluster, with one session at a time. Any thread may call. After an OSError the call may or may
    not have reached the cluster: the caller repeats it, or reconciles."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def is_connected(self) -> bool: ...

    @property
    def unready(self) -> str:
        """Return why only external pods may be launched now; empty when all may."""
        ...

    def start(self, events: DriverEvents) -> None:
        """Start a session under the identity of earlier sessions, whose pods remain Peloton's. Raises Unavailable."""

    def stop(self) -> None:
        """End the session. Pods keep running, and no events follow."""

    # Offers.

    def request_capacity(self, request: CapacityRequest) -> bool:
        """Handle the result of a lease. Returns whether offers arrived meanwhile, so that another lease may find
        more."""
        ...

    def demand_met(self, holder: Holder, shapes: Sequence[PodShape]) -> None:
        """Report that a lease found enough free resources for these shapes."""

    def return_resources(self, resources_ids: Sequence[str]) -> None:
        """Return claimed offers; the cluster offers the unused part again."""

    # Pods.

    def launch(self, launches: Sequence[HostLaunch]) -> list[tuple[PodId, str]]:
        """Consume the claims. A pod with a volume is started with it; an INITIALIZED volume is created unless its host
        already has it. Returns the pods that the cluster certainly rejected, with the reason; it reports the others. A
        claim without pods is returned. Raises OSError when it is unknown which launches arrived."""
        ...

    def destroy_volume(self, volume: VolumeRecord) -> None:
        """Destroy the volume with its data. Its host stops listing it once it is destroyed. May be repeated. Raises
        OSError."""
        ...

    def kill(self, pods: Sequence[PodOnHost]) -> None:
        """Terminate the pods within the grace periods of their templates. The end of each pod is reported, also of
        unknown pods. Raises OSError."""

    def acknowledge(self, tokens: Sequence[Token]) -> None:
        """Acknowledge reports. Raises OSError; the cluster then repeats them."""

    def reconcile(self, pods: Sequence[PodOnHost]) -> None:
        """Request reports of these pods, or of all known Peloton pods when there are none. The answer may be missing
        for a pod whose host may still return. Raises OSError."""

    # Hosts.

    def drain(self, hosts: Sequence[HostAddress]) -> None:
        """Announces all hosts that are going down, every few seconds; the cluster may notify its other users. Raises
        OSError."""

    def take_down(self, host: HostAddress) -> None:
        """Remove the host from the cluster; pods still on it are lost. May be repeated. Raises OSError."""

    def bring_up(self, host: HostAddress) -> None:
        """End the drain of the host, whether it is down or not. May be repeated. Raises OSError."""

    def set_disruption_budgets(self, minimums: Mapping[JobId, int]) -> None:
        """Set how many pods of each job must stay available during external drains; pods of other jobs may all be
        evicted. A call makes a bounded number of changes, the next call the rest. Raises OSError."""

    # Output and resource use of pods.

    def samples_of(self, hostname: Hostname) -> list[UseSample]:
        """Return samples of all pods on the host. Raises OSError when it does not answer, ValueError for a malformed
        answer."""
        ...

    def output_tail(self, pod: PodOnHost, limit_bytes: int) -> bytes:
        """Return the end of the stderr of the pod's command. Raises OSError, ValueError."""
        ...

    def sandbox(self, pod: PodOnHost) -> Sandbox:
        """Return the sandbox of the pod. Raises NotFound, OSError."""
        ...

    def read_file(self, pod: PodOnHost, path: str, offset: int, follow: bool) -> FilePiece:
        """Read a file of a sandbox without address, from ``offset`` on. With ``follow`` the file is read as it grows,
        and the piece is empty while there is no new data; otherwise the file ends at its present end. Raises NotFound,
        OSError."""
        ...

    def exchange(self, pod: PodOnHost, exchange: Exchange) -> ExchangeAnswer:
        """Exchange data with a command in a pod whose sandbox has no address. Raises PelotonError (NotFound: neither
        the pod nor the session is here), OSError."""
        ...

    # Periodic tasks.

    def run_periodic(self) -> None:
        """Run the driver's periodic tasks on the caller's thread. Raises OSError, and what storage raises."""

    @property
    def next_run_in_s(self) -> float:
        """Seconds until the next call is due."""
        ...
