"""The progress of an update of a service, or of its start or stop. Made from answers of the API, without a clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cli.errors import Failed
from cli.stateless.service import config_version
from cli.wire import v1
from peloton.model.job import JOB_TERMINAL, JobState
from peloton.model.pod import TERMINAL, PodState
from peloton.model.update import UPDATE_TERMINAL, UpdateState

POD_PREFIX = "POD_STATE_"


@dataclass(frozen=True, slots=True)
class Rollout:
    """The progress of a rollout. ``pods``: entity version -> state -> count. ``exit_code`` None: it continues."""

    act: str  # UPDATE, RESTART, START or STOP
    state: str
    total_count: int = 0
    done_count: int = 0
    failed_count: int = 0
    current_count: int = 0
    pods: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    version: str = ""
    waiting_for: str = ""
    failed_run_count: int = 0
    stall: str = ""  # why it has stalled; empty: it has not
    exit_code: int | None = None

    @property
    def counts_text(self) -> str:
        parts = [f"{self.done_count}/{self.total_count} done"]
        parts += [f"{self.failed_count} failed"] if self.failed_count else []
        runs = "run" if self.failed_run_count == 1 else "runs"
        parts += [f"{self.failed_run_count} {runs} failed"] if self.failed_run_count else []
        parts += [f"{self.current_count} in flight"] if self.current_count else []
        return ", ".join(parts)

    @property
    def pod_lines(self) -> list[str]:
        return [
            f"{f'version {version}' if version else 'pods'}: "
            + ", ".join(f"{count} {state}" for state, count in states.items())
            for version, states in self.pods.items()
        ]

    @property
    def line(self) -> str:
        waiting = [f"waits for {self.waiting_for}"] if self.waiting_for else []
        stalled = [self.stall_line] if self.stall else []
        return "; ".join([f"{self.act} {self.state} {self.counts_text}", *self.pod_lines, *waiting, *stalled])

    @property
    def stall_line(self) -> str:
        return f"stalled: {' '.join(self.stall.split())}"

    @property
    def as_dict(self) -> dict[str, Any]:
        return {
            "type": self.act,
            "state": self.state,
            "total": self.total_count,
            "done": self.done_count,
            "failed": self.failed_count,
            "inFlight": self.current_count,
            "pods": self.pods,
            "version": self.version,
            "waitingFor": self.waiting_for,
            "failedRuns": self.failed_run_count,
            "stalled": self.stall,
        }


def of_update(job: v1.job.JobInfo) -> Rollout:
    """Return the rollout of the job's current update."""
    status = job.status.workflow_status
    state = update_state(status)
    act = v1.job.WorkflowType.Name(status.type).removeprefix("WORKFLOW_TYPE_")
    done, failed = status.num_instances_completed, status.num_instances_failed
    return Rollout(
        act="WORKFLOW" if act == "INVALID" else act,  # rolling starts and stops have no name in v1alpha
        state=str(state),
        total_count=done + failed + status.num_instances_remaining,
        done_count=done,
        failed_count=failed,
        current_count=len(status.instances_current),
        pods=pods_of(job.status),
        version=status.version.value,
        waiting_for=update_waits_for(job, state),
        failed_run_count=status.num_runs_failed,
        stall=status.stall_cause or "no pod becomes healthy" if status.stalled_time else "",
        exit_code=exit_code_of(state),
    )


def update_state(status: v1.job.WorkflowStatus) -> UpdateState:
    return UpdateState(v1.job.WorkflowState.Name(status.state).removeprefix("WORKFLOW_STATE_"))


def exit_code_of(state: UpdateState) -> int | None:
    if state not in UPDATE_TERMINAL:
        return None
    return 0 if state is UpdateState.SUCCEEDED else 1


def update_waits_for(job: v1.job.JobInfo, state: UpdateState) -> str:
    status = job.status.workflow_status
    how = ""
    if state is UpdateState.PAUSED:
        how = f": peloton job stateless resume {job.job_id.value}"
    elif status.awaiting_pulse:
        how = f": peloton job stateless pulse {job.job_id.value}"
    return f"{status.waiting_for}{how}" if status.waiting_for else ""


