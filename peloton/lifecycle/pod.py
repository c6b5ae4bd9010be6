"""Effect of a host's report on a pod: a new record, none, or an orphan to kill. The table of the pod machine says which
reported state may follow a stored one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from peloton.lifecycle.endings import RULES, is_cluster_eviction
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
    """A report that takes effect: ``pod`` is the next revision.

    ``launch_lost``: the run ended before anything of it started.
    """

    pod: PodRecord
    ended: bool = False
    launch_lost: bool = False


@dataclass(frozen=True, slots=True)
class Ignored:
    """A report without effect: a duplicate, a late one, or one out of order."""

    why: str


@dataclass(frozen=True, slots=True)
class Orphan:
    """A run that is no current run of an instance, and must be killed on its host."""

    why: str


Outcome = Applied | Ignored | Orphan


def apply_status(
    pod: PodRecord | None, status: PodStatus, job_type: JobType, cluster: str = "", kill_on_preempt: bool = False
) -> Outcome:
    """Return the outcome of one report of a cluster for the stored ``pod`` (None if there is no such instance)."""
    stranger = _classify_stranger(pod, status, cluster)
    if stranger is not None:
        return stranger
    assert pod is not None
    if pod.state in TERMINAL:
        return Ignored(f"run ended as {pod.state}")
    if status.state is PodState.FAILED and _is_duplicate_id(status):
        return Ignored("a second launch of the same run was refused")
    event = _EVENTS.get(status.state)
    given = _report_parameters(pod, status, job_type, kill_on_preempt)
    after = next_pod(pod, event, status.time_ns, **given) if event else None
    if after is None:
        is_repeated = status.state is pod.state
        return Ignored(f"already {pod.state}" if is_repeated else f"{pod.state} does not become {status.state}")
    is_lost = after.state is PodState.LOST and pod.state is PodState.LAUNCHED
    return Applied(after, ended=after.state in TERMINAL, launch_lost=is_lost)


def _report_parameters(pod: PodRecord, status: PodStatus, job_type: JobType, kill_on_preempt: bool) -> dict[str, Any]:
    """Return the parameters of events that are reports."""
    words: dict[str, Any] = {"message": status.message, "reason": status.reason}
    if status.state not in TERMINAL:
        health = update_health(pod, status)
        is_news = health is not pod.health
        # The report of a live run has a reason only if its health changes.
        return words | {
            "reason": status.reason if is_news or status.waits else "",
            "host": status.host,
            "agent_id": status.agent_id,
            "health": health,
            "is_health_news": is_news,
            "is_waiting": status.waits,
            "is_bound_elsewhere": job_type is JobType.EXTERNAL and bool(status.host) and status.host != pod.host,
        }
    used_s = (status.time_ns - pod.started_ns) / NS_PER_S if pod.started_ns and job_type.runs_to_end else 0.0
    return words | {
        "is_last": kill_on_preempt and is_eviction(status),
        "last_goal": goal_after_eviction(job_type),
        "is_cluster_eviction": is_cluster_eviction(status.cause),
        "evicted_as": _eviction_termination(status),
        "cause": str(status.cause),
        "failed_as": parse_termination(status.message) if status.state is PodState.FAILED else None,
        "failures": int(counts_as_failure(pod, status.state, status.cause)),
        "used_s": max(used_s, 0.0),
    }


def _classify_stranger(pod: PodRecord | None, status: PodStatus, cluster: str) -> Outcome | None:
    """Return the outcome of a report on a run that is not the current one, was never launched, or is in another
    cluster; None for other reports."""
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


def update_health(pod: PodRecord, status: PodStatus) -> HealthState:
    """Return the pod's health after a report that it is alive."""
    if status.reason != HEALTH_CHECK_REASON or status.healthy is None:
        return pod.health
    return HealthState.HEALTHY if status.healthy else HealthState.UNHEALTHY


def is_eviction(status: PodStatus) -> bool:
    """Return whether the run ended because its host, or its resources there, were needed for other purposes."""
    return _eviction_termination(status) is not None


def _eviction_termination(status: PodStatus) -> Termination | None:
    why = None if status.state is PodState.SUCCEEDED else RULES[status.cause].termination
    return Termination(why) if why else None


def parse_termination(message: str) -> Termination:
    """Parse exit code and signal from a failed command's message."""
    exit_status = _EXIT_STATUS.match(message)
    exit_code = min(int(exit_status.group(1)), _UINT32_MAX) if exit_status else 0
    _, _, signal = message.partition(_SIGNAL_MARK)
    return Termination(TerminationReason.FAILED, exit_code, signal)


def _has_newer_goal(pod: PodRecord) -> bool:
    return pod.desired_config_version != pod.config_version or pod.desired_run_id > pod.run_id


def counts_as_failure(pod: PodRecord, state: PodState, cause: Cause = Cause.PROGRAM) -> bool:
    """Return whether this ending uses up one of the instance's attempts.

    A run that ends because a newer one is wanted does not count, since it was asked to end. A run ended by the cluster
    does not count, either.
    """
    if _has_newer_goal(pod):
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
