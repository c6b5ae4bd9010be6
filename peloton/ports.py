"""What the shell gives the inside: one Protocol per dependency. All calls are synchronous and thread-safe.

Every method is one transaction or one outside effect, and safe to repeat: a second call with the same arguments
finds the work done and answers the same.
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
from peloton.model.update import UpdateAct, UpdateKey, UpdateProgress, UpdateRecord

REQUEUED_PODS_MAX = 1_000
"""Pods that one call of ``ResourceManager.requeue_pods`` names."""


# -- storage, by owner ---------------------------------------------------------------------------------------------


CALL_DEADLINE_S: ContextVar[float | None] = ContextVar("CALL_DEADLINE_S", default=None)
"""Monotonic time at which the caller of a port gives up, or None: remote calls end before it."""


class JobRecords(Protocol):
    def get(self, job_id: JobId) -> JobRecord | None: ...

    def settle(self, job_id: JobId, now_ns: int, created_max: int = 0) -> JobProgress:
        """Bring a bounded number of ended pods to their next run or rest, roll up the job's state, report counts.
        Create the instances of a new service when they are at most ``created_max``."""
        ...

    def set_goal(self, job_id: JobId, goal: JobState, now_ns: int) -> JobRecord | None:
        """Steer a job and its pods towards ``goal``; one that is to be deleted, and a batch job that has ended, stay as
        they are."""
        ...

    def stop(self, job_id: JobId, now_ns: int) -> JobRecord:
        """Stop a job as people do, by the rules of the API. Raises NotFound, Aborted, InvalidArgument."""
        ...

    def delete(self, job_id: JobId, on_chunk: Callable[[int], None] = lambda instances: None) -> None:
        """Forget an ended job and all that belongs to it, in chunks of instances."""
        ...


class PodRecords(Protocol):
    def create(self, job_id: JobId, on_chunk: Callable[[int], None]) -> int:
        """Create the missing pods [0, instance_count) in chunks, INITIALIZED, run 1; returns how many exist."""
        ...

    def gang(self, job_id: JobId) -> GangProgress:
        """How far the members of the job's gang are; of size 0 when it has none, or has ended."""
        ...

    def ready_gangs(self, job_id: JobId, limit: int) -> list[ReadyGang]:
        """READY pods that stand alone, as gangs of one, at most ``limit``."""
        ...

    def ready_gang(self, job_id: JobId) -> ReadyGang | None:
        """The job's gang when all its members are READY."""
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
        """Pause, resume or abort the job's update, if it is the one of ``update_id``. Raises NotFound, Aborted."""
        ...

    def pulse(self, job_id: JobId, key_text: str, now_ns: int) -> tuple[JobRecord, UpdateRecord]:
        """Let the update of a job go on, if it has this key. Raises NotFound, Aborted, InvalidArgument."""
        ...

    def roll_back(self, update_id: str, key: UpdateKey, now_ns: int) -> JobRecord:
        """Bring a job back to the configuration before its latest update, once for each ``key``. Raises NotFound,
        InvalidArgument, AlreadyExists."""
        ...

    def abort_active(self, job_id: JobId, now_ns: int) -> None:
        """Abort the update of a service, if one is under way."""
        ...

    def advance(self, job_id: JobId, now_ns: int) -> UpdateProgress:
        """Note which instances in flight of the update of a service are done or have failed, and put the next ones in
        flight: none when the update ``rolls_back_to`` a version."""
        ...

    def roll_back_failed(self, job_id: JobId, now_ns: int) -> None:
        """Turn the update of a service round to the version before, if too many of its instances have failed."""
        ...

    def images_to_prefetch(self, job_id: JobId) -> Mapping[str, Sequence[Hostname]]:
        """Image -> hosts to which the instances that are updated next bring it; at most PREFETCH_MAX of both."""
        ...


class MaintenanceRecords(Protocol):
    def get(self, cluster: str, hostname: str) -> HostMaintenance | None:
        """None for a host that is not in maintenance."""
        ...


