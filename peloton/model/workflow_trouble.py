"""Failing workflows and activities, as reported by Temporal and the workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FailingActivity:
    """An activity whose attempts fail. ``attempt``: the number of the last started attempt; ``error``: the error of the
    last failed one."""

    workflow_id: str
    activity: str
    attempt: int
    error: str
    since_ns: int = 0  # start of the first attempt


@dataclass(frozen=True, slots=True)
class FailingTask:
    """A workflow whose workflow tasks fail repeatedly. ``cause``: Temporal's name of the cause."""

    workflow_id: str
    cause: str


@dataclass(frozen=True, slots=True)
class FailedWorkflow:
    """A workflow that failed and has not been restarted. ``reason``: the number of failures, and what follows."""

    workflow_id: str
    error: str
    reason: str


@dataclass(frozen=True, slots=True)
class JobTrouble:
    """Failures of the workflows of one job."""

    tasks: Sequence[FailingTask] = ()
    activities: Sequence[FailingActivity] = ()
    failed: Sequence[FailedWorkflow] = ()


@dataclass(frozen=True, slots=True)
class TemporalSnapshot:
    """Result of polling Temporal once. ``fault``: why Temporal did not answer; then all other fields are unset."""

    fault: str = ""
    queue_count: int = 0
    unserved: Sequence[str] = ()  # task queues that no worker polls
    tasks: Sequence[FailingTask] = ()  # the first of task_count
    task_count: int = 0
    failed: Sequence[FailedWorkflow] = ()  # the first of failed_count
    failed_count: int = 0
    gone_version: str = ""  # the version of the workers that is current, if it has no worker and others have
    waiting_versions: Sequence[str] = ()  # these others

    @property
    def is_unserved(self) -> bool:
        """True if no worker polls any task queue."""
        return bool(self.unserved) and len(self.unserved) == self.queue_count
