"""What the resource manager needs of the rest: storage and the capacity of the cluster. All calls are synchronous."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from peloton.api.v0.respool.respool_pb2 import ResourcePoolConfig
from peloton.errors import PelotonError
from peloton.model.admission import AdmissionSnapshot, EvictionOrder, EvictionResult, HeldRange
from peloton.model.advice import Marked
from peloton.model.daemon import DaemonReach, DaemonRoom
from peloton.model.host import Capacity
from peloton.model.ids import Hostname, JobId, RespoolId
from peloton.model.job import GangProgress, JobRecord
from peloton.model.pod import PodRecord, PodShape, PodState, ShapeRange
from peloton.model.reason import Infeasibility, RequeueReason
from peloton.model.room import PlannedPods, RoomAnswer
from peloton.model.update import Disruption, UpdateRecord
from peloton.model.volume import StandingVolume, VolumeRecord
from services.resmgr.state import LogRow

Range = tuple[int, int]
"""``(start, count)`` of instances."""
Requeue = Callable[[int], EvictionResult]
"""The least hold of requeued pods in seconds -> the result."""


class AdmissionRecords(Protocol):
    def queueable(self, job_id: JobId, limit: int) -> list[Range]:
        """INITIALIZED instances that may be queued, about ``limit`` of them; a gang is never split."""
        ...

    def waiting_shapes(self, job_id: JobId, start: int, count: int) -> list[ShapeRange]: ...

    def mark_pending(self, job_id: JobId, ranges: list[Range], queue_seq: int) -> list[tuple[int, int, int]]:
        """Queue them: under ``queue_seq``, or where they stood before; returns ``(queue_seq, start, count)``."""
        ...

    def mark_ready(self, items: list[tuple[JobId, int, int]]) -> int:
        """``(job, start, count)`` PENDING -> READY; returns how many rows were PENDING."""
        ...

    def refuse(self, job_id: JobId, message: str, now_ns: int) -> int:
        """INITIALIZED pods that no queue will ever take fail; returns how many."""
        ...

    def kill_queued(self, job_id: JobId, now_ns: int) -> list[tuple[int, int, PodState]]:
        """End PENDING and READY pods whose goal is KILLED: ``(start, count, state before)``."""
        ...

    def held(self, job_ids: Iterable[JobId]) -> Mapping[JobId, Sequence[HeldRange]]:
        """Which pods of these jobs hold resources, by start."""
        ...

    def evict(self, orders: Sequence[EvictionOrder]) -> Sequence[EvictionResult]:
        """READY pods are PENDING again; pods on hosts are marked to end, and to run anew."""
        ...

    def requeue_gang(self, job_id: JobId, reason: RequeueReason, least_hold_s: int = 0) -> EvictionResult:
        """A launch failed: READY members are PENDING again, those on hosts are marked to end and to run anew."""
        ...

    def requeue_pods(
        self,
        job_id: JobId,
        instances: Sequence[Range],
        reason: RequeueReason,
        least_hold_s: int = 0,
        but: Sequence[int] = (),
    ) -> EvictionResult:
        """No host was found: READY pods that stand alone are PENDING again, and held back for a while with those like
        them."""
        ...

    def snapshot(self) -> AdmissionSnapshot: ...

    def status_log(self, after_seq: int, limit: int) -> list[LogRow]: ...

    def prune_status_log(self, upto: int) -> Any: ...


class ShapeRecords(Protocol):
    def shapes_of(self, spans: Sequence[tuple[JobId, int, int, int]]) -> Sequence[list[ShapeRange]]:
        """For each ``(job, version, start, count)``."""
        ...


class JobRecords(Protocol):
    def get(self, job_id: JobId) -> JobRecord | None: ...

    def get_many(self, job_ids: Iterable[JobId]) -> Sequence[JobRecord]: ...

    def active_in_pool(self, respool_id: RespoolId, limit: int) -> Sequence[JobId]:
        """Jobs of a pool that have not ended."""
        ...


class PoolRecords(Protocol):
    def put(self, pool_id: RespoolId, config: ResourcePoolConfig) -> Any: ...

    def delete(self, pool_id: RespoolId) -> Any: ...

    def configs(self) -> dict[RespoolId, ResourcePoolConfig]: ...


class StandingVolumes(Protocol):
    def standing(self) -> Sequence[StandingVolume]:
        """Volumes that count against their pools by themselves."""
        ...


class LogTrimmer(Protocol):
    def trim(self) -> None:
        """Forget changes that no watcher resumes from any more."""
        ...


class EventPruner(Protocol):
    def prune(self, now_ns: int) -> None:
        """Forget events of hosts that are too old, or too many."""
        ...


class ExplainedPods(Protocol):
    def counts(self, job_id: JobId) -> dict[PodState, int]:
        """Pods by state, of now."""
        ...

    def gang(self, job_id: JobId) -> GangProgress:
        """How far the members of the job's gang are."""
        ...

    def failed(self, job_id: JobId, limit: int, only_waiting: bool = False) -> list[PodRecord]:
        """The first pods that ended FAILED or LOST, or KILLED unwanted, by instance."""
        ...

    def waiting_on_hosts(self, job_id: JobId, limit: int) -> tuple[list[PodRecord], int]:
        """The first pods, by instance, whose containers cannot be started yet, and how many there are."""
        ...

    def hosts(self, job_id: JobId) -> Mapping[Hostname, int]:
        """Hosts of the job's pods -> how many."""
        ...