class MigrationRecords(Protocol):
    def advance(self, migration_id: str) -> MigrationProgress:
        """Take one step of a migration, if it is under way."""
        ...

    def steer(self, migration_id: str, act: MigrationAct) -> Migration:
        """Raises NotFound; Aborted once it has ended."""
        ...


class RebalanceRecords(Protocol):
    def get(self, cluster: str) -> Rebalance | None:
        """None for a cluster that was never rebalanced."""
        ...

    def steer(self, clusters: Collection[str], act: RebalanceAct) -> list[Rebalance]:
        """Raises NotFound, Aborted."""
        ...


class Lockdowns(Protocol):
    def refusal(self, kind: str) -> str:
        """Return why calls of this kind, Read or Write, are turned away now; empty: they are not."""
        ...


class LeaseRecords(Protocol):
    """Rows of leadership. Times are unix seconds."""

    def acquire(self, role: str, owner: str, address: str, ttl_s: float, now_s: float) -> bool: ...

    def renew(self, role: str, owner: str, address: str, ttl_s: float, now_s: float) -> bool: ...

    def holds(self, role: str, owner: str) -> bool: ...

    def release(self, role: str, owner: str) -> bool: ...

    def leader(self, role: str, now_s: float) -> str | None:
        """Its address."""
        ...

    def clusters(self, now_s: float) -> dict[str, str]:
        """All clusters -> address of the leader, empty while there is none."""
        ...


class HostClaims(Protocol):
    """Whose each host is: names of hosts are unique over all clusters."""

    def claim(self, cluster: str, hostnames: Collection[str], is_first: bool = False) -> dict[str, str]: ...

    def disclaim(self, cluster: str, hostnames: Collection[str]) -> None: ...

    def claimed(self, cluster: str) -> set[str]: ...


class ClusterOfHosts(Protocol):
    def clusters_of(self, hostnames: Collection[str]) -> dict[str, str]:
        """Of these hosts those that are known -> their clusters."""
        ...


class HeldResources(Protocol):
    def held(self, cluster: str) -> tuple[Resources, Resources]:
        """What pods on hosts of the cluster were given: all of it but revocable cpu, and that."""
        ...


class FrameworkRecords(Protocol):
    def framework_id(self, cluster: str) -> str | None:
        """Under which id the cluster has us."""
        ...

    def set_framework_id(self, cluster: str, framework_id: str) -> None: ...


# -- processes of ours ---------------------------------------------------------------------------------------------


class ResourceManager(Protocol):
    def enqueue(self, job_id: JobId, limit: int) -> Queued:
        """Queue at most ``limit`` INITIALIZED pods of the job (PENDING), and wait a moment for their admission."""
        ...

    def kill_queued(self, job_id: JobId) -> int:
        """End the job's pods that wait in a queue or for a host and whose goal is KILLED; returns how many."""
        ...

    def requeue_gang(self, job_id: JobId, reason: RequeueReason) -> None:
        """A launch of the job's gang was in vain: take back what it was given, and queue it again in its old place."""
        ...

    def requeue_pods(
        self, job_id: JobId, instances: Sequence[tuple[int, int]], reason: RequeueReason, but: Sequence[int] = ()
    ) -> int:
        """No host was found for READY pods that stand alone, ``(start, count)`` by start, at most REQUEUED_PODS_MAX in
        all: take back what they were given, and queue them again in their old places, with those like them ``but``
        these. Returns how many."""
        ...

    def note_unplaced(self, job_id: JobId, count: int, why: PlacementReason) -> int:
        """Remember why admitted pods found no host, for `job why`. Returns how often all that is held
        back in its pool, because no host was found, fills the pool when it is tried once."""
        ...


class Evictor(Protocol):
    """The owner of evictions, whoever wants them."""

    def evict(self, pods: Sequence[tuple[PodId, QosReason]]) -> int:
        """Runs on hosts, each with the reason, are to end and to be queued anew; returns how many begin to leave."""
        ...


