"""The ports of the resource manager: storage and the capacity of the cluster. All calls are synchronous."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from peloton.api.v0.respool.respool_pb2 import ResourcePoolConfig
from peloton.errors import PelotonError
from peloton.model.admission import AdmissionSnapshot, EvictionOrder, EvictionResult, HeldRange
from peloton.model.advice import Marked
from peloton.model.daemon import DaemonPlan, DaemonReach
from peloton.model.host import Capacity
from peloton.model.ids import Hostname, JobId, RespoolId
from peloton.model.job import GangProgress, JobRecord
from peloton.model.planned_capacity import CapacityAnswer, PlannedPods
from peloton.model.pod import PodRecord, PodShape, PodState, ShapeRange
from peloton.model.reason import Infeasibility, RequeueReason
from peloton.model.update import Disruption, UpdateRecord
from peloton.model.volume import RetainedVolume, VolumeRecord
from services.resmgr.state import LogRow

Range = tuple[int, int]
"""``(start, count)`` of instances."""
Requeue = Callable[[int], EvictionResult]
"""A function from the least backoff of requeued pods in seconds to the result."""


class AdmissionRecords(Protocol):
    def queueable(self, job_id: JobId, limit: int) -> list[Range]:
        """Return INITIALIZED instances that may be queued, about ``limit`` of them; a gang is never split."""
        ...

    def waiting_shapes(self, job_id: JobId, start: int, count: int) -> list[ShapeRange]: ...

    def mark_pending(self, job_id: JobId, ranges: list[Range], queue_seq: int) -> list[tuple[int, int, int]]:
        """Queue them under ``queue_seq`` or in their earlier place; return ``(queue_seq, start, count)``."""
        ...

    def mark_ready(self, items: list[tuple[JobId, int, int]]) -> int:
        """Set ``(job, start, count)`` PENDING -> READY; return how many rows were PENDING."""
        ...

    def refuse(self, job_id: JobId, message: str, now_ns: int) -> int:
        """Fail INITIALIZED pods that no queue will ever take; return how many."""
        ...

    def kill_queued(self, job_id: JobId, now_ns: int) -> list[tuple[int, int, PodState]]:
        """End PENDING and READY pods whose goal is KILLED; return ``(start, count, state before)``."""
        ...

    def list_held(self, job_ids: Iterable[JobId]) -> Mapping[JobId, Sequence[HeldRange]]:
        """Return the ranges of pods of these jobs that hold resources, by start."""
        ...

    def evict(self, orders: Sequence[EvictionOrder]) -> Sequence[EvictionResult]:
        """Set READY pods to PENDING again; mark pods on hosts to end and to run again."""
        ...

    def requeue_gang(self, job_id: JobId, reason: RequeueReason, least_hold_s: int = 0) -> EvictionResult:
        """Requeue a gang whose launch failed: READY members are PENDING again, members on hosts are marked to end and
        run again."""
        ...

    def requeue_pods(
        self,
        job_id: JobId,
        instances: Sequence[Range],
        reason: RequeueReason,
        least_hold_s: int = 0,
        but: Sequence[int] = (),
    ) -> EvictionResult:
        """Requeue READY single pods for which no host was found, as PENDING, in backoff together with like pods."""
        ...

    def snapshot(self) -> AdmissionSnapshot: ...

    def status_log(self, after_seq: int, limit: int) -> list[LogRow]: ...

    def prune_status_log(self, upto: int) -> Any: ...


class ShapeRecords(Protocol):
    def shapes_of(self, spans: Sequence[tuple[JobId, int, int, int]]) -> Sequence[list[ShapeRange]]:
        """Return the shapes for each ``(job, version, start, count)``."""
        ...


class JobRecords(Protocol):
    def get(self, job_id: JobId) -> JobRecord | None: ...

    def get_many(self, job_ids: Iterable[JobId]) -> Sequence[JobRecord]: ...

    def active_in_pool(self, respool_id: RespoolId, limit: int) -> Sequence[JobId]:
        """Return jobs of a pool that have not ended."""
        ...


class PoolRecords(Protocol):
    def put(self, pool_id: RespoolId, config: ResourcePoolConfig) -> Any: ...

    def delete(self, pool_id: RespoolId) -> Any: ...

    def configs(self) -> dict[RespoolId, ResourcePoolConfig]: ...


class RetainedVolumes(Protocol):
    def list_retained(self) -> Sequence[RetainedVolume]:
        """Return the volumes that no run holds, which count against their pools by themselves."""
        ...


class LogTrimmer(Protocol):
    def trim(self) -> None:
        """Forget changes from which no watcher resumes."""
        ...


class EventPruner(Protocol):
    def prune(self, now_ns: int) -> None:
        """Forget events of hosts that are too old, or too many."""
        ...


class ExplainedPods(Protocol):
    def counts(self, job_id: JobId) -> dict[PodState, int]:
        """Return the present counts of pods by state."""
        ...

    def gang(self, job_id: JobId) -> GangProgress:
        """Return the progress of the members of the job's gang."""
        ...

    def list_failed(self, job_id: JobId, limit: int, only_waiting: bool = False) -> list[PodRecord]:
        """Return the first pods that ended FAILED or LOST, or KILLED without a stop, by instance."""
        ...

    def waiting_on_hosts(self, job_id: JobId, limit: int) -> tuple[list[PodRecord], int]:
        """Return the first pods, by instance, whose containers cannot be started yet, and their total count."""
        ...

    def hosts(self, job_id: JobId) -> Mapping[Hostname, int]:
        """Return the number of the job's pods on each host."""
        ...


