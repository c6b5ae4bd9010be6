"""Schedules of jobs: their times, the job that each run creates, and its result. Times are unix nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

CONFIG_BYTES_MAX = 256 * 1024
"""Maximum bytes of the configuration of a schedule's jobs, which Temporal stores in the schedule and in the history of
each run."""
CATCH_UP_DEFAULT_S = 3_600


class Overlap(StrEnum):
    """Policy for a scheduled time at which the job of an earlier run has not ended."""

    SKIP = "SKIP"
    BUFFER_ONE = "BUFFER_ONE"
    BUFFER_ALL = "BUFFER_ALL"
    CANCEL_OTHER = "CANCEL_OTHER"
    ALLOW_ALL = "ALLOW_ALL"


class RunState(StrEnum):
    """State of a run, which is the state of its job once that has ended."""

    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    DELETED = "DELETED"
    REFUSED = "REFUSED"  # the job could not be created
    TERMINATED = "TERMINATED"  # terminated in Temporal by an operator; the job continues


@dataclass(frozen=True, slots=True)
class Times:
    crons: tuple[str, ...] = ()
    interval_s: int = 0  # 0: none
    offset_s: int = 0
    time_zone: str = ""  # time zone of the cron expressions; "" = UTC
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
    creator: str = ""  # name of the user to whom the jobs belong; "": not known


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
    skipped: int = 0  # times skipped by the overlap policy
    missed: int = 0  # times that passed more than the catch-up window ago


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule. ``options``, ``counts`` and ``config`` are unset in lists of schedules.

    ``pool_path`` is that of its creation, until ``pool_id`` is looked up; the id is empty in lists for schedules of
    earlier versions.
    """

    name: str
    times: Times
    job_name: str
    pool_path: str
    owner: str
    paused: bool
    note: str
    next_ns: tuple[int, ...] = ()
    runs: tuple[Run, ...] = ()  # newest first
    options: ScheduleOptions | None = None
    counts: Counts = Counts()
    created_ns: int = 0
    config: bytes = b""
    pool_id: str = ""
    creator: str = ""


@dataclass(frozen=True, slots=True)
class ScheduledRun:
    """Input of a run. Equal inputs create the same job, so that a retry creates no second one."""

    schedule: str
    creation_id: str  # distinguishes successive schedules of the same name
    config: str  # a serialized JobConfig of v0, as base64
    scheduled_ns: int
    creator: str = ""  # of the schedule


@dataclass(frozen=True, slots=True)
class JobStart:
    """Arguments for the start of the workflow of a stored job, with its search attributes."""

    job_id: str
    name: str
    task_queue: str
    pool_id: str
    summary: str
    details: str
    attributes: dict[str, str] = field(default_factory=dict)
    memo: dict[str, str | int | bool] = field(default_factory=dict)
