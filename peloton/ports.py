"""Ports of the core: one Protocol for each dependency, implemented by services. All calls are synchronous and
thread-safe.

Every method is one transaction or one external effect. Methods are idempotent: a second call with the same arguments
has no effect and returns the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Protocol

from peloton.model.daemon import DaemonStep
from peloton.model.host import (
    ClusterChoice,
    Desired,
    HostLease,
    LaunchedBatch,
    LaunchResult,
    Placement,
    PlacementBatch,
    Prefetched,
    ReadyGang,
)
from peloton.model.ids import EntityVersion, Hostname, JobId, PodId
from peloton.model.job import GangProgress, JobProgress, JobRecord, JobState, Queued
from peloton.model.maintenance import HostMaintenance, MaintenanceAct
from peloton.model.migration import Migration, MigrationAct, MigrationProgress
from peloton.model.pod import PodShape
from peloton.model.reason import PlacementReason, QosReason, RequeueReason
from peloton.model.rebalance import Rebalance, RebalanceAct
from peloton.model.reservation import WaitingPod
from peloton.model.resources import Resources
from peloton.model.schedule import JobStart, ScheduledRun
from peloton.model.secret import HeldSecret, Secret
from peloton.model.update import UpdateAct, UpdateKey, UpdateProgress, UpdateRecord

REQUEUED_PODS_MAX = 1_000
"""Maximum of the pods in one call of ``ResourceManager.requeue_pods``."""


# -- storage, by owner ---------------------------------------------------------------------------------------------


CALL_DEADLINE_S: ContextVar[float | None] = ContextVar("CALL_DEADLINE_S", default=None)
"""Monotonic time at which the caller times out, or None. Remote calls have to end before it."""

PERSON: ContextVar[str] = ContextVar("PERSON", default="")
"""Name of the user whose call is answered; empty if it is not known. Events by hand name it."""


class JobRecords(Protocol):
    def get(self, job_id: JobId) -> JobRecord | None: ...

    def settle(self, job_id: JobId, now_ns: int, created_max: int = 0, batch_max: int = 0) -> JobProgress:
        """Start the next run of a bounded number of ended pods, roll up the job's state, and report counts. Create the
        instances of a new service if they are at most ``created_max``. Counts of a big job may be a second old while
        more of its pods than ``batch_max`` wait for a host."""
        ...

    def set_goal(self, job_id: JobId, goal: JobState, now_ns: int) -> JobRecord | None:
        """Set the goal of a job and its pods. A job that is being deleted, and an ended batch job, do not change."""
        ...

    def stop(self, job_id: JobId, now_ns: int) -> JobRecord:
        """Stop a job by the rules of the API. Raises NotFound, Aborted, InvalidArgument."""
        ...

    def delete(self, job_id: JobId, on_chunk: Callable[[int], None] = lambda instances: None) -> None:
        """Delete an ended job and its records, in chunks of instances."""
        ...


class PodRecords(Protocol):
    def create(self, job_id: JobId, on_chunk: Callable[[int], None]) -> int:
        """Create the missing pods of [0, instance_count) in chunks, each INITIALIZED with run 1. Return how many pods
        exist."""
        ...

    def gang(self, job_id: JobId) -> GangProgress:
        """Return the progress of the job's gang, of size 0 if the job has no gang or has ended."""
        ...

    def ready_gangs(self, job_id: JobId, limit: int) -> list[ReadyGang]:
        """Return READY pods outside the gang as gangs of one, at most ``limit``."""
        ...

    def ready_gang(self, job_id: JobId) -> ReadyGang | None:
        """Return the job's gang if all its members are READY."""
        ...


