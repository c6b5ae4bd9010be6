"""Pulsed updates: an update continues only while pulses come."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.lifecycle import rollout
from peloton.lifecycle.rollout import next_step, progress_of
from peloton.model.pod import PodRecord, PodState
from peloton.model.update import UpdateRecord, UpdateSpec, UpdateState, UpdateType
from peloton.model.update_text import update_wait_text
from tests.unit.lifecycle.pods import JOB, service_pod

S = 10**9
NOW = 1_000 * S
FORWARD, BACKWARD = UpdateState.ROLLING_FORWARD, UpdateState.ROLLING_BACKWARD
FIRST, ANOTHER = "its first pulse", "a pulse: none has come for 5 s"
RUNNING_01 = "instances 0-1 to run and be healthy"


def update(state: UpdateState = FORWARD, count: int = 4, pulsed_s: float = 0, **changes: Any) -> UpdateRecord:
    """Make an update of two at a time, with pulses every 5 s; the last one came ``pulsed_s`` before NOW, or never."""
    spec = UpdateSpec(batch_size=2, pulse_s=5, max_instance_attempts=1, max_failure_instances=1)
    fields: dict[str, Any] = {
        "updated": frozenset(range(count)),
        "pulsed_ns": int(NOW - pulsed_s * S) if pulsed_s else 0,
        **changes,
    }
    return UpdateRecord("u", JOB, UpdateType.UPDATE, spec, state, 2, 1, **fields)


def service(count: int = 4, version: int = 1) -> dict[int, PodRecord]:
    return {i: service_pod(i, version) for i in range(count)}


@pytest.mark.parametrize(
    ("pulsed_s", "begun", "waiting_for"),
    [(0, 0, FIRST), (5.1, 0, ANOTHER), (5, 2, RUNNING_01), (1, 2, RUNNING_01)],
)
def test_nothing_begins_without_a_pulse(pulsed_s: float, begun: int, waiting_for: str) -> None:
    """A first pulse is required, and then one every five seconds; the update is rolling all the time."""
    step = next_step(update(UpdateState.INITIALIZED, pulsed_s=pulsed_s), service(), now_ns=NOW)

    assert (FORWARD, begun, waiting_for) == (step.update.state, len(step.change), update_wait_text(step.update))
    assert (begun == 0) == step.update.awaits_pulse


def test_what_is_in_flight_is_finished() -> None:
    """One of two instances is done; its place in the batch is not filled."""
    pods = service() | {0: service_pod(0, 2), 1: service_pod(1, 2, state=PodState.STARTING)}
    step = next_step(update(pulsed_s=6, current=frozenset({0, 1})), pods, now_ns=NOW)

    assert (frozenset({0}), frozenset({1}), ()) == (step.update.done, step.update.current, step.change)
    assert f"instance 1 to run and be healthy and for {ANOTHER}" == update_wait_text(step.update)


def test_a_full_batch_waits_for_no_pulse() -> None:
    """A full batch does not report a missing pulse until one is required."""
    pods = service() | {i: service_pod(i, 2, state=PodState.STARTING) for i in (0, 1)}
    assert not next_step(update(pulsed_s=60, current=frozenset({0, 1})), pods, now_ns=NOW).update.awaits_pulse


def test_the_last_ones_need_no_pulse_to_be_done() -> None:
    """The update ends when no instances are left to begin."""
    step = next_step(update(count=2, pulsed_s=60, current=frozenset({0, 1})), service(2, 2), now_ns=NOW)
    assert (UpdateState.SUCCEEDED, False) == (step.update.state, step.update.awaits_pulse)


def test_going_back_needs_none() -> None:
    """A rollback needs no pulse, so that a service does not remain broken; the failure itself is seen without a pulse,
    too.
    """
    failed = service() | {0: service_pod(0, 2, state=PodState.FAILED, failure_count=1)}
    one = update(pulsed_s=60, current=frozenset({0}))
    assert UpdateState.FAILED is next_step(one, failed, now_ns=NOW).update.state
    one = replace(one, spec=replace(one.spec, rollback_on_failure=True))
    assert next_step(one, failed, now_ns=NOW).rolls_back
    assert (0, 1) == next_step(update(BACKWARD, pulsed_s=60), service(), now_ns=NOW).change


def test_a_paused_one_waits_for_a_person() -> None:
    """Pause, abort and the end stop the wait for a pulse; a resumed update waits for one again."""
    waits = next_step(update(), service(), now_ns=NOW).update
    assert waits.awaits_pulse
    stopped = next_step(rollout.pause(waits), service(), now_ns=NOW)
    assert (False, "an operator to resume it") == (stopped.update.awaits_pulse, update_wait_text(stopped.update))
    assert not rollout.abort(waits).awaits_pulse
    assert next_step(rollout.resume(stopped.update), service(), now_ns=NOW).update.awaits_pulse


def test_no_poll_is_needed_for_a_pulse() -> None:
    """A pulse wakes the workflow that waits for it; the SLA has to be polled."""
    waits = next_step(update(), service(), now_ns=NOW)
    assert not progress_of(waits.update, waits).look_again
    refused = next_step(update(count=3, pulsed_s=1), service() | {3: service_pod(3, state=PodState.LOST)}, 1, NOW)
    assert progress_of(refused.update, refused).look_again


def test_a_pulse() -> None:
    """The newest time counts; an ended update is not changed, and a step finds out whether it still waits."""
    waits = next_step(update(pulsed_s=9), service(), now_ns=NOW).update
    again = rollout.pulse(waits, NOW)
    assert (NOW, True) == (again.pulsed_ns, again.awaits_pulse)
    assert NOW == rollout.pulse(again, NOW - S).pulsed_ns
    ended = update(UpdateState.SUCCEEDED)
    assert ended == rollout.pulse(ended, NOW)


Moves = st.lists(st.tuples(st.sampled_from(["pulse", "wait", "come up"]), st.integers(0, 6)), max_size=40)


@given(st.integers(1, 8), st.integers(0, 3), st.integers(0, 5), Moves)
def test_it_continues_exactly_while_pulses_come(
    count: int, batch: int, pulse_s: int, moves: list[tuple[str, int]]
) -> None:
    """Instances begin only within the time of a pulse, for any order of pulses, pauses and pods; each update that
    awaits a pulse would continue with it; and with pulses all the time the update ends.
    """
    pods = service(count)
    one = update(count=count)
    one = replace(one, spec=UpdateSpec(batch_size=batch, pulse_s=pulse_s))
    now = last = 0
    for act, size in [*moves, *[("pulse", 0), ("come up", 8)] * (count + 1)]:
        if act == "wait":
            now += size * S
        elif act == "pulse":
            now += 1
            one, last = rollout.pulse(one, now), now
        else:
            for i in sorted(one.current)[: size + 1]:
                pods[i] = service_pod(i, 2)
        before = one.current
        step = next_step(one, pods, now_ns=now)
        is_fresh = not pulse_s or (last > 0 and now - last <= pulse_s * S)
        assert is_fresh or not step.update.current - before
        would = next_step(rollout.pulse(one, now + 1), pods, now_ns=now + 1).change
        assert step.update.awaits_pulse == (not is_fresh and would != ())
        one = step.update
        for i in step.change:
            pods[i] = service_pod(i, 2, state=PodState.PENDING, goal=PodState.RUNNING)
    assert UpdateState.SUCCEEDED is one.state
