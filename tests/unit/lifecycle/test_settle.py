"""Plans of a settle, from counted kinds of pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from peloton.lifecycle import settle
from peloton.lifecycle.pod_machine import Event
from peloton.lifecycle.settle import PodAction, SettlePlan, SettleView, UpdateView, find_work, plan_settle
from peloton.model.ids import JobId, RespoolId
from peloton.model.job import JobRecord, JobState, JobType, SlaSpec
from peloton.model.pod import NextRun, PodRecord, PodState
from tests.unit.lifecycle.counting import count_pods

NOW = 1_700_000_000 * 10**9
SECOND = 10**9
JOB = JobId("j")
I, READY, R, S, F, K = (  # noqa: E741
    PodState.INITIALIZED,
    PodState.READY,
    PodState.RUNNING,
    PodState.SUCCEEDED,
    PodState.FAILED,
    PodState.KILLED,
)


def job(count: int, goal: JobState = JobState.SUCCEEDED, **sla: Any) -> JobRecord:
    return JobRecord(
        JOB, "train", JobType.BATCH, "maps", RespoolId("p"), count, SlaSpec(**sla), JobState.RUNNING, goal,
        pod_counts={R: count}, desired_state_version=2, started_ns=NOW,
    )  # fmt: skip


def pod(instance: int, state: PodState, **more: Any) -> PodRecord:
    fields: dict[str, Any] = {"goal": S, "completed_ns": NOW if state in (S, F, K) else 0, **more}
    return PodRecord(JOB, instance, 1, state, config_version=1, desired_config_version=1, desired_run_id=1, **fields)


def plan(record: JobRecord, *pods: PodRecord) -> SettlePlan:
    return plan_settle(SettleView(record, count_pods(record, pods, NOW), UpdateView()), NOW)


def events(found: SettlePlan) -> list[Event]:
    return [action.event for action in found.actions]


def test_nothing_to_do_changes_nothing_but_counts() -> None:
    """A job whose pods run changes its counts alone."""
    found = plan(job(2), pod(0, R), pod(1, READY))

    assert [] == events(found)
    assert {R: 1, READY: 1} == found.job.pod_counts
    assert (1, 0, 0) == (found.progress.ready_count, found.progress.kill_count, found.progress.admit_count)


def test_an_ended_pod_begins_its_next_run_when_it_is_due() -> None:
    """A pod waits until its next run is due, and the answer has the time; the job does not end before."""
    due, later = (pod(i, F, next_run=NextRun.RETRY, due_ns=NOW + wait * SECOND) for i, wait in ((0, 0), (1, 7)))
    found = plan(job(2), due, later)

    assert [Event.BEGIN_NEXT_RUN] == events(found)
    assert (JobState.PENDING, 7.0) == (found.job.state, found.progress.deadline_s)


def test_a_pod_that_waits_says_so_only_in_a_service() -> None:
    """A batch pod keeps the message of its failure, and its run has one event of its end."""
    waits = pod(0, F, next_run=NextRun.RETRY, due_ns=NOW + 7 * SECOND)

    assert [] == events(plan(job(1), waits))
    assert [Event.THROTTLE] == events(plan(replace(job(1), type=JobType.SERVICE), waits))


def test_pods_that_rest_end_the_job() -> None:
    """A job ends at the time of its last pod's end."""
    found = plan(replace(job(2), started_ns=NOW - 9), pod(0, S, completed_ns=NOW - 5), pod(1, F, completed_ns=NOW - 3))

    assert ([], JobState.FAILED, NOW - 3) == (events(found), found.job.state, found.job.completed_ns)
    assert found.progress.is_finished


def test_a_job_that_was_never_seen_running_starts_when_it_ends() -> None:
    """A job whose pods ended before a report that they run starts no later than its end."""
    unseen = replace(job(2), started_ns=0)
    found = plan(unseen, pod(0, S, completed_ns=NOW - 5), pod(1, F, completed_ns=NOW - 3))

    assert (NOW - 3, NOW - 3) == (found.job.started_ns, found.job.completed_ns)


