"""The progress deadline of an update."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peloton.lifecycle import rollout, stall
from peloton.model.ids import JobId
from peloton.model.pod import HealthState, PodEvent, PodRecord, PodState
from peloton.model.reason import SlaRefusal
from peloton.model.times import NS_PER_S
from peloton.model.update import NONE, UpdateRecord, UpdateSpec, UpdateState, UpdateType
from tests.unit.lifecycle.pods import service_pod

JOB = JobId("11111111-2222-3333-4444-555555555555")
START = 1_000 * NS_PER_S
ROLLING = UpdateRecord(
    "u1", JOB, UpdateType.UPDATE, UpdateSpec(), UpdateState.ROLLING_FORWARD, 2, 1,
    updated=frozenset(range(3)), current=frozenset({0, 1}), progressed_ns=START,
)  # fmt: skip


def after_s(seconds: float, after: UpdateRecord = ROLLING, before: UpdateRecord = ROLLING) -> UpdateRecord:
    return stall.evaluate_progress(before, after, START + int(seconds * NS_PER_S))


def test_an_update_without_progress_stalls_at_its_deadline() -> None:
    """The default is 600 seconds; the time of the stall is kept, and the rest of the update is unchanged."""
    early, late = after_s(599.9), after_s(600)

    assert (ROLLING, START + 600 * NS_PER_S) == (early, late.stalled_ns)
    assert replace(ROLLING, stalled_ns=late.stalled_ns) == late == after_s(700, late, late)


def test_an_update_may_name_its_deadline() -> None:
    """A deadline of the update's own is shown with the stall."""
    mine = replace(ROLLING, spec=UpdateSpec(progress_deadline_s=30), stall_cause="x")

    assert [0, START + 30 * NS_PER_S] == [after_s(s, mine, mine).stalled_ns for s in (29, 30)]
    assert "no instance has become done for 30 seconds or more: x" == stall.stall_text(after_s(30, mine, mine))


def test_progress_starts_the_time_again_and_ends_a_stall() -> None:
    """Progress is a done instance; a failed one, or one that begins, is none."""
    stalled = after_s(600)
    done = replace(stalled, done=frozenset({0}), current=frozenset({1}), stall_cause="x")
    others = replace(stalled, failed=frozenset({0}), current=frozenset({1, 2}))

    assert replace(done, progressed_ns=START + 700 * NS_PER_S, stalled_ns=0, stall_cause="") == after_s(
        700, done, stalled
    )
    assert stalled.stalled_ns == after_s(700, others, stalled).stalled_ns


@pytest.mark.parametrize(
    "after",
    [
        replace(ROLLING, state=UpdateState.PAUSED),
        replace(ROLLING, state=UpdateState.SUCCEEDED),
        replace(ROLLING, state=UpdateState.FAILED),
        replace(ROLLING, awaits_pulse=True, current=NONE),
    ],
    ids=["paused", "succeeded", "failed", "waits for a pulse"],
)
def test_an_update_that_is_not_to_move_has_no_deadline(after: UpdateRecord) -> None:
    """Updates that are paused, ended or waiting for a pulse have no deadline; their earlier times are removed."""
    evaluated = after_s(10_000, replace(after, stalled_ns=5, stall_cause="x"))

    assert (0, 0, "", 0.0) == (
        evaluated.progressed_ns,
        evaluated.stalled_ns,
        evaluated.stall_cause,
        stall.stalls_in_s(evaluated, 0),
    )


def test_the_time_begins_with_the_step_that_finds_it_rolling() -> None:
    """The time starts again after a pause, when the update rolls back, and for an update of an earlier release."""
    held = rollout.pause(after_s(600))
    back = rollout.reverse(after_s(600), 3, rollout.Difference(updated=frozenset({0})))

    for before in (replace(ROLLING, progressed_ns=0), rollout.resume(held), back):
        evaluated = after_s(900, before, before)
        assert (START + 900 * NS_PER_S, 0) == (evaluated.progressed_ns, evaluated.stalled_ns)


def test_an_update_that_waits_for_a_pulse_and_has_pods_in_flight_may_stall() -> None:
    """Pods in flight become healthy without a pulse, so that the update may stall."""
    assert after_s(600, replace(ROLLING, awaits_pulse=True)).stalled_ns


def test_how_long_until_it_stalls() -> None:
    """The time is a second at least, so that a clock that is a little behind does not cause a busy loop."""
    waits = [stall.stalls_in_s(ROLLING, START + s * NS_PER_S) for s in (0, 200, 600, 900)]

    assert ([600.0, 400.0, 1.0, 1.0], 0.0) == (waits, stall.stalls_in_s(after_s(600), START))


def end_event(message: str) -> PodEvent:
    pod = service_pod(0)
    return PodEvent(
        JOB, 0, 1, 1, 0, PodState.FAILED, PodState.RUNNING, 2, 2, "h1", "", message, "", pod.health, START
    )  # fmt: skip


@pytest.mark.parametrize(
    ("worst", "last", "text"),
    [
        (
            service_pod(0, state=PodState.INITIALIZED, failure_count=8),
            end_event("Command exited with status 1; stderr:\nno such table"),
            "instance 0 fails again and again, last on h1: Command exited with status 1; stderr:\nno such table",
        ),
        (
            service_pod(0, state=PodState.LAUNCHED, host="h2", reason="ErrImagePull", message="x:1: not found"),
            None,
            "instance 0 on h2 has not started: ErrImagePull, x:1: not found",
        ),
        (
            service_pod(0, host="h2", health=HealthState.UNHEALTHY),
            None,
            "instance 0 on h2 runs and fails its health check",
        ),
        (
            service_pod(0, host="h2", health=HealthState.HEALTH_UNKNOWN),
            None,
            "instance 0 on h2 runs and has not passed its health check",
        ),
        (service_pod(0, state=PodState.READY, message="no room", host=""), None, "instance 0 is PENDING: no room"),
        (None, None, "waits for the SLA: 1 of at most 1 instances are unavailable already"),
    ],
)
def test_the_cause_is_that_of_the_worst_instance(worst: PodRecord | None, last: PodEvent | None, text: str) -> None:
    """The wait of the update is the cause when no instance is in flight."""
    update = replace(ROLLING, refusal=SlaRefusal(1, 1, 0))

    assert text == stall.cause_text(update, worst, last)
    assert stall.CAUSE_MAX == len(stall.cause_text(update, service_pod(0, failure_count=1), end_event("x" * 2_000)))