class UpdateRecords(Protocol):
    def get(self, update_id: str) -> UpdateRecord | None: ...

    def steer(
        self,
        job_id: JobId,
        version: EntityVersion | None,
        act: UpdateAct,
        opaque: str | None,
        now_ns: int,
        update_id: str = "",
    ) -> JobRecord:
        """Pause, resume or abort the job's update, if its id is ``update_id`` or that is empty. Raises NotFound,
        Aborted."""
        ...

    def pulse(self, job_id: JobId, key_text: str, now_ns: int) -> tuple[JobRecord, UpdateRecord]:
        """Record a pulse for the update of a job with this key. Raises NotFound, Aborted, InvalidArgument."""
        ...

    def roll_back(self, update_id: str, key: UpdateKey, now_ns: int) -> JobRecord:
        """Restore the configuration that a job had before its latest update, once for each ``key``. Raises NotFound,
        InvalidArgument, AlreadyExists."""
        ...

    def abort_active(self, job_id: JobId, now_ns: int) -> None:
        """Abort the update of a service, if one is under way."""
        ...

    def advance(self, job_id: JobId, now_ns: int) -> UpdateProgress:
        """Take one step of a service's update: record instances in flight that are done or have failed, and put the
        next ones in flight, unless the update ``rolls_back_to`` a version."""
        ...

    def roll_back_failed(self, job_id: JobId, now_ns: int) -> None:
        """Roll back the update of a service to the previous version if too many of its instances have failed."""
        ...

    def images_to_prefetch(self, job_id: JobId) -> Mapping[str, Sequence[Hostname]]:
        """Return image -> hosts for the instances that are updated next, at most PREFETCH_MAX pairs."""
        ...


class MaintenanceRecords(Protocol):
    def get(self, cluster: str, hostname: str) -> HostMaintenance | None:
        """Return the maintenance of a host, or None."""
        ...


class MigrationRecords(Protocol):
    def advance(self, migration_id: str) -> MigrationProgress:
        """Take one step of a migration, if it is under way."""
        ...

    def steer(self, migration_id: str, act: MigrationAct) -> Migration:
        """Pause, resume or roll back a migration. Raises NotFound; Aborted after its end."""
        ...


class RebalanceRecords(Protocol):
    def get(self, cluster: str) -> Rebalance | None:
        """Return the rebalancing of a cluster, or None if there never was one."""
        ...

    def steer(self, clusters: Collection[str], act: RebalanceAct) -> list[Rebalance]:
        """Pause, resume or stop the rebalancing of clusters. Raises NotFound, Aborted."""
        ...


class Lockdowns(Protocol):
    def refusal(self, kind: str) -> str:
        """Return why calls of this kind (Read or Write) are refused now, or "" if they are allowed."""
        ...


class LeaseRecords(Protocol):
    """Rows of leadership. Times are unix seconds."""

    def acquire(self, role: str, owner: str, address: str, ttl_s: float, now_s: float) -> int:
        """Return the epoch of the lease, which rises with each new owner; 0 if another owner has it."""
        ...

    def renew(self, role: str, owner: str, address: str, ttl_s: float, now_s: float) -> bool: ...

    def holds(self, role: str, owner: str) -> bool: ...

    def release(self, role: str, owner: str) -> bool: ...

    def leader(self, role: str, now_s: float) -> str | None:
        """Return the address of the leader, or None."""
        ...

    def clusters(self, now_s: float) -> dict[str, str]:
        """Return all clusters -> address of the leader, empty without a leader."""
        ...


class EpochRecords(LeaseRecords, Protocol):
    """Rows of leadership for an election that is decided elsewhere."""

    def epoch(self, role: str) -> int: ...

    def succeed(self, role: str, owner: str, address: str, ttl_s: float, now_s: float, *, epoch: int) -> int: ...


class HostClaims(Protocol):
    """Claims of clusters on hosts: names of hosts are unique over all clusters."""

    def claim(self, cluster: str, hostnames: Collection[str], is_first: bool = False) -> dict[str, str]: ...

    def disclaim(self, cluster: str, hostnames: Collection[str]) -> None: ...

    def list_claimed(self, cluster: str) -> set[str]: ...


class ClusterOfHosts(Protocol):
    def clusters_of(self, hostnames: Collection[str]) -> dict[str, str]:
        """Return host -> cluster for the hosts that are known."""
        ...


