"""Queued and admitted pods as ranges of instances, which the resource manager restores, evicts and requeues."""

from __future__ import annotations

from dataclasses import dataclass, field

from peloton.model.ids import JobId, PodId
from peloton.model.job import JobRecord
from peloton.model.reason import EvictionReason
from peloton.model.resources import Resources
from peloton.model.respool import PoolSpec


@dataclass(frozen=True, slots=True)
class PendingRange:
    """Queued instances ``start .. start+count-1`` that were queued together; not admitted before ``held_until_ns``."""

    queue_seq: int
    start: int
    count: int
    config_version: int
    held_until_ns: int = 0


@dataclass(frozen=True, slots=True)
class AllocatedRange:
    """Instances that hold resources of their pool. ``launched``: the pods may be on a host; otherwise they are READY.
    ``evicted``: the pods are leaving."""

    start: int
    count: int
    config_version: int
    launched: bool
    evicted: bool = False


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    job: JobRecord
    pending: tuple[PendingRange, ...]  # by queue_seq
    allocated: tuple[AllocatedRange, ...]  # by start


@dataclass(frozen=True, slots=True)
class AdmissionSnapshot:
    """Admission state at one moment. Pods that ended before ``log_cursor`` are not counted in ``jobs``; later endings
    are in the log."""

    pools: tuple[PoolSpec, ...]
    jobs: tuple[JobSnapshot, ...]  # active jobs, by id
    log_cursor: int
    last_queue_seq: int = 0  # highest of all pods of these jobs, since returning pods keep their places


@dataclass(frozen=True, slots=True)
class HeldRange:
    """Instances that hold resources and were queued together. ``is_leaving``: the pods will end or be restarted."""

    queue_seq: int
    start: int
    count: int
    config_version: int
    is_launched: bool
    is_leaving: bool


@dataclass(frozen=True, slots=True)
class EvictionOrder:
    """Order to release the resources of instances ``start .. start+count-1``; a gang is requeued as a whole. With a
    ``run_id`` the order applies to that run only, not to a later run of the instance."""

    job_id: JobId
    start: int
    count: int
    is_gang: bool
    why: EvictionReason
    run_id: int = 0


@dataclass(frozen=True, slots=True)
class RevocableRun:
    """A run on revocable cpu of a host, which may be evicted. ``is_leaving``: the run ends without an eviction."""

    pod_id: PodId
    priority: int
    started_ns: int
    asked: Resources
    is_leaving: bool


@dataclass(slots=True)
class EvictionResult:
    """Outcome of an eviction for the pods of one job, as ``(start, count)`` ranges."""

    job_id: JobId
    queued: list[tuple[int, int, int]] = field(default_factory=list)  # (queue_seq, start, count), PENDING again
    unqueued: list[tuple[int, int]] = field(default_factory=list)  # INITIALIZED: gang members that wait for the rest
    leaving: list[tuple[int, int]] = field(default_factory=list)  # PREEMPTING: the hosts end them
    in_backoff: list[tuple[int, int, int]] = field(default_factory=list)  # ``queued`` in backoff: (start, count, until)
    requeue_count: int = 0  # consecutive failed launches of the gang
    held_until_ns: int = 0  # end of the gang's backoff
