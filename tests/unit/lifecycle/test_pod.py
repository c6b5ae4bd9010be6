"""Effects of a host's report on a pod."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from peloton.lifecycle.endings import RULES
from peloton.lifecycle.goal import default_pod_goal
from peloton.lifecycle.pod import (
    DUPLICATE_ID_MESSAGE,
    HEALTH_CHECK_REASON,
    INVALID_TASK_REASON,
    Applied,
    Ignored,
    Orphan,
    Outcome,
    apply_status,
    counts_as_failure,
    parse_termination,
)
from peloton.model.ids import JobId, PodId
from peloton.model.job import JobType
from peloton.model.pod import (
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

JOB = JobId("11111111-2222-3333-4444-555555555555")
SECOND = 1_000_000_000
LEGAL = {  # stored state -> reported states that change it
    "LAUNCHED": "STARTING RUNNING SUCCEEDED FAILED LOST KILLED",
    "STARTING": "RUNNING SUCCEEDED FAILED LOST KILLED",
    "RUNNING": "SUCCEEDED FAILED LOST KILLED",
    "PREEMPTING": "RUNNING SUCCEEDED FAILED LOST KILLED",
    "KILLING": "SUCCEEDED FAILED LOST KILLED",
}
REPORTED = (
    PodState.LAUNCHED,
    PodState.STARTING,
    PodState.RUNNING,
    PodState.SUCCEEDED,
    PodState.FAILED,
    PodState.LOST,
    PodState.KILLED,
)


def a_pod(state: PodState = PodState.RUNNING, **changes: Any) -> PodRecord:
    pod = PodRecord(
        job_id=JOB,
        instance_id=3,
        run_id=2,
        state=state,
        goal=PodState.SUCCEEDED,
        config_version=1,
        desired_config_version=1,
        desired_run_id=2,
        host="host",
        started_ns=10 * SECOND,
    )
    return replace(pod, **changes)


def a_status(state: PodState, **changes: Any) -> PodStatus:
    status = PodStatus(PodId(JOB, 3, 2), state, 15 * SECOND, host="host", agent_id="agent")
    return replace(status, **changes)


def apply(
    pod: PodRecord, status: PodStatus, job_type: JobType = JobType.BATCH, kill_on_preempt: bool = False
) -> Applied:
    outcome = apply_status(pod, status, job_type, kill_on_preempt=kill_on_preempt)
    assert isinstance(outcome, Applied), outcome
    return outcome


def test_every_pair_of_states_has_the_outcome_of_the_table() -> None:
    """A report changes a pod exactly where the table says so; a run that was not launched, or has ended, is an
    orphan.
    """
    pairs = [(state, reported) for state in PodState for reported in REPORTED]
    found = {pair: type(apply_status(a_pod(pair[0]), a_status(pair[1]), JobType.BATCH)) for pair in pairs}

    assert {pair: outcome_in_table(*pair) for pair in pairs} == found


def outcome_in_table(state: PodState, reported: PodState) -> type[Outcome]:
    if reported.value in LEGAL.get(state.value, "").split():
        return Applied
    return Ignored if state in ON_HOST or reported in TERMINAL else Orphan


@pytest.mark.parametrize(("reported", "expected"), [(PodState.RUNNING, Orphan), (PodState.FAILED, Ignored)])
def test_another_run_is_an_orphan_while_it_lives(reported: PodState, expected: type) -> None:
    """A report of a run that is not the current one, or of an unknown pod, asks for a kill unless it ended."""
    older = a_status(reported, pod_id=PodId(JOB, 3, 1))

    assert isinstance(apply_status(a_pod(), older, JobType.BATCH), expected)
    assert isinstance(apply_status(None, older, JobType.BATCH), expected)


def test_first_running_report_starts_the_clock() -> None:
    """The start time is that of the first RUNNING report, and the reason is cleared."""
    launched = a_pod(PodState.LAUNCHED, started_ns=0, reason="REASON_UPDATE_OFFER", revision=4)

    pod = apply(launched, a_status(PodState.RUNNING, message="up", reason="REASON_OTHER")).pod

    assert (PodState.RUNNING, 15 * SECOND, "up", "", 5) == (
        pod.state,
        pod.started_ns,
        pod.message,
        pod.reason,
        pod.revision,
    )


def test_a_failed_command_reports_its_exit_code() -> None:
    """A FAILED report keeps message and reason, counts a failure, and the exit code is read from the message."""
    message = "Command exited with status 7"
    outcome = apply(a_pod(), a_status(PodState.FAILED, message=message, reason="REASON_COMMAND_EXECUTOR_FAILED"))

    assert outcome.ended
    pod = outcome.pod
    assert Termination(TerminationReason.FAILED, 7, "") == pod.termination
    assert (1, message, "REASON_COMMAND_EXECUTOR_FAILED") == (pod.failure_count, pod.message, pod.reason)
    assert HealthState.INVALID == pod.health


@pytest.mark.parametrize(
    ("message", "code", "signal"),
    [
        ("Command exited with status 137", 137, ""),
        ("Command terminated with signal Segmentation fault", 0, "Segmentation fault"),
        ("Container terminated with signal Broken pipe", 0, "Broken pipe"),
        ("said: Command exited with status 1", 0, ""),
        ("Command exited with status 99999999999", 2**32 - 1, ""),
        ("", 0, ""),
    ],
)
def test_termination_is_read_from_the_message(message: str, code: int, signal: str) -> None:
    """The message begins with the exit code, the signal after its mark."""
    assert Termination(TerminationReason.FAILED, code, signal) == parse_termination(message)


def test_a_duplicate_launch_refused_by_the_master_is_no_failure() -> None:
    """A second launch of a run fails with a duplicate id: the first one continues."""
    status = a_status(PodState.FAILED, message=f"{DUPLICATE_ID_MESSAGE} on agent", reason=INVALID_TASK_REASON)

    assert isinstance(apply_status(a_pod(), status, JobType.BATCH), Ignored)


def test_lost_while_wanted_stays_lost() -> None:
    """A LOST pod keeps its reason, and counts no failure."""
    pod = apply(a_pod(), a_status(PodState.LOST, message="agent gone", reason="REASON_SLAVE_REMOVED")).pod

    assert (PodState.LOST, "Task LOST: agent gone", "REASON_SLAVE_REMOVED") == (pod.state, pod.message, pod.reason)
    assert 0 == pod.failure_count


def test_lost_while_being_killed_is_killed() -> None:
    """A lost pod with the goal to end has ended."""
    pod = apply(a_pod(PodState.KILLING, goal=PodState.KILLED), a_status(PodState.LOST, message="agent gone")).pod

    assert (PodState.KILLED, "Stopped task LOST event: agent gone") == (pod.state, pod.message)


@pytest.mark.parametrize("job_type", [JobType.BATCH, JobType.SERVICE])
def test_a_pod_of_a_drained_host_is_evicted(job_type: JobType) -> None:
    """A pod of a drained host shows the reason, counts no failure, and does not come back to that host."""
    status = a_status(PodState.KILLED, message="terminated", reason="REASON_X", cause=Cause.HOST_DRAINED)

    pod = apply(a_pod(desired_host="host", goal=default_pod_goal(job_type)), status, job_type).pod

    assert ("Evicted by the cluster, its host is drained: terminated", "REASON_X") == (pod.message, pod.reason)
    assert Termination(TerminationReason.KILLED_HOST_MAINTENANCE) == pod.termination
    assert (PodState.KILLED, 0, "") == (pod.state, pod.failure_count, pod.desired_host)


EVICTIONS = [cause for cause in Cause if RULES[cause].termination]


@pytest.mark.parametrize("cause", Cause)
def test_kill_on_preempt_makes_every_eviction_the_end(cause: Cause) -> None:
    """A pod with killOnPreempt ends with any eviction, also by an operator of the cluster or by another scheduler; it
    continues after all other endings.
    """
    pod = apply(a_pod(), a_status(PodState.KILLED, cause=cause), kill_on_preempt=True).pod

    assert (PodState.PREEMPTING if cause in EVICTIONS else PodState.SUCCEEDED) == pod.goal
    assert PodState.KILLED == pod.state
    assert PodState.SUCCEEDED == apply(a_pod(), a_status(PodState.KILLED, cause=cause)).pod.goal


@pytest.mark.parametrize(
    ("changes", "state", "expected"),
    [
        ({"goal": PodState.KILLED}, PodState.KILLED, PodState.KILLED),
        ({"desired_run_id": 3}, PodState.KILLED, PodState.SUCCEEDED),
        ({}, PodState.SUCCEEDED, PodState.SUCCEEDED),
    ],
    ids=["stopped", "restarted", "done"],
)
def test_what_leaves_anyway_is_not_evicted(changes: dict[str, Any], state: PodState, expected: PodState) -> None:
    """A pod that ends on request, or has succeeded, before its host was drained is not changed by the drain."""
    pod = apply(a_pod(**changes), a_status(state, cause=Cause.HOST_DRAINED), kill_on_preempt=True).pod

    assert (state, expected) == (pod.state, pod.goal)


def test_what_we_asked_for_is_not_blamed_on_the_drain() -> None:
    """A reason of Peloton's own request is kept over that of the host."""
    termination = Termination(TerminationReason.KILLED_ON_REQUEST)
    asked = a_pod(PodState.KILLING, goal=PodState.KILLED, termination=termination, reason="why")

    pod = apply(asked, a_status(PodState.KILLED, reason="REASON_X", cause=Cause.HOST_DRAINED)).pod

    assert (termination, "why") == (pod.termination, pod.reason)


