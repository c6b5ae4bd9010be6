"""Stalls of updates: the progress deadline, and the cause.

Each instance that is done restarts the deadline. A paused update, and one that has nothing in flight and waits for a
pulse, has no deadline. A stall only informs: the update continues until its limits end it or roll it back.
"""

from __future__ import annotations

from dataclasses import replace

from peloton.lifecycle.reason_text import format_count
from peloton.model.pod import HealthState, PodEvent, PodRecord, PodState
from peloton.model.status_text import status_text
from peloton.model.times import NS_PER_S
from peloton.model.update import ROLLING, UpdateRecord
from peloton.model.update_text import update_wait_text

PROGRESS_DEADLINE_S = 600
"""Default progress deadline in seconds, the same as for Deployments of Kubernetes."""
CAUSE_MAX = 1_000
"""Maximum characters of a cause."""
_RUNS = frozenset({PodState.RUNNING, PodState.SUCCEEDED})
_STARTING = frozenset({PodState.LAUNCHED, PodState.STARTING})


def deadline_s(update: UpdateRecord) -> int:
    return update.spec.progress_deadline_s or PROGRESS_DEADLINE_S


def evaluate_progress(before: UpdateRecord, after: UpdateRecord, now_ns: int) -> UpdateRecord:
    """Return the update ``after`` a step with the time of its last progress, and of its stall if it has stalled."""
    if not _has_deadline(after):
        return without_stall(after)
    if not before.progressed_ns or len(after.done) > len(before.done):
        return replace(without_stall(after), progressed_ns=now_ns)
    is_late = now_ns - before.progressed_ns >= deadline_s(after) * NS_PER_S
    return replace(after, stalled_ns=before.stalled_ns or (now_ns if is_late else 0))


def _has_deadline(update: UpdateRecord) -> bool:
    return update.state in ROLLING and bool(update.current or not update.awaits_pulse)


def without_stall(update: UpdateRecord) -> UpdateRecord:
    return replace(update, progressed_ns=0, stalled_ns=0, stall_cause="")


def stalls_in_s(update: UpdateRecord, now_ns: int) -> float:
    """Return the seconds until the update stalls, at least one; 0 for one without a deadline or already stalled."""
    if not update.progressed_ns or update.stalled_ns or not update.is_active:
        return 0.0
    return max(deadline_s(update) - (now_ns - update.progressed_ns) / NS_PER_S, 1.0)


def cause_text(update: UpdateRecord, worst: PodRecord | None, last: PodEvent | None) -> str:
    """Describe why the update makes no progress: ``worst`` is the instance in flight with the most failures, ``last``
    its last failure with the end of its stderr."""
    if worst is None:
        wait = update_wait_text(update)
        return f"waits for {wait}"[:CAUSE_MAX] if wait else ""
    name, where = f"instance {worst.instance_id}", f" on {worst.host}" if worst.host else ""
    words = ", ".join(filter(None, (worst.reason, worst.message)))
    if last is not None:
        on = f" on {last.host}" if last.host else ""
        text = f"{name} fails again and again, last{on}: {status_text(last.message, last.reason)}"
    elif worst.state in _STARTING:
        text = f"{name}{where} has not started: {words}"
    elif worst.state in _RUNS:
        verb = "fails" if worst.health is HealthState.UNHEALTHY else "has not passed"
        text = f"{name}{where} runs and {verb} its health check"
    else:
        text = f"{name} is {worst.state.public}: {words}"
    return text[:CAUSE_MAX]


def stall_text(update: UpdateRecord) -> str:
    """Describe a stalled update in one sentence; empty for others."""
    if not update.stalled_ns or not update.is_active:
        return ""
    cause = f": {update.stall_cause}" if update.stall_cause else ""
    return f"no instance has become done for {format_count(deadline_s(update), 'second')} or more{cause}"


def describe_failed_runs(update: UpdateRecord) -> str:
    return f"{format_count(update.failed_run_count, 'run')} failed" if update.failed_run_count else ""
