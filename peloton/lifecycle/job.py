"""State of a job from the states of its pods, and the number of pods that may be queued."""

from __future__ import annotations

from collections.abc import Mapping

from peloton.model.job import JOB_TERMINAL, JobRecord, JobState, JobType
from peloton.model.pod import TERMINAL, PodState

_STARTED = frozenset(
    {
        PodState.STARTING,
        PodState.RUNNING,
        PodState.SUCCEEDED,
        PodState.FAILED,
        PodState.LOST,
        PodState.PREEMPTING,
        PodState.KILLING,
        PodState.KILLED,
    }
)
_SCHEDULED = frozenset(
    {
        PodState.PENDING,
        PodState.LAUNCHED,
        PodState.READY,
        PodState.STARTING,
        PodState.RUNNING,
        PodState.PREEMPTING,
        PodState.KILLING,
    }
)


def roll_up(job: JobRecord, counts: Mapping[PodState, int], controller: PodState | None = None) -> JobState:
    """Return the job's state.

    ``counts`` holds ended pods in their terminal state only when they have no next run; pods that will run again count
    as INITIALIZED, so that a job never ends before its last retry. ``controller`` is the state of instance 0, used for
    controller jobs only.
    """
    state = _roll_up_counts(job, counts)
    if job.has_controller and state in JOB_TERMINAL and controller is not None:
        state = _roll_up_controller(controller)
    if state in JOB_TERMINAL and job.type is not JobType.BATCH and job.goal not in JOB_TERMINAL:
        return JobState.PENDING  # a service ends only if its goal is terminal
    return state


def _roll_up_counts(job: JobRecord, counts: Mapping[PodState, int]) -> JobState:
    """Return the state of the first rule that applies, top-down."""
    total = sum(counts.values())
    if total < job.instance_count:
        return _roll_up_partial(job, counts, total)
    if not total and is_ending(job):
        return JobState.KILLED  # a daemon without matching hosts
    succeeded, failed, lost, killed = (
        counts.get(s, 0) for s in (PodState.SUCCEEDED, PodState.FAILED, PodState.LOST, PodState.KILLED)
    )
    if total > job.instance_count and (job.type is JobType.BATCH or job.goal not in JOB_TERMINAL):
        return JobState.PENDING
    if total > job.instance_count and succeeded + failed + lost + killed < total:
        return JobState.KILLING  # a service that shrinks and stops at once waits for all pods
    if succeeded >= job.instance_count:
        return JobState.SUCCEEDED
    if succeeded + failed + lost >= job.instance_count:
        return JobState.FAILED
    if killed > 0 and succeeded + failed + lost + killed >= job.instance_count:
        return JobState.KILLED
    if job.state is JobState.KILLING or is_ending(job):
        return JobState.KILLING
    if counts.get(PodState.RUNNING, 0) > 0:
        return JobState.RUNNING
    return JobState.PENDING


def _roll_up_partial(job: JobRecord, counts: Mapping[PodState, int], total: int) -> JobState:
    if job.type is JobType.BATCH:
        return JobState.KILLING if is_ending(job) else JobState.INITIALIZED
    if job.goal not in JOB_TERMINAL:
        return JobState.PENDING
    ended = sum(n for s, n in counts.items() if s in TERMINAL)
    if total == 0 or (ended == total and counts.get(PodState.KILLED, 0) > 0):
        return JobState.KILLED
    return JobState.FAILED if ended == total else JobState.KILLING


def _roll_up_controller(state: PodState) -> JobState:
    match state:
        case PodState.SUCCEEDED:
            return JobState.SUCCEEDED
        case PodState.FAILED | PodState.LOST:
            return JobState.FAILED
        case _:
            return JobState.KILLED


def is_ending(job: JobRecord) -> bool:
    """Return whether all pods of the job have to end without a next run."""
    return job.goal in (JobState.KILLED, JobState.DELETED)


def has_started(counts: Mapping[PodState, int]) -> bool:
    """Return whether any pod has reached a host; the job's start time is then set once."""
    return any(counts.get(s, 0) > 0 for s in _STARTED)


def count_scheduled(counts: Mapping[PodState, int]) -> int:
    """Return the number of pods that count against the maximum of running instances."""
    return sum(counts.get(s, 0) for s in _SCHEDULED)


def admit_count(job: JobRecord, counts: Mapping[PodState, int], waiting: int, gang_waiting: int) -> int:
    """Return how many of the ``waiting`` INITIALIZED pods may be queued now.

    ``gang_waiting`` of them are members of the gang, which wait for each other. If a complete gang does not fit under
    the maximum of running instances, no other pod is queued, to avoid starvation of the gang. Daemons have no queue.
    """
    if job.type is JobType.DAEMON:
        return 0
    if job.goal in JOB_TERMINAL and job.goal is not JobState.SUCCEEDED:
        return 0
    maximum = job.sla.maximum_running_instances
    if job.gang_size > 1 and gang_waiting < job.gang_size:
        waiting -= gang_waiting
    if maximum == 0:
        return waiting
    allowed = max(maximum - count_scheduled(counts), 0)
    if job.gang_size > 1 and gang_waiting == job.gang_size and allowed < job.gang_size:
        return 0
    return min(waiting, allowed)