class ExplainedUpdates(Protocol):
    def get(self, update_id: str) -> UpdateRecord | None: ...


class ExplainedDisruptions(Protocol):
    def recent(self, job_id: JobId, limit: int) -> Sequence[Disruption]:
        """What the SLA of a service was asked last, newest first."""
        ...


class LockedComponents(Protocol):
    def locked(self) -> set[str]: ...


class MemoryRecords(Protocol):
    """The repositories that the resource manager's memory is rebuilt from."""

    @property
    def admission(self) -> AdmissionRecords: ...
    @property
    def configs(self) -> ShapeRecords: ...
    @property
    def volumes(self) -> StandingVolumes: ...


class LoopRecords(MemoryRecords, Protocol):
    """Those of the admission loop."""

    @property
    def jobs(self) -> JobRecords: ...
    @property
    def pools(self) -> PoolRecords: ...
    @property
    def watch_log(self) -> LogTrimmer: ...
    @property
    def host_events(self) -> EventPruner: ...


class Bindings(Protocol):
    def binding(self, job: JobRecord) -> str:
        """The cluster to which the job, or its pool, is bound by a migration; empty: none."""
        ...


class ExternalPodNotes(Protocol):
    def notes(self, job_id: JobId, limit: int) -> list[tuple[str, str]]:
        """``(namespace and name, why)`` of pods of which their cluster says why they do not get on."""
        ...


class ExplainedVolumes(StandingVolumes, Protocol):
    def lost(self, job_id: JobId, limit: int) -> list[VolumeRecord]: ...


class ExplainRecords(LoopRecords, Protocol):
    """Those of explanations."""

    @property
    def pods(self) -> ExplainedPods: ...
    @property
    def updates(self) -> ExplainedUpdates: ...
    @property
    def disruptions(self) -> ExplainedDisruptions: ...
    @property
    def lockdowns(self) -> LockedComponents: ...
    @property
    def migrations(self) -> Bindings: ...
    @property
    def external_pods(self) -> ExternalPodNotes: ...
    @property
    def volumes(self) -> ExplainedVolumes: ...


class CapacitySource(Protocol):
    def capacity(self) -> Capacity:
        """Of all clusters. Raises Unavailable."""
        ...

    def judge(self, shapes: Sequence[PodShape]) -> Mapping[PodShape, Infeasibility]:
        """Pods that no host could take even if it were empty, and why. Raises Unavailable."""
        ...

    def find_room(self, pods: Sequence[PlannedPods]) -> RoomAnswer:
        """For how many pods that are only planned hosts have room now. Raises Unavailable."""
        ...

    def plan_daemon(self, shape: PodShape) -> Mapping[str, DaemonRoom | PelotonError]:
        """What a daemon that is only planned would find on the hosts now, or why that is not known, by cluster. Raises
        Unavailable."""
        ...

    def reach(self, shape: PodShape) -> Sequence[DaemonReach]:
        """On which hosts a daemon with such pods is to run, by cluster. Raises Unavailable."""
        ...

    def advice(self) -> tuple[Mapping[Hostname, Marked], Mapping[JobId, Marked]]:
        """Hosts and services that are marked orange or red. Raises Unavailable."""
        ...