@pytest.mark.parametrize(
    ("state", "lost"), [(PodState.LAUNCHED, True), (PodState.STARTING, False), (PodState.RUNNING, False)]
)
def test_a_launch_is_lost_when_nothing_of_it_started(state: PodState, lost: bool) -> None:
    """A lost run counts as a lost launch only if it was never STARTING or RUNNING."""
    assert lost == apply(a_pod(state), a_status(PodState.LOST)).launch_lost


def test_running_time_is_summed_for_batch_jobs() -> None:
    """Each finished run adds its running time; a service's is always zero, as is that of a run never started."""
    status = a_status(PodState.SUCCEEDED)

    assert 12.5 == apply(a_pod(run_seconds=7.5), status).pod.run_seconds
    assert 0.0 == apply(a_pod(), status, JobType.SERVICE).pod.run_seconds
    assert 0.0 == apply(a_pod(PodState.LAUNCHED, started_ns=0), status).pod.run_seconds
    assert 0.0 == apply(a_pod(started_ns=99 * SECOND), status).pod.run_seconds


@pytest.mark.parametrize(
    ("state", "changes", "counts"),
    [
        (PodState.FAILED, {}, True),
        (PodState.LOST, {}, False),
        (PodState.SUCCEEDED, {}, False),
        (PodState.SUCCEEDED, {"goal": PodState.RUNNING}, True),
        (PodState.KILLED, {}, True),
        (PodState.KILLED, {"goal": PodState.KILLED}, False),
        (PodState.FAILED, {"desired_config_version": 2}, False),
        (PodState.KILLED, {"desired_run_id": 3}, False),
    ],
)
def test_failures_are_counted_by_rule(state: PodState, changes: dict[str, Any], counts: bool) -> None:
    """End on request, or for a newer run, use up no attempt."""
    assert counts == counts_as_failure(a_pod(**changes), state)