def of_goal(job: v1.job.JobInfo, goal: JobState) -> Rollout:
    """Return the rollout of a start (``goal`` RUNNING) or a stop (KILLED)."""
    state, wanted = (JobState(job_state_name(number)) for number in (job.status.state, job.status.desired_state))
    pods = pods_of(job.status)
    counts: dict[str, int] = {}
    for states in pods.values():
        for name, count in states.items():
            counts[name] = counts.get(name, 0) + count
    is_start = goal is JobState.RUNNING
    reached = {PodState.RUNNING} if is_start else TERMINAL
    total = job.spec.instance_count
    done = sum(count for name, count in counts.items() if name in reached)
    is_over = done >= total if is_start else state in JOB_TERMINAL
    changed_mind = wanted is not goal
    rest = max(total - done, 0)
    verb = "run" if is_start else "end"
    return Rollout(
        act="START" if is_start else "STOP",
        state=f"GIVEN UP, the goal is {wanted} now" if changed_mind else str(state),
        total_count=total,
        done_count=min(done, total),
        current_count=0 if is_over else rest,
        pods=pods,
        version=job.status.version.value,
        waiting_for=f"{rest} instances to {verb}" if rest and not is_over and not changed_mind else "",
        exit_code=1 if changed_mind else 0 if is_over else None,
    )


def job_state_name(number: int) -> str:
    name = v1.job.JobState.Name(number).removeprefix("JOB_STATE_")  # type: ignore[arg-type]
    return "UNKNOWN" if name == "INVALID" else name


def pods_of(status: v1.job.JobStatus) -> dict[str, dict[str, int]]:
    """Return the pods without zeros; versions ascend, states are in the order of a pod's life."""
    by_version = {version: stats.state_stats for version, stats in status.pod_stats_by_configuration_version.items()}
    found = {
        version: count_states(by_version[version])
        for version in sorted(by_version, key=lambda version: (len(version.partition("-")[0]), version))
    }
    return {version: counts for version, counts in (found or {"": count_states(status.pod_stats)}).items() if counts}


def count_states(stats: Mapping[str, int]) -> dict[str, int]:
    plain = {name.removeprefix(POD_PREFIX): count for name, count in stats.items() if count}
    return {str(state): plain[state] for state in PodState if state in plain}


def bar_parts(rollout: Rollout, width: int) -> tuple[int, int, int, int]:
    """Return how many of ``width`` cells are done, failed, in flight and pending.

    A failure always has a cell, and the bar is full of done cells only when all is done.
    """
    counts = (rollout.done_count, rollout.failed_count, rollout.current_count)
    total = max(rollout.total_count, sum(counts))
    if not total:
        return (width, 0, 0, 0) if rollout.exit_code == 0 else (0, 0, 0, width)
    cells = [count * width // total for count in counts]
    has_more = 1 if sum(counts) < total else 0
    for index, spared in ((1, 0), (2, has_more)):  # each has a cell even if they are few, failures first
        if counts[index] and not cells[index] and sum(cells) + spared < width:
            cells[index] = 1
    return cells[0], cells[1], cells[2], width - sum(cells)


class UpdateFollower:
    """A follower of one update; it counts as aborted when a newer one replaces it.

    ``version``: the entity version that its creation returned; empty: any update.
    """

    def __init__(self, version: str = "") -> None:
        self.version = version
        self.creation_time = ""

    def __call__(self, response: v1.job_svc.GetJobResponse) -> Rollout:
        job = response.job_info
        status = job.status.workflow_status
        if not status.state:
            raise Failed(f"job {job.job_id.value} has no update")
        seen = of_update(job)
        self.creation_time = self.creation_time or ("" if self.is_newer(seen) else status.creation_time)
        if self.creation_time == status.creation_time:
            return seen
        return Rollout(seen.act, "ABORTED: a newer update took its place", pods=seen.pods, exit_code=1)

    def is_newer(self, seen: Rollout) -> bool:
        """Return whether the update is newer; during a rollback the same update has a newer version, too."""
        is_going_back = seen.state in ("ROLLING_BACKWARD", "ROLLED_BACK")
        return bool(self.version) and not is_going_back and config_version(seen.version) > config_version(self.version)
