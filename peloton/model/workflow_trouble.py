"""Trouble of workflows, as Temporal and the workers see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FailingActivity:
    """An activity whose attempts fail. ``attempt``: the number of the last one that began; ``error``: what the last one
    that failed said."""

    workflow_id: str
    activity: str
    attempt: int
    error: str
    since_ns: int = 0  # of the first attempt


@dataclass(frozen=True, slots=True)
class FailingTask:
    """A workflow whose workflow tasks fail again and again. ``cause``: as Temporal names it."""

    workflow_id: str
    cause: str


@dataclass(frozen=True, slots=True)
class FailedWorkflow:
    """A workflow that failed and has not been started again. ``reason``: how often it failed, and what follows."""

    workflow_id: str
    error: str
    reason: str


@dataclass(frozen=True, slots=True)
class JobTrouble:
    """Trouble of the workflows of one job."""

    tasks: Sequence[FailingTask] = ()
    activities: Sequence[FailingActivity] = ()
    failed: Sequence[FailedWorkflow] = ()


@dataclass(frozen=True, slots=True)
class TemporalLook:
    """One look at Temporal. ``fault``: why it did not answer, and then nothing else is known; empty: it answered."""

    fault: str = ""
    queue_count: int = 0
    unserved: Sequence[str] = ()  # task queues from which no worker takes work
    tasks: Sequence[FailingTask] = ()  # the first of task_count
    task_count: int = 0
    failed: Sequence[FailedWorkflow] = ()  # the first of failed_count
    failed_count: int = 0
    gone_version: str = ""  # the version of the workers that is current, if it has no worker and others have
    waiting_versions: Sequence[str] = ()  # these others

    @property
    def is_unserved(self) -> bool:
        """No worker takes any work."""
        return bool(self.unserved) and len(self.unserved) == self.queue_count
