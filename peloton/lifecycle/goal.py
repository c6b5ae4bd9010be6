"""Where jobs and pods of a type steer."""

from __future__ import annotations

from peloton.model.job import JobState, JobType
from peloton.model.pod import PodState


def default_goal(job_type: JobType) -> JobState:
    """Where a job of this type steers when nobody says otherwise."""
    return JobState.SUCCEEDED if job_type is JobType.BATCH else JobState.RUNNING


def goal_after_eviction(job_type: JobType) -> PodState:
    """Of a pod with killOnPreempt, whoever sent it away: it is not to run again."""
    return PodState.PREEMPTING if job_type is JobType.BATCH else PodState.KILLED


def default_pod_goal(job_type: JobType) -> PodState:
    return PodState.SUCCEEDED if job_type is JobType.BATCH else PodState.RUNNING