@pytest.mark.parametrize("cause", [cause for cause in Cause if not RULES[cause].counts])
def test_what_others_ended_is_no_failure(cause: Cause) -> None:
    """A run that is ended by another party does not use up the pod's attempts; its own success does, once."""
    assert not any(counts_as_failure(a_pod(), state, cause) for state in TERMINAL)
    assert counts_as_failure(a_pod(goal=PodState.RUNNING), PodState.SUCCEEDED, cause)


def test_health_reports_are_news_only_when_health_changes() -> None:
    """A repeated RUNNING report is a duplicate unless it has a change of health."""
    sick = a_status(PodState.RUNNING, reason=HEALTH_CHECK_REASON, healthy=False)
    well = replace(sick, healthy=True)
    unknown = a_pod(health=HealthState.HEALTH_UNKNOWN)

    first = apply(unknown, sick).pod
    assert (HealthState.UNHEALTHY, HEALTH_CHECK_REASON) == (first.health, first.reason)
    assert isinstance(apply_status(first, sick, JobType.SERVICE), Ignored)
    assert HealthState.HEALTHY == apply(first, well).pod.health
    assert isinstance(apply_status(unknown, replace(sick, healthy=None), JobType.SERVICE), Ignored)
    assert isinstance(apply_status(unknown, replace(sick, reason=""), JobType.SERVICE), Ignored)


def test_the_reason_for_a_kill_outlives_it() -> None:
    """A run that was killed keeps the reason of the kill."""
    observed = a_pod(
        PodState.KILLING,
        goal=PodState.KILLED,
        reason="Deadline exceeded",
        termination=Termination(TerminationReason.DEADLINE_TIMEOUT_EXCEEDED),
    )

    pod = apply(observed, a_status(PodState.KILLED, message="Command terminated")).pod

    assert "Deadline exceeded" == pod.reason
    assert observed.termination == pod.termination


def test_why_a_pod_waits_on_its_host_is_its_message() -> None:
    """A waiting pod keeps its state, each text is recorded once, and the report of a start ends the wait."""
    words = {"reason": "ErrImagePull", "message": "x:1: not found"}
    pulls = a_status(PodState.LAUNCHED, waits=True, **words)
    launched = a_pod(PodState.LAUNCHED, reason="REASON_UPDATE_OFFER", message="Add hostname and ports")
    waiting = apply(launched, pulls).pod

    assert (PodState.LAUNCHED, "ErrImagePull", "x:1: not found") == (waiting.state, waiting.reason, waiting.message)
    assert isinstance(apply_status(waiting, pulls, JobType.BATCH), Ignored)
    assert "" == apply(waiting, a_status(PodState.RUNNING)).pod.message
    starting = apply(waiting, a_status(PodState.STARTING, waits=True, **words)).pod
    assert isinstance(apply_status(starting, a_status(PodState.STARTING, waits=True, **words), JobType.BATCH), Ignored)
    assert (
        "no"
        == apply(starting, a_status(PodState.STARTING, waits=True, reason="ErrImagePull", message="no")).pod.message
    )
    pulled = apply(starting, a_status(PodState.STARTING)).pod  # the image of an init container that runs now
    assert ("", "") == (pulled.reason, pulled.message)
    assert isinstance(apply_status(pulled, a_status(PodState.STARTING, message="other"), JobType.BATCH), Ignored)


def test_the_answer_to_a_question_is_no_wait() -> None:
    """A reconciliation answer is no wait: its message is about the reconciliation."""
    answer = a_status(PodState.LAUNCHED, reason="REASON_RECONCILIATION", message="Reconciliation: latest task state")

    assert isinstance(apply_status(a_pod(PodState.LAUNCHED), answer, JobType.BATCH), Ignored)
    assert isinstance(apply_status(a_pod(PodState.KILLING), replace(answer, waits=True), JobType.BATCH), Ignored)