class HeldResources(Protocol):
    def sum_held(self, cluster: str) -> tuple[Resources, Resources]:
        """Return the resources held by pods on hosts of the cluster: all but revocable cpu, and the revocable cpu."""
        ...


class FrameworkRecords(Protocol):
    def framework_id(self, cluster: str) -> str | None:
        """Return the id under which Peloton is registered in the cluster."""
        ...

    def set_framework_id(self, cluster: str, framework_id: str) -> None: ...


# -- processes of Peloton ------------------------------------------------------------------------------------------


class ResourceManager(Protocol):
    def enqueue(self, job_id: JobId, limit: int) -> Queued:
        """Queue at most ``limit`` INITIALIZED pods of the job (PENDING), and wait a moment for their admission."""
        ...

    def kill_queued(self, job_id: JobId) -> int:
        """End the pods of the job whose goal is KILLED while they wait in a queue or for a host. Return how many
        ended."""
        ...

    def requeue_gang(self, job_id: JobId, reason: RequeueReason) -> None:
        """Requeue the job's gang in its old position after a failed launch, and release its resources."""
        ...

    def requeue_pods(
        self, job_id: JobId, instances: Sequence[tuple[int, int]], reason: RequeueReason, but: Sequence[int] = ()
    ) -> int:
        """Requeue READY pods outside gangs that found no host in their old positions, and release their resources.
        ``instances``: ``(start, count)`` sorted, at most REQUEUED_PODS_MAX in all. Pods of the same shape are requeued,
        too, except ``but``. Returns how many."""
        ...

    def note_unplaced(self, job_id: JobId, count: int, why: PlacementReason) -> int:
        """Record why no host was found for admitted pods, for `job why`. Return how many times the pods in backoff
        would fill their pool."""
        ...


class Evictor(Protocol):
    """Executes evictions for all callers."""

    def evict(self, pods: Sequence[tuple[PodId, QosReason]]) -> int:
        """Evict runs from their hosts, each with a reason; their pods are requeued. Return how many are being
        evicted."""
        ...


class HostManager(Protocol):
    """Host managers of all clusters."""

    def choose_clusters(self, wanted: Sequence[tuple[PodShape, int]], preferred: Mapping[str, int]) -> ClusterChoice:
        """Return the clusters to search for hosts of these pods, in order; ``preferred``: number of pods that return to
        a host, by cluster."""
        ...

    def acquire_hosts(
        self,
        job_id: JobId,
        gangs: Sequence[tuple[PodShape, int]],
        for_gang: bool = False,
        desired: Sequence[Desired] = (),
        cluster: str = "",
        waiting: Sequence[WaitingPod] = (),
    ) -> HostLease:
        """Lease hosts of a cluster that can take some of ``(shape, pod count)``. If none is free, the lease is empty,
        and the job's workflow is signalled when that changes. A job has at most two leases, one of them for its gang.
        ``desired``: pods that return to a host. ``waiting``: pods that have waited long enough that a host may be
        reserved for one of them."""
        ...

    def launch(self, job_id: JobId, lease_id: str, placements: Sequence[Placement]) -> LaunchResult: ...

    def place_and_launch(
        self,
        job_id: JobId,
        limit: int,
        for_gang: bool = False,
        cluster: str = "",
        *,
        others: Collection[str] = (),
        wanted: Sequence[tuple[PodShape, int]] = (),
    ) -> LaunchedBatch | None:
        """Place at most ``limit`` READY pods that are not in a gang, or the job's gang whole, and launch them in one
        call: in the ``cluster``, without pods that return to one of the ``others``, or in the only one. ``wanted``
        counts the pods. Return None where pods are placed by lease: without a cluster's name where there are several,
        and by a host manager of the last release."""
        ...

    def release(self, lease_id: str) -> None: ...

    def kill_running(self, job_id: JobId) -> int:
        """Kill the pods of the job on hosts that have the goal KILLED or have to be restarted. Return how many."""
        ...


