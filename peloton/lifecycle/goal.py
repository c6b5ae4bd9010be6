"""Default goals (desired states) of jobs and pods, by job type."""

from __future__ import annotations

from peloton.model.job import JobState, JobType
from peloton.model.pod import PodState


def default_goal(job_type: JobType) -> JobState:
    """Return the goal with which a job of this type is created."""
    return JobState.SUCCEEDED if job_type is JobType.BATCH else JobState.RUNNING


def goal_after_eviction(job_type: JobType) -> PodState:
    """Return the goal of an evicted pod that has killOnPreempt and therefore does not run again."""
    return PodState.PREEMPTING if job_type.runs_to_end else PodState.KILLED


def default_pod_goal(job_type: JobType) -> PodState:
    return PodState.SUCCEEDED if job_type.runs_to_end else PodState.RUNNING
