"""What the resource manager rebuilds its memory from."""

from __future__ import annotations

from dataclasses import dataclass

from peloton.model.job import JobRecord
from peloton.model.respool import PoolSpec


@dataclass(frozen=True, slots=True)
class PendingRange:
    """Queued instances ``start .. start+count-1`` that were queued together."""

    queue_seq: int
    start: int
    count: int
    config_version: int


@dataclass(frozen=True, slots=True)
class AllocatedRange:
    """Instances that hold resources of their pool. ``launched``: a host may know them (else they are READY)."""

    start: int
    count: int
    config_version: int
    launched: bool


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    job: JobRecord
    pending: tuple[PendingRange, ...]  # by queue_seq
    allocated: tuple[AllocatedRange, ...]  # by start


@dataclass(frozen=True, slots=True)
class ResmgrSnapshot:
    """One moment: what ended before ``log_cursor`` is not in the jobs, what ends after it is in the log."""

    pools: tuple[PoolSpec, ...]
    jobs: tuple[JobSnapshot, ...]  # those that have not ended, by id
    log_cursor: int
