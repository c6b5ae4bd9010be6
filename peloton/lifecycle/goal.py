"""The goal-state tables: what to do next for a state and a goal. Total: every pair has an answer."""

from __future__ import annotations

from enum import StrEnum

from peloton.model.job import JOB_TERMINAL, JobState, JobType
from peloton.model.pod import ENDING_GOALS, ON_HOST, TERMINAL, PodState


class PodAction(StrEnum):
    NONE = "none"  # it is where it should be, or on its way
    ENQUEUE = "enqueue"  # ask for admission
    KILL_UNLAUNCHED = "kill_unlaunched"  # no host knows it: take it out of the queue
    KILL_ON_HOST = "kill_on_host"
    AWAIT_LAUNCH = "await_launch"  # a host was told; launch reconciliation watches over it
    RETRY = "retry"  # ended: the retry rule decides
    RETRY_FOREVER = "retry_forever"  # ended, and a service: again after its backoff
    DELETE = "delete"
    INVALID = "invalid"


class JobAction(StrEnum):
    NONE = "none"
    CREATE_PODS = "create_pods"
    KILL = "kill"
    REST = "rest"  # ended: its workflow may end
    DELETE = "delete"
    INVALID = "invalid"


_GOALS = ENDING_GOALS | {PodState.RUNNING, PodState.SUCCEEDED}
_ALLOCATED_UNLAUNCHED = frozenset(
    {PodState.READY, PodState.PLACING, PodState.PLACED, PodState.LAUNCHING, PodState.RESERVED}
)


def next_pod_action(state: PodState, goal: PodState) -> PodAction:
    """The step that takes a pod from ``state`` towards ``goal``."""
    if goal not in _GOALS or state is PodState.UNKNOWN:
        return PodAction.INVALID
    if state in TERMINAL:
        return _pod_at_end(state, goal)
    if goal in ENDING_GOALS:
        return _end_pod(state)
    match state:
        case PodState.INITIALIZED:
            return PodAction.ENQUEUE
        case PodState.LAUNCHED | PodState.STARTING:
            return PodAction.AWAIT_LAUNCH
        case _:
            return PodAction.NONE


def _pod_at_end(state: PodState, goal: PodState) -> PodAction:
    match goal:
        case PodState.DELETED:
            return PodAction.NONE if state is PodState.DELETED else PodAction.DELETE
        case PodState.RUNNING if state is not PodState.DELETED:
            return PodAction.RETRY_FOREVER
        case PodState.SUCCEEDED if state in (PodState.FAILED, PodState.LOST, PodState.KILLED):
            return PodAction.RETRY
        case _:
            return PodAction.NONE


def _end_pod(state: PodState) -> PodAction:
    if state is PodState.KILLING:
        return PodAction.NONE
    if state in ON_HOST:
        return PodAction.KILL_ON_HOST
    assert state in _ALLOCATED_UNLAUNCHED | {PodState.INITIALIZED, PodState.PENDING}
    return PodAction.KILL_UNLAUNCHED


def next_job_action(state: JobState, goal: JobState) -> JobAction:
    """The step that takes a job from ``state`` towards ``goal``, beside admitting and retrying its pods."""
    if goal not in (JobState.RUNNING, JobState.SUCCEEDED, JobState.KILLED, JobState.DELETED):
        return JobAction.INVALID
    if state is JobState.UNKNOWN:
        return JobAction.INVALID
    if state is JobState.DELETED:
        return JobAction.REST
    if state in JOB_TERMINAL:
        if goal is JobState.DELETED:
            return JobAction.DELETE
        return JobAction.NONE if goal is JobState.RUNNING else JobAction.REST
    if goal in (JobState.KILLED, JobState.DELETED):
        return JobAction.NONE if state is JobState.KILLING else JobAction.KILL
    if state in (JobState.UNINITIALIZED, JobState.INITIALIZED):
        return JobAction.CREATE_PODS
    return JobAction.INVALID if state is JobState.KILLING else JobAction.NONE


def default_goal(job_type: JobType) -> JobState:
    """Where a job of this type steers when nobody says otherwise."""
    return JobState.SUCCEEDED if job_type is JobType.BATCH else JobState.RUNNING


def goal_after_eviction(job_type: JobType) -> PodState:
    """Of a pod with killOnPreempt, whoever sent it away: it is not to run again."""
    return PodState.PREEMPTING if job_type is JobType.BATCH else PodState.KILLED


def default_pod_goal(job_type: JobType) -> PodState:
    return PodState.SUCCEEDED if job_type is JobType.BATCH else PodState.RUNNING
