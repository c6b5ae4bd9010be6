"""Progress of a job as a person reads it."""

from __future__ import annotations

from peloton.model.job import JobProgress
from peloton.model.pod import PodState
from peloton.model.update import UpdateProgress

_ORDER = [s.value for s in PodState]


def details(progress: JobProgress) -> str:
    """Markdown: the job's state, and a line for each pod state that has pods, in the order of a pod's life."""
    total = sum(progress.counts.values())
    done = progress.counts.get(PodState.SUCCEEDED, 0)
    lines = [f"**{progress.state}**: {done} of {total} pods succeeded"]
    lines += [f"- {state}: {progress.counts[state]}" for state in _ORDER if progress.counts.get(state)]
    return "\n".join(lines)


def update_details(update: UpdateProgress) -> str:
    """Markdown: how far a rollout is, and what it waits for."""
    lines = [f"**{update.type} {update.state}**: {update.done_count} of {update.total_count} instances done"]
    if update.failed_count:
        lines.append(f"- failed: {update.failed_count}")
    if update.current_count:
        lines.append(f"- in flight: {update.current_count}")
    if update.waiting_for and not update.is_finished:
        lines.append(f"- waits for: {update.waiting_for}")
    return "\n".join(lines)
