"""What a host's report does to a pod: a new record, nothing, or an orphan to kill. Which reported state may follow
which stored one is in the pod machine's table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from peloton.lifecycle.endings import RULES, sent_away
from peloton.lifecycle.goal import goal_after_eviction
from peloton.lifecycle.pod_machine import Event, next_pod
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
from peloton.model.times import NS_PER_S

HEALTH_CHECK_REASON = "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED"
INVALID_TASK_REASON = "REASON_TASK_INVALID"
DUPLICATE_ID_MESSAGE = "Task has duplicate ID"

_EXIT_STATUS = re.compile(r"Command exited with status (\d+)")
_SIGNAL_MARK = " terminated with signal "
_UINT32_MAX = 2**32 - 1

_EVENTS = {
    PodState.LAUNCHED: Event.REPORT_LAUNCHED,
    PodState.STARTING: Event.REPORT_STARTING,
    PodState.RUNNING: Event.REPORT_RUNNING,
    PodState.SUCCEEDED: Event.REPORT_SUCCEEDED,
    PodState.FAILED: Event.REPORT_FAILED,
    PodState.LOST: Event.REPORT_LOST,
    PodState.KILLED: Event.REPORT_KILLED,
}


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
    """A run without a record that wants it: it must be killed on its host."""

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
    event = _EVENTS.get(status.state)
    given = _reported(pod, status, job_type, kill_on_preempt)
    after = next_pod(pod, event, status.time_ns, **given) if event else None
    if after is None:
        is_repeated = status.state is pod.state
        return Ignored(f"already {pod.state}" if is_repeated else f"{pod.state} does not become {status.state}")
    is_lost = after.state is PodState.LOST and pod.state is PodState.LAUNCHED
    return Applied(after, ended=after.state in TERMINAL, launch_lost=is_lost)


def _reported(pod: PodRecord, status: PodStatus, job_type: JobType, kill_on_preempt: bool) -> dict[str, Any]:
    """The parameters of the events that are reports."""
    words: dict[str, Any] = {"message": status.message, "reason": status.reason}
    if status.state not in TERMINAL:
        health = reported_health(pod, status)
        is_news = health is not pod.health
        # Of a run that goes on only news about its health has a reason.
        return words | {
            "reason": status.reason if is_news or status.waits else "",
            "host": status.host,
            "agent_id": status.agent_id,
            "health": health,
            "is_health_news": is_news,
            "is_waiting": status.waits,
        }
    used_s = (status.time_ns - pod.started_ns) / NS_PER_S if pod.started_ns and job_type.runs_to_end else 0.0
    return words | {
        "is_last": kill_on_preempt and is_eviction(status),
        "last_goal": goal_after_eviction(job_type),
        "sent_away": sent_away(status.cause),
        "sent_away_as": _sent_away_as(status),
        "cause": str(status.cause),
        "failed_as": parse_termination(status.message) if status.state is PodState.FAILED else None,
        "failures": int(counts_as_failure(pod, status.state, status.cause)),
        "used_s": max(used_s, 0.0),
    }


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


def reported_health(pod: PodRecord, status: PodStatus) -> HealthState:
    """The pod's health after a report that says it is alive."""
    if status.reason != HEALTH_CHECK_REASON or status.healthy is None:
        return pod.health
    return HealthState.HEALTHY if status.healthy else HealthState.UNHEALTHY


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
