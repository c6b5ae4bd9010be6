"""Queued and admitted pods as ranges of instances: what the resource manager remembers, evicts and queues again."""

from __future__ import annotations

from dataclasses import dataclass, field

from peloton.model.ids import JobId, PodId
from peloton.model.job import JobRecord
from peloton.model.reason import EvictionReason
from peloton.model.resources import Resources
from peloton.model.respool import PoolSpec


@dataclass(frozen=True, slots=True)
class PendingRange:
    """Queued instances ``start .. start+count-1`` that were queued together. ``held_until_ns``: not admitted before."""

    queue_seq: int
    start: int
    count: int
    config_version: int
    held_until_ns: int = 0


@dataclass(frozen=True, slots=True)
class AllocatedRange:
    """Instances that hold resources of their pool. ``launched``: a host may know them (else they are READY).
    ``evicted``: they are on their way out."""

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
    """One moment: what ended before ``log_cursor`` is not in the jobs, what ends after it is in the log."""

    pools: tuple[PoolSpec, ...]
    jobs: tuple[JobSnapshot, ...]  # those that have not ended, by id
    log_cursor: int
    last_queue_seq: int = 0  # of all pods of these jobs: those that will come back keep their places


@dataclass(frozen=True, slots=True)
class HeldRange:
    """Instances that hold resources and were queued together. ``is_leaving``: they will end, or run anew."""

    queue_seq: int
    start: int
    count: int
    config_version: int
    is_launched: bool
    is_leaving: bool


@dataclass(frozen=True, slots=True)
class EvictionOrder:
    """Instances ``start .. start+count-1`` are to give their resources back; a gang is queued again as a whole.
    With a ``run_id`` only that run is meant, and not one that has taken its place since."""

    job_id: JobId
    start: int
    count: int
    is_gang: bool
    why: EvictionReason
    run_id: int = 0


@dataclass(frozen=True, slots=True)
class RevocableRun:
    """A run on revocable cpu of a host, which may be evicted. ``is_leaving``: it will end anyway."""

    pod_id: PodId
    priority: int
    started_ns: int
    asked: Resources
    is_leaving: bool


@dataclass(slots=True)
class EvictionResult:
    """What became of the evicted pods of one job, as ``(start, count)`` ranges."""

    job_id: JobId
    queued: list[tuple[int, int, int]] = field(default_factory=list)  # (queue_seq, start, count), PENDING again
    unqueued: list[tuple[int, int]] = field(default_factory=list)  # INITIALIZED: members of a gang wait for the rest
    leaving: list[tuple[int, int]] = field(default_factory=list)  # PREEMPTING: their hosts are to end them
    held_back: list[tuple[int, int, int]] = field(default_factory=list)  # (start, count, until when) of ``queued``
    requeue_count: int = 0  # of a gang whose launch was given up: how often in a row,
    held_until_ns: int = 0  # and when it may be admitted again
