"""A job's state from the states of its pods, and how many of them may go on."""

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
    """The job's state.

    ``counts`` holds ended pods in their terminal state only when they rest; those that will run again belong to
    INITIALIZED, so that a job never ends before its last retry. ``controller`` is the state of instance 0, looked
    at only in a controller job.
    """
    state = _from_counts(job, counts)
    if job.has_controller and state in JOB_TERMINAL and controller is not None:
        state = _by_controller(controller)
    if state in JOB_TERMINAL and job.type is not JobType.BATCH and job.goal not in JOB_TERMINAL:
        return JobState.PENDING  # a service ends only when its goal says so
    return state


def _from_counts(job: JobRecord, counts: Mapping[PodState, int]) -> JobState:
    """Evaluated top-down; the first rule that holds decides."""
    total = sum(counts.values())
    if total < job.instance_count:
        return _partially_created(job, counts, total)
    if not total and is_ending(job):
        return JobState.KILLED  # a daemon that no host matched
    succeeded, failed, lost, killed = (
        counts.get(s, 0) for s in (PodState.SUCCEEDED, PodState.FAILED, PodState.LOST, PodState.KILLED)
    )
    if total > job.instance_count and (job.type is JobType.BATCH or job.goal not in JOB_TERMINAL):
        return JobState.PENDING
    if total > job.instance_count and succeeded + failed + lost + killed < total:
        return JobState.KILLING  # of a service that shrinks and stops at once, all are waited for
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


def _partially_created(job: JobRecord, counts: Mapping[PodState, int], total: int) -> JobState:
    if job.type is JobType.BATCH:
        return JobState.KILLING if is_ending(job) else JobState.INITIALIZED
    if job.goal not in JOB_TERMINAL:
        return JobState.PENDING
    ended = sum(n for s, n in counts.items() if s in TERMINAL)
    if total == 0 or (ended == total and counts.get(PodState.KILLED, 0) > 0):
        return JobState.KILLED
    return JobState.FAILED if ended == total else JobState.KILLING


def _by_controller(state: PodState) -> JobState:
    match state:
        case PodState.SUCCEEDED:
            return JobState.SUCCEEDED
        case PodState.FAILED | PodState.LOST:
            return JobState.FAILED
        case _:
            return JobState.KILLED


def is_ending(job: JobRecord) -> bool:
    """All its pods are to end, and to stay so."""
    return job.goal in (JobState.KILLED, JobState.DELETED)


def has_started(counts: Mapping[PodState, int]) -> bool:
    """Some pod got as far as a host: the job's start time is set, once."""
    return any(counts.get(s, 0) > 0 for s in _STARTED)


def scheduled_count(counts: Mapping[PodState, int]) -> int:
    """Pods that count against the maximum of running instances."""
    return sum(counts.get(s, 0) for s in _SCHEDULED)


def admit_count(job: JobRecord, counts: Mapping[PodState, int], waiting: int, gang_waiting: int) -> int:
    """How many of the ``waiting`` INITIALIZED pods may be queued now.

    ``gang_waiting`` of them are members of the gang, which wait for each other. A gang that waits whole and does not
    fit under the maximum of running instances holds the others back: else they would starve it. Daemons have no queue.
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
    room = max(maximum - scheduled_count(counts), 0)
    if job.gang_size > 1 and gang_waiting == job.gang_size and room < job.gang_size:
        return 0
    return min(waiting, room)
