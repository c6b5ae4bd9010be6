"""Decision on an instance whose run has ended: whether and when it runs again.

The decision is made once, when the run ends, and stored with the pod, so that a job of 100,000 ended pods costs nothing
afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

from peloton.lifecycle.avoidance import QUICK_S
from peloton.lifecycle.backoff import DEFAULT_BACKOFF, NO_BACKOFF, Backoff, batch_due_ns
from peloton.lifecycle.endings import RULES, RetryRule, is_cluster_eviction
from peloton.model.job import JobType
from peloton.model.pod import ENDING_GOALS, TERMINAL, Cause, NextRun, PodRecord, PodState, TerminationReason
from peloton.model.times import NS_PER_S

SYSTEM_FAILURE_ATTEMPTS = 4
"""Minimum attempts of a run that the platform broke, regardless of the job's setting."""

QUICK_FAILURES = 3
"""Failures after which a batch pod waits for its next run, if the last one came within ``QUICK_S`` of its start."""

REASON_LAUNCH_REFUSED = "REASON_HOST_REJECT_OFFER"
"""Reason that the host manager sets on a launch that its cluster did not accept."""

THROTTLED_MESSAGE = "Task throttled due to failure"

_EVICTED = frozenset({TerminationReason.PREEMPTED_RESOURCES, TerminationReason.KILLED_HOST_MAINTENANCE})


@dataclass(frozen=True, slots=True)
class Ending:
    """Next run of an ended instance. ``due_ns``: earliest start; 0 is at once."""

    next_run: NextRun
    due_ns: int = 0

    @property
    def is_rest(self) -> bool:
        return self.next_run is NextRun.NONE


REST = Ending(NextRun.NONE)


def after_end(
    pod: PodRecord,
    job_type: JobType,
    *,
    cause: Cause = Cause.PROGRAM,
    launch_lost: bool = False,
    batch_backoff: Backoff = NO_BACKOFF,
    has_other_host: bool = True,
) -> Ending:
    """Decide for a pod in a terminal state, whose ``failure_count`` includes this run.

    ``launch_lost``: the run is LOST and was never STARTING or RUNNING. The delay of a service counts from the pod's
    last update, that of a batch pod (``batch_backoff``) from the start of its run. ``has_other_host``: a host other
    than that of the run could take the pod.
    """
    assert pod.state in TERMINAL, f"{pod.pod_id} has not ended: {pod.state}"
    if pod.state is PodState.DELETED or pod.goal in ENDING_GOALS:
        return REST
    if _has_succeeded_before_eviction(pod, job_type):
        return REST
    never_bound = pod.state is PodState.LOST and (launch_lost or pod.reason == REASON_LAUNCH_REFUSED)
    if job_type is JobType.EXTERNAL:  # its controller replaces an external pod that has run
        return Ending(NextRun.RELAUNCH) if never_bound else REST
    if pod.desired_run_id > pod.run_id or pod.desired_config_version != pod.config_version:
        return Ending(NextRun.REPLACE)
    if never_bound:
        return Ending(NextRun.RELAUNCH)
    if is_cluster_eviction(cause) and pod.state is not PodState.SUCCEEDED:
        return Ending(NextRun.REPLACE)
    if job_type is JobType.BATCH:
        return _decide_batch(pod, cause, batch_backoff, has_other_host)
    delay_ns = DEFAULT_BACKOFF.delay_ns(pod.failure_count)
    return Ending(NextRun.RETRY, pod.updated_ns + delay_ns if delay_ns else 0)


def _has_succeeded_before_eviction(pod: PodRecord, job_type: JobType) -> bool:
    """Return whether the run of a batch pod succeeded during its eviction, so that no run has to follow."""
    is_done = pod.state is PodState.SUCCEEDED and job_type is JobType.BATCH
    why = pod.termination.reason if pod.termination else None
    return is_done and why in _EVICTED


def _decide_batch(pod: PodRecord, cause: Cause, backoff: Backoff, has_other_host: bool) -> Ending:
    if pod.state is PodState.SUCCEEDED or pod.failure_count >= attempts_max(pod, cause):
        return REST
    if pod.state is PodState.LOST:
        return Ending(NextRun.RETRY)  # a lost run may not have failed
    waits = batch_wait_count(pod, has_other_host)
    return Ending(NextRun.RETRY, batch_due_ns(backoff, waits, pod.started_ns, pod.updated_ns))


def batch_wait_count(pod: PodRecord, has_other_host: bool) -> int:
    """Return the number of delays of a failed batch pod including the next one, which doubles with each; 0: no delay.
    The pod waits if it would return to the host on which it just failed, or if it fails quickly for the third time."""
    if not has_other_host:
        return pod.failure_count
    return pod.failure_count - QUICK_FAILURES + 1 if fails_quickly(pod) else 0


def fails_quickly(pod: PodRecord) -> bool:
    ran_ns = pod.updated_ns - pod.started_ns if pod.started_ns else 0
    return pod.failure_count >= QUICK_FAILURES and ran_ns <= QUICK_S * NS_PER_S


def may_retry(pod: PodRecord, cause: Cause) -> bool:
    """Return whether a batch pod that fails now for this cause has attempts left."""
    return pod.goal not in ENDING_GOALS and pod.failure_count + 1 < attempts_max(pod, cause)


def attempts_max(pod: PodRecord, cause: Cause) -> int:
    """Return the failures after which a batch pod has no next run."""
    if RULES[cause].retry is RetryRule.BY_PLATFORM:
        return max(pod.max_failures, SYSTEM_FAILURE_ATTEMPTS)
    return pod.max_failures