class HostManager(Protocol):
    """The host managers of all clusters."""

    def choose_clusters(self, wanted: Sequence[tuple[PodShape, int]], homes: Mapping[str, int]) -> ClusterChoice:
        """Where to look for hosts for these pods, and in which order; ``homes``: clusters to which so many of them come
        back."""
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
        """Lease hosts of a cluster that can take some of ``(shape, pod count)``. With none free the lease is empty, and
        the job's workflow gets a signal when that changes. A job has two leases at most, one of them for its gang.
        ``desired``: of the wanted pods those that come back to a host. ``waiting``: those that have waited for
        long, for one of which a host may be reserved."""
        ...

    def launch(self, job_id: JobId, lease_id: str, placements: Sequence[Placement]) -> LaunchResult: ...

    def release(self, lease_id: str) -> None: ...

    def kill_running(self, job_id: JobId) -> int:
        """Ask hosts to end the job's pods whose goal is KILLED or that are to run anew; returns how many."""
        ...


class ImagePrefetcher(Protocol):
    def prefetch(self, images: Mapping[str, Sequence[Hostname]]) -> Prefetched:
        """Ask hosts to fetch images; it does not wait until they are there. Best effort, at most PREFETCH_MAX images on
        hosts. Raises Unavailable."""
        ...


class HostKeeper(Protocol):
    """Steps of a host's maintenance. Each does nothing unless it is the next one; storage tells what came of it."""

    def cordon(self, hostname: str) -> None:
        """When it is the host's turn, nothing is launched on it any more."""
        ...

    def drain(self, hostname: str) -> None:
        """One round: ask the pods that have not been asked yet to leave; the host is DRAINED once nothing is left."""
        ...

    def take_down(self, hostname: str) -> None: ...

    def relabel(self, hostname: str) -> None:
        """A host that moves and is DRAINED is in its new host pool, and is to come back up."""
        ...

    def bring_up(self, hostname: str) -> None: ...

    def steer(self, hostname: str, act: MaintenanceAct) -> None:
        """Complete, cancel or force the maintenance of a host, as operators do. Raises NotFound, Aborted."""
        ...


class HostKeepers(Protocol):
    def keeper(self, cluster: str) -> HostKeeper: ...


class ClusterRebalancer(Protocol):
    def advance_rebalance(self) -> None:
        """See what has become of the moves under way, and begin others when it is time. Raises Unavailable."""
        ...


class ClusterRebalancers(Protocol):
    def keeper(self, cluster: str) -> ClusterRebalancer: ...


class DaemonKeeper(Protocol):
    """The hosts of all clusters, as daemons follow them."""

    def step_daemon(self, job_id: JobId, after: int) -> DaemonStep:
        """Make the instances of a daemon those of the hosts that match, and launch those above ``after`` that are not
        on their hosts, a bounded number of both. Raises Unavailable."""
        ...


class ScheduledJobs(Protocol):
    def create(self, run: ScheduledRun) -> JobStart:
        """Store the job of a run unless it is stored already. Raises InvalidArgument for a job that the API would
        refuse, Unavailable and ResourceExhausted while it would take none."""
        ...


class Placer(Protocol):
    def place(self, job_id: JobId, gangs: Sequence[ReadyGang], lease: HostLease) -> PlacementBatch: ...


class Lifecycles(Protocol):
    """Wakes the workflows that own lifecycles. Never blocks; delivery is retried until it succeeds. ``cause`` is why,
    for people who read the history of the workflow: one of few texts, without names."""

    def jobs_changed(self, job_ids: Iterable[JobId], cause: str = "") -> None: ...


class PodLifecycles(Lifecycles, Protocol):
    def pods_changed(self, job_ids: Iterable[JobId], cause: str = "") -> None:
        """Pods of these jobs are in another state. A workflow that has only to show it gets its signal later."""
        ...


class HostLifecycles(Protocol):
    """As ``Lifecycles``, for maintenance of hosts."""

    def hosts_changed(self, hostnames: Iterable[Hostname]) -> None: ...