def test_a_job_starts_and_ends_no_sooner_than_it_was_created() -> None:
    """Kubernetes reports whole seconds, and hosts have clocks of their own."""
    fresh = replace(job(1), started_ns=0, created_ns=NOW - 1)
    found = plan(fresh, pod(0, S, started_ns=NOW - 5, completed_ns=NOW - 5))

    assert (NOW - 1, NOW - 1) == (found.job.started_ns, found.job.completed_ns)


def test_a_late_report_of_an_end_does_not_end_a_job_before_its_start() -> None:
    """A job whose start has the time of a settle does not end before it, although the host reports an earlier end."""
    found = plan(replace(job(1), started_ns=NOW), pod(0, S, completed_ns=NOW - 1))

    assert (NOW, NOW) == (found.job.started_ns, found.job.completed_ns)


def test_pods_that_a_stop_missed_are_stopped() -> None:
    """Pods that a stop missed are stopped if the job is to end; until then its version of the goal is not reached."""
    missed = (pod(0, R), pod(1, K, goal=K))

    assert [] == events(plan(job(2), *missed))
    found = plan(job(2, JobState.KILLED), *missed)
    assert ([Event.STOP], 1) == (events(found), found.job.state_version)


def test_what_no_queue_knows_ends_at_once() -> None:
    """A pod that was never queued ends at once, and a pod with goal DELETED is removed."""
    found = plan(job(1), pod(0, I, goal=K), pod(1, K, goal=PodState.DELETED))

    assert [Event.END_UNQUEUED, Event.FORGET] == events(found)


@pytest.mark.parametrize(("seconds", "expected"), [(59, []), (61, [Event.EXCEED_DEADLINE])])
def test_a_pod_that_runs_for_too_long_ends(seconds: int, expected: list[Event]) -> None:
    """The action is for pods that began before the limit; others of a gang end with them in the next settle."""
    record = job(2, max_running_time_s=60, minimum_running_instances=2)
    found = plan(record, pod(0, R, started_ns=NOW - seconds * SECOND), pod(1, R, started_ns=NOW - SECOND))

    assert expected == events(found)
    assert [NOW - 60 * SECOND] * len(expected) == [action.started_before_ns for action in found.actions]
    assert bool(expected) == found.needs_another


def test_one_settle_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes over the bound are left to the next settle, which the answer says."""
    monkeypatch.setattr(settle, "SETTLE_PODS_MAX", 3)
    dead = [pod(i, F, next_run=NextRun.RETRY) for i in range(2)]
    found = plan(job(5), *dead, *(pod(i, I, goal=K) for i in range(2, 5)))

    def find(action: PodAction, limit: int) -> list[int]:
        return ([0, 1] if action.event is Event.BEGIN_NEXT_RUN else [2, 3, 4])[:limit]

    work = find_work(found, find, lambda room: None)

    assert [(Event.BEGIN_NEXT_RUN, [0, 1]), (Event.END_UNQUEUED, [2])] == [(c.event, c.instances) for c in work.changes]
    assert work.more


def test_times_of_the_runs_before_count_for_the_job() -> None:
    """A pod that begins its next run loses its times; the job has still begun when its first pod began."""
    before = count_pods(job(1), [pod(0, F, started_ns=NOW - 9, completed_ns=NOW - 2)], NOW)
    after = count_pods(job(1), [pod(0, I)], NOW)

    assert (NOW - 9, NOW - 2) == (after.with_times_of(before).first_start_ns, after.with_times_of(before).last_end_ns)


def test_counts_do_not_know_instances() -> None:
    """Pods with equal relevant fields are one kind, whatever their other fields."""
    pods = [replace(pod(i, R, started_ns=NOW - i), host=f"h{i}") for i in range(1, 4)]

    found = count_pods(job(3), pods, NOW)

    assert ([3], NOW - 3) == (list(found.kinds.values()), found.oldest_start_ns)