class ImagePrefetcher(Protocol):
    def prefetch(self, images: Mapping[str, Sequence[Hostname]]) -> Prefetched:
        """Ask hosts to fetch images, without waiting for the result. Best effort, at most PREFETCH_MAX pairs of image
        and host. Raises Unavailable."""
        ...


class MaintenanceController(Protocol):
    """Steps of a host's maintenance. A step that is not the next one does nothing. Each returns the row after it; None
    from a host manager of the last release, where storage has it."""

    def cordon(self, hostname: str) -> HostMaintenance | None:
        """Stop launches on the host, unless other hosts have to be drained first."""
        ...

    def drain(self, hostname: str) -> HostMaintenance | None:
        """Run one round: evict remaining pods as their SLA allows. The host is DRAINED when none is left."""
        ...

    def take_down(self, hostname: str) -> HostMaintenance | None: ...

    def relabel(self, hostname: str) -> HostMaintenance | None:
        """Move a DRAINED host to its new host pool, so that it can be brought up."""
        ...

    def bring_up(self, hostname: str) -> HostMaintenance | None: ...

    def steer(self, hostname: str, act: MaintenanceAct) -> None:
        """Complete, cancel or force the maintenance of a host for an operator. Raises NotFound, Aborted."""
        ...


class MaintenanceControllers(Protocol):
    def controller(self, cluster: str) -> MaintenanceController: ...


class ClusterRebalancer(Protocol):
    def advance_rebalance(self) -> None:
        """Update the states of the moves under way, and start further ones when due. Raises Unavailable."""
        ...


class ClusterRebalancers(Protocol):
    def controller(self, cluster: str) -> ClusterRebalancer: ...


class DaemonController(Protocol):
    """Matches daemons with the hosts of all clusters."""

    def step_daemon(self, job_id: JobId, after: int) -> DaemonStep:
        """Bring the instances of a daemon in line with the matching hosts, and launch instances above ``after`` that
        are not on their hosts; a bounded number of both. Raises Unavailable."""
        ...


class ScheduledJobs(Protocol):
    def create(self, run: ScheduledRun) -> JobStart:
        """Store the job of a run unless it is stored already. Raises InvalidArgument if the API would refuse the job,
        and Unavailable or ResourceExhausted while the API accepts no jobs."""
        ...


class Placer(Protocol):
    def place(self, job_id: JobId, gangs: Sequence[ReadyGang], lease: HostLease) -> PlacementBatch: ...


class Lifecycles(Protocol):
    """Signals for the workflows that own lifecycles. Calls never block; delivery is retried until it succeeds.
    ``cause`` is shown in the history of the workflow. It is one of a few fixed texts, without names of objects."""

    def jobs_changed(self, job_ids: Iterable[JobId], cause: str = "") -> None: ...


class PodLifecycles(Lifecycles, Protocol):
    def pods_changed(self, job_ids: Iterable[JobId], cause: str = "") -> None:
        """Signal that pods of these jobs changed state. Changes that do not affect a workflow are signalled with a
        delay."""
        ...


class HostLifecycles(Protocol):
    """Signals for workflows of host maintenance, as in ``Lifecycles``."""

    def hosts_changed(self, hostnames: Iterable[Hostname]) -> None: ...


class SecretStore(Protocol):
    """The holder of the data of secrets: the row itself, encrypted or not, or another system."""

    @property
    def holder(self) -> str:
        """Return the holder of new rows."""

    def is_remote(self, holder: str) -> bool:
        """Return whether a row of this holder is written or revealed by a call that leaves the process: none is made
        in a transaction."""

    def hold(self, job_id: JobId, secret: Secret) -> HeldSecret:
        """Return the row of a secret, whose data it takes. Raises Unavailable."""

    def reveal(self, job_id: JobId, held: HeldSecret) -> bytes:
        """Return the data of a row. Raises Unavailable naming what is missing."""

    def forget_job(self, job_id: JobId) -> None:
        """Delete what is held outside of the rows of a deleted job; what fails is left."""
