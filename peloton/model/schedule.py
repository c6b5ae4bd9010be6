"""Schedules of jobs: when their runs start, what one run creates, and how it ended. Times are unix nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

CONFIG_BYTES_MAX = 256 * 1024
"""The configuration of a schedule's jobs: Temporal keeps it in the schedule and in the history of each run."""
CATCH_UP_DEFAULT_S = 3_600


class Overlap(StrEnum):
    """The policy for a time at which the job of an earlier run has not ended."""

    SKIP = "SKIP"
    BUFFER_ONE = "BUFFER_ONE"
    BUFFER_ALL = "BUFFER_ALL"
    CANCEL_OTHER = "CANCEL_OTHER"
    ALLOW_ALL = "ALLOW_ALL"


class RunState(StrEnum):
    """The state of a run; one whose job has ended has the state of its job."""

    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    DELETED = "DELETED"
    REFUSED = "REFUSED"  # the job could not be created
    TERMINATED = "TERMINATED"  # by hand, in Temporal; the job goes on


@dataclass(frozen=True, slots=True)
class Times:
    crons: tuple[str, ...] = ()
    interval_s: int = 0  # 0: none
    offset_s: int = 0
    time_zone: str = ""  # of the cron expressions; "" = UTC
    jitter_s: int = 0


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    overlap: Overlap = Overlap.SKIP
    catch_up_s: int = CATCH_UP_DEFAULT_S
    pauses_on_failure: bool = False


@dataclass(frozen=True, slots=True)
class ScheduledJob:
    """The jobs of a schedule. ``config`` is a serialized JobConfig of v0."""

    config: bytes
    name: str
    pool_id: str
    pool_path: str
    owner: str


@dataclass(frozen=True, slots=True)
class Run:
    workflow_id: str
    state: RunState
    scheduled_ns: int
    started_ns: int
    ended_ns: int = 0
    job_id: str = ""
    job_name: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Counts:
    runs: int = 0
    skipped: int = 0  # times at which a run was under way
    missed: int = 0  # times that were past the catch-up window


@dataclass(frozen=True, slots=True)
class Schedule:
    """``options``, ``counts`` and ``config`` are unknown where schedules are listed."""

    name: str
    times: Times
    job_name: str
    pool_path: str
    owner: str
    paused: bool
    note: str
    next_ns: tuple[int, ...] = ()
    runs: tuple[Run, ...] = ()  # the newest first
    options: ScheduleOptions | None = None
    counts: Counts = Counts()
    created_ns: int = 0
    config: bytes = b""


@dataclass(frozen=True, slots=True)
class ScheduledRun:
    """The job that a run creates. The same value always means the same job."""

    schedule: str
    creation_id: str  # differs between two schedules that have the name one after the other
    config: str  # a serialized JobConfig of v0, as base64
    scheduled_ns: int


@dataclass(frozen=True, slots=True)
class JobStart:
    """The way to start the workflow of a stored job so that people find it."""

    job_id: str
    name: str
    task_queue: str
    pool_id: str
    summary: str
    details: str
    attributes: dict[str, str] = field(default_factory=dict)
    memo: dict[str, str | int | bool] = field(default_factory=dict)
