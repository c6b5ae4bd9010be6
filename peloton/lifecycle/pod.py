"""What a host's report does to a pod: a new record, nothing, or an orphan to kill.

``LEGAL`` is the whole of which reported state may follow which stored one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from peloton.lifecycle.endings import RULES, sent_away
from peloton.lifecycle.goal import goal_after_eviction
from peloton.model.job import JobType
from peloton.model.pod import (
    ENDING_GOALS,
    ON_HOST,
    TERMINAL,
    Cause,
    HealthState,
    PodRecord,
    PodState,
    PodStatus,
    Termination,
    TerminationReason,
)

HEALTH_CHECK_REASON = "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED"
INVALID_TASK_REASON = "REASON_TASK_INVALID"
DUPLICATE_ID_MESSAGE = "Task has duplicate ID"

_NS = 1_000_000_000
_EXIT_STATUS = re.compile(r"Command exited with status (\d+)")
_SIGNAL_MARK = " terminated with signal "
_UINT32_MAX = 2**32 - 1

_ENDED = frozenset({PodState.SUCCEEDED, PodState.FAILED, PodState.LOST, PodState.KILLED})

LEGAL: dict[PodState, frozenset[PodState]] = {
    PodState.LAUNCHED: frozenset({PodState.STARTING, PodState.RUNNING}) | _ENDED,
    PodState.STARTING: frozenset({PodState.RUNNING}) | _ENDED,
    PodState.RUNNING: _ENDED,
    PodState.PREEMPTING: frozenset({PodState.RUNNING}) | _ENDED,
    PodState.KILLING: _ENDED,
}
"""Stored state -> reported states that change it. A state that is not a key has no host."""

assert frozenset(LEGAL) == ON_HOST


@dataclass(frozen=True, slots=True)
class Applied:
    """The report takes effect: ``pod`` is the next revision.

    ``launch_lost``: the run ended before anything of it started.
    """

    pod: PodRecord
    ended: bool = False
    launch_lost: bool = False


@dataclass(frozen=True, slots=True)
class Ignored:
    """A duplicate, a late report, or one that came out of order."""

    why: str


@dataclass(frozen=True, slots=True)
class Orphan:
    """Something runs that nobody wants: it must be killed on its host."""

    why: str


Outcome = Applied | Ignored | Orphan


def apply_status(
    pod: PodRecord | None, status: PodStatus, job_type: JobType, cluster: str = "", kill_on_preempt: bool = False
) -> Outcome:
    """The outcome of one report of a cluster for the stored ``pod`` (None when there is no such instance)."""
    stranger = _stranger(pod, status, cluster)
    if stranger is not None:
        return stranger
    assert pod is not None
    if pod.state in TERMINAL:
        return Ignored(f"run ended as {pod.state}")
    if status.state is PodState.FAILED and _is_duplicate_id(status):
        return Ignored("a second launch of the same run was refused")
    if status.state is pod.state:
        return _same_state(pod, status)
    if status.state not in LEGAL[pod.state]:
        return Ignored(f"{pod.state} does not become {status.state}")
    if status.state in TERMINAL:
        is_last = kill_on_preempt and is_eviction(status) and not _wants_newer(pod) and pod.goal not in ENDING_GOALS
        return _ended(replace(pod, goal=goal_after_eviction(job_type)) if is_last else pod, status, job_type)
    return Applied(_alive(pod, status))


def _stranger(pod: PodRecord | None, status: PodStatus, cluster: str) -> Outcome | None:
    """A report of a run that is not the instance's current one, of one that was never launched, or of one that another
    cluster runs."""
    if pod is None:
        why = "unknown pod"
    elif status.pod_id != pod.pod_id:
        why = f"run {status.pod_id.run_id} is not the current run {pod.run_id}"
    elif pod.state not in ON_HOST and pod.state not in TERMINAL:
        why = f"run {pod.run_id} is {pod.state}: it was not launched"
    elif pod.state in TERMINAL and status.state not in TERMINAL:
        why = f"run {pod.run_id} has ended as {pod.state}"
    elif cluster and pod.cluster and cluster != pod.cluster:
        why = f"run {pod.run_id} is in cluster {pod.cluster}, not in {cluster}"
    else:
        return None
    return Ignored(why) if status.state in TERMINAL else Orphan(why)


def _is_duplicate_id(status: PodStatus) -> bool:
    return status.reason == INVALID_TASK_REASON and DUPLICATE_ID_MESSAGE in status.message


def _same_state(pod: PodRecord, status: PodStatus) -> Outcome:
    """Only news about health is news."""
    health = reported_health(pod, status)
    if pod.state is not PodState.RUNNING or status.reason != HEALTH_CHECK_REASON or health is pod.health:
        return Ignored(f"already {pod.state}")
    return Applied(
        replace(
            pod,
            health=health,
            message=status.message,
            reason=status.reason,
            updated_ns=status.time_ns,
            revision=pod.revision + 1,
        )
    )


def reported_health(pod: PodRecord, status: PodStatus) -> HealthState:
    """The pod's health after a report that says it is alive."""
    if status.reason != HEALTH_CHECK_REASON or status.healthy is None:
        return pod.health
    return HealthState.HEALTHY if status.healthy else HealthState.UNHEALTHY


