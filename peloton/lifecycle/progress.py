"""Progress of a job, an update and a launch as Markdown sentences for the Temporal Web UI."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from peloton.lifecycle.gang import Stage, Step, Verdict
from peloton.lifecycle.reason_text import requeue_text
from peloton.model.job import GangProgress, JobProgress
from peloton.model.pod import PodState
from peloton.model.update import UpdateProgress

STATES_MAX = 20
"""Maximum lines of a life that are kept, the newest."""

_STATE_WORDS = {
    PodState.INITIALIZED: "not queued yet",
    PodState.PENDING: "waiting in the queue of the pool",
    PodState.READY: "admitted and waiting for a host",
    PodState.LAUNCHED: "launched",
    PodState.STARTING: "starting",
    PodState.RUNNING: "running",
    PodState.SUCCEEDED: "succeeded",
    PodState.FAILED: "failed",
    PodState.LOST: "lost with their hosts",
    PodState.PREEMPTING: "leaving for others",
    PodState.KILLING: "being stopped",
    PodState.KILLED: "stopped",
}


def details(progress: JobProgress, waiting_for: str = "", states: Sequence[str] = ()) -> str:
    """Describe the job's state, its pods in the order of a pod's life, the condition it waits for, and past states."""
    total = sum(progress.counts.values())
    lines = [f"The job is **{progress.state}** with {_count(total, 'pod')}{':' if total else '.'}"]
    lines += _list(
        f"{progress.counts[state]} {_describe_state(state)}" for state in PodState if progress.counts.get(state)
    )
    update_id = progress.update_id or progress.creation_id
    if update_id and not progress.is_finished:
        lines += ["", f"Update `{update_id}` is being rolled out."]
    if waiting_for:
        lines += ["", f"It waits for {waiting_for}."]
    return "\n".join([*lines, *_story(states)])


def update_details(update: UpdateProgress, states: Sequence[str] = ()) -> str:
    """Describe the progress of a rollout, and the condition it waits for."""
    if not update.update_id:
        return "No update is under way."
    lines = [f"The {update.type} `{update.update_id}` is **{update.state}**:"]
    facts = [f"{update.done_count} of {_count(update.total_count, 'instance')} done"]
    facts += [f"{update.current_count} in flight"] if update.current_count else []
    facts += [f"{update.failed_count} failed"] if update.failed_count else []
    lines += _list(facts)
    if update.waiting_for and not update.is_finished:
        lines += ["", f"It waits for {update.waiting_for}."]
    if update.stall:
        lines += ["", f"It has stalled: {update.stall}."]
    return "\n".join([*lines, *_story(states)])


def daemon_details(launched_count: int, waiting_count: int, waiting_for: str) -> str:
    """Describe the launched and the missing pods of a daemon."""
    lines = [f"{_count(launched_count, 'pod')} launched."]
    if waiting_count:
        lines += ["", f"{_count(waiting_count, 'pod')} not on the host yet{f': {waiting_for}' if waiting_for else ''}."]
    return "\n".join(lines)


_LAUNCH = {
    Step.PLACE: "The gang waits for hosts for all of it",
    Step.START: "The gang was launched, and waits until all of it runs",
    Step.RUNNING: "All of the gang runs: the launch is done",
    Step.REQUEUE: "The launch failed: the gang is requeued",
    Step.SUPERSEDED: "The launch is over: members have failed, were stopped or were restarted",
}


def gang_details(gang: GangProgress, verdict: Verdict, waiting_for: str) -> str:
    """Describe the step of a gang's launch, the reason, and the members at each stage."""
    why = requeue_text(verdict.reason) if verdict.reason else waiting_for
    lines = [f"{_LAUNCH[verdict.step]}{f' ({why})' if why else ''}."]
    lines += _list(f"{stage.value}: {gang.stages[stage]} of {gang.size}" for stage in Stage if gang.stages.get(stage))
    return "\n".join(lines)


def add_state(states: Sequence[str], now: datetime, state: str) -> tuple[str, ...]:
    """Return the life with one more state, cut to its newest lines."""
    return (*states, f"{now:%Y-%m-%d %H:%M:%S} {state}")[-STATES_MAX:]


def _story(states: Sequence[str]) -> list[str]:
    return ["", "Its life (UTC):", *_list(states)] if states else []


def _list(items: Iterable[str]) -> list[str]:
    """Return a list after the empty line that Markdown requires."""
    lines = [f"- {item}" for item in items]
    return ["", *lines] if lines else []


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _describe_state(state: PodState) -> str:
    return _STATE_WORDS.get(state, state.lower())
