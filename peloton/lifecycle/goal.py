"""Where jobs and pods of a type steer."""

from __future__ import annotations

from peloton.model.job import JobState, JobType
from peloton.model.pod import PodState


def default_goal(job_type: JobType) -> JobState:
    """The goal that a job of this type is created with."""
    return JobState.SUCCEEDED if job_type is JobType.BATCH else JobState.RUNNING


def goal_after_eviction(job_type: JobType) -> PodState:
    """Of a pod with killOnPreempt that was evicted: it is not to run again."""
    return PodState.PREEMPTING if job_type.runs_to_end else PodState.KILLED


def default_pod_goal(job_type: JobType) -> PodState:
    return PodState.SUCCEEDED if job_type.runs_to_end else PodState.RUNNING