class ExplainedUpdates(Protocol):
    def get(self, update_id: str) -> UpdateRecord | None: ...


class ExplainedDisruptions(Protocol):
    def recent(self, job_id: JobId, limit: int) -> Sequence[Disruption]:
        """Return the latest answers of the SLA of a service to disruption requests, newest first."""
        ...


class LockedComponents(Protocol):
    def read_locked(self) -> set[str]: ...


class MemoryRecords(Protocol):
    """The repositories that the resource manager's memory is rebuilt from."""

    @property
    def admission(self) -> AdmissionRecords: ...
    @property
    def configs(self) -> ShapeRecords: ...
    @property
    def volumes(self) -> RetainedVolumes: ...


class LoopRecords(MemoryRecords, Protocol):
    """The repositories of the admission loop."""

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
        """Return the cluster to which a migration binds the job, or its pool; empty: none."""
        ...


class ExternalPodNotes(Protocol):
    def notes(self, job_id: JobId, limit: int) -> list[tuple[str, str]]:
        """Return ``(namespace and name, reason)`` of pods that their cluster reports as stuck."""
        ...


class ExplainedVolumes(RetainedVolumes, Protocol):
    def list_lost(self, job_id: JobId, limit: int) -> list[VolumeRecord]: ...


class ExplainRecords(LoopRecords, Protocol):
    """The repositories of explanations."""

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
        """Return the capacity of all clusters. Raises Unavailable."""
        ...

    def evaluate(self, shapes: Sequence[PodShape]) -> Mapping[PodShape, Infeasibility]:
        """Return the pods that not even an empty host could take, and the reasons. Raises Unavailable."""
        ...

    def find_capacity(self, pods: Sequence[PlannedPods]) -> CapacityAnswer:
        """Return for how many planned pods hosts have free resources now. Raises Unavailable."""
        ...

    def plan_daemon(self, shape: PodShape) -> Mapping[str, DaemonPlan | PelotonError]:
        """Return by cluster the free resources that a planned daemon would find on hosts now, or why they are unknown.

        Raises Unavailable.
        """
        ...

    def reach(self, shape: PodShape) -> Sequence[DaemonReach]:
        """Return by cluster the hosts on which a daemon with such pods runs. Raises Unavailable."""
        ...

    def advice(self) -> tuple[Mapping[Hostname, Marked], Mapping[JobId, Marked]]:
        """Return the hosts and services that are marked orange or red. Raises Unavailable."""
        ...