def _alive(pod: PodRecord, status: PodStatus) -> PodRecord:
    health = reported_health(pod, status)
    first_running = status.state is PodState.RUNNING and pod.started_ns == 0
    return replace(
        pod,
        state=status.state,
        host=pod.host or status.host,
        desired_host="" if first_running else pod.desired_host,
        agent_id=pod.agent_id or status.agent_id,
        message=status.message,
        reason=status.reason if health is not pod.health else "",
        health=health,
        started_ns=status.time_ns if first_running else pod.started_ns,
        completed_ns=0,
        updated_ns=status.time_ns,
        revision=pod.revision + 1,
    )


def _ended(pod: PodRecord, status: PodStatus, job_type: JobType) -> Applied:
    state, message, reason = _ending(pod, status)
    termination = pod.termination or _sent_away_as(status)
    if state is PodState.FAILED:
        termination = parse_termination(status.message)
    # Its host is not to be trusted with it again, or takes none any more.
    leaves_host = state in (PodState.FAILED, PodState.LOST) or sent_away(status.cause)
    used_s = (status.time_ns - pod.started_ns) / _NS if pod.started_ns else 0.0
    ended = replace(
        pod,
        state=state,
        message=message,
        reason=reason,
        health=HealthState.INVALID,
        failure_count=pod.failure_count + counts_as_failure(pod, state, status.cause),
        completed_ns=status.time_ns,
        updated_ns=status.time_ns,
        revision=pod.revision + 1,
        run_seconds=pod.run_seconds + (max(used_s, 0.0) if job_type is JobType.BATCH else 0.0),
        termination=termination,
        desired_host="" if leaves_host else pod.desired_host,
    )
    return Applied(ended, ended=True, launch_lost=state is PodState.LOST and pod.state is PodState.LAUNCHED)


def _ending(pod: PodRecord, status: PodStatus) -> tuple[PodState, str, str]:
    """State, message and reason that a terminal report leaves behind."""
    match status.state:
        case PodState.LOST if pod.goal in ENDING_GOALS:
            return PodState.KILLED, f"Stopped task LOST event: {status.message}", ""
        case PodState.LOST:
            return PodState.LOST, f"Task LOST: {status.message}", status.reason
        case PodState.FAILED:
            return PodState.FAILED, status.message, status.reason
        case state if pod.termination:
            # Of a run that we asked to end, the reason why we asked says more than the host does.
            return state, status.message, pod.reason
        case PodState.KILLED if sent_away(status.cause):
            return PodState.KILLED, f"Sent away, as {status.cause}: {status.message}", status.reason
        case state:
            return state, status.message, ""


def is_eviction(status: PodStatus) -> bool:
    """The run has ended because others wanted its host, or what it had there."""
    return _sent_away_as(status) is not None


def _sent_away_as(status: PodStatus) -> Termination | None:
    why = None if status.state is PodState.SUCCEEDED else RULES[status.cause].termination
    return Termination(why) if why else None


def parse_termination(message: str) -> Termination:
    """Exit code and signal from a failed command's message."""
    exit_status = _EXIT_STATUS.match(message)
    exit_code = min(int(exit_status.group(1)), _UINT32_MAX) if exit_status else 0
    _, _, signal = message.partition(_SIGNAL_MARK)
    return Termination(TerminationReason.FAILED, exit_code, signal)


def _wants_newer(pod: PodRecord) -> bool:
    return pod.desired_config_version != pod.config_version or pod.desired_run_id > pod.run_id


def counts_as_failure(pod: PodRecord, state: PodState, cause: Cause = Cause.PROGRAM) -> bool:
    """Whether this ending uses up one of the instance's attempts.

    A run that ends because a newer one is wanted does not: it was asked to end. Nor does one that others ended.
    """
    if _wants_newer(pod):
        return False
    if state is not PodState.SUCCEEDED and not RULES[cause].counts:
        return False
    match state:
        case PodState.FAILED:
            return True
        case PodState.SUCCEEDED:
            return pod.goal is PodState.RUNNING
        case PodState.KILLED:
            return pod.goal not in ENDING_GOALS
        case _:
            return False
