"""The rolling update: each step on drawn situations, and whole rollouts with random pods."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.lifecycle import rollout, sla
from peloton.lifecycle.rollout import Stage, next_step, stage
from peloton.lifecycle.rollout_pods import AtHand
from peloton.model.pod import HealthState, PodRecord, PodState
from peloton.model.update import UpdateRecord, UpdateSpec, UpdateState, UpdateType
from peloton.model.update_text import in_flight_text, instances_text, update_wait_text
from tests.unit.lifecycle.pods import JOB, service_pod

FORWARD, BACKWARD, PAUSED = UpdateState.ROLLING_FORWARD, UpdateState.ROLLING_BACKWARD, UpdateState.PAUSED
KILLED = PodState.KILLED


def update(spec: UpdateSpec | None = None, type: UpdateType = UpdateType.UPDATE, **changes: Any) -> UpdateRecord:
    sets = {k: frozenset(changes.pop(k, ())) for k in ("added", "updated", "removed", "current", "done", "failed")}
    fields: dict[str, Any] = {"state": FORWARD, "config_version": 2, "prev_config_version": 1, **changes, **sets}
    return UpdateRecord(update_id="u", job_id=JOB, type=type, spec=spec or UpdateSpec(), **fields)


def service(count: int, version: int = 1) -> dict[int, PodRecord]:
    return {i: service_pod(i, version) for i in range(count)}


NEW = service_pod(0, 2)


@pytest.mark.parametrize(
    ("type", "pod", "expected"),
    [
        (UpdateType.UPDATE, NEW, Stage.COMPLETE),
        (UpdateType.UPDATE, replace(NEW, health=HealthState.HEALTHY), Stage.COMPLETE),
        (UpdateType.UPDATE, replace(NEW, health=HealthState.HEALTH_UNKNOWN), Stage.IN_PROGRESS),
        (UpdateType.UPDATE, replace(NEW, config_version=1), Stage.IN_PROGRESS),
        (UpdateType.UPDATE, replace(NEW, state=PodState.STARTING), Stage.IN_PROGRESS),
        (UpdateType.UPDATE, replace(NEW, state=PodState.FAILED, failure_count=3), Stage.FAILED),
        (UpdateType.UPDATE, replace(NEW, state=PodState.FAILED, failure_count=2), Stage.IN_PROGRESS),
        (UpdateType.UPDATE, replace(NEW, failure_count=3), Stage.COMPLETE),
        (UpdateType.UPDATE, replace(NEW, state=KILLED, goal=KILLED), Stage.COMPLETE),
        (UpdateType.STOP, replace(NEW, state=KILLED, goal=KILLED), Stage.COMPLETE),
        (UpdateType.STOP, replace(NEW, goal=KILLED), Stage.IN_PROGRESS),
        (UpdateType.STOP, NEW, Stage.COMPLETE),
        (UpdateType.STOP, replace(NEW, goal=KILLED, failure_count=9), Stage.IN_PROGRESS),
        (UpdateType.UPDATE, None, Stage.IN_PROGRESS),
    ],
)
def test_stages(type: UpdateType, pod: PodRecord | None, expected: Stage) -> None:
    """A stage is checked in the order complete, failed, in progress."""
    assert expected is stage(update(UpdateSpec(max_instance_attempts=3), type, updated={0}), 0, pod)


def test_a_removed_instance_is_complete_when_it_is_gone() -> None:
    """A removed instance is in progress until its pod is gone."""
    one = update(removed={0})
    assert (Stage.COMPLETE, Stage.IN_PROGRESS) == (stage(one, 0, None), stage(one, 0, NEW))


def test_the_order_of_a_batch() -> None:
    """A batch has added instances first, then updated ones (unavailable, killed, available), then removed ones."""
    pods = service(6)
    pods[1] = replace(pods[1], state=PodState.PENDING)
    pods[2] = replace(pods[2], goal=KILLED, state=KILLED)
    step = next_step(update(UpdateSpec(batch_size=4), added={9}, updated={0, 1, 2, 3}, removed={4, 5}), pods)
    assert ((9,), (1, 2, 0), ()) == (step.add, step.change, step.remove)
    assert {9, 1, 2, 0} == step.update.current


def test_who_ends_a_batch() -> None:
    """Instances that hosts run are distinguished from added, waiting and ended ones."""
    pods = service(5)
    pods[1] = replace(pods[1], state=PodState.READY)
    pods[2] = replace(pods[2], state=PodState.FAILED)
    pods[3] = replace(pods[3], state=PodState.KILLING)
    step = next_step(update(added={9}, updated={0, 1, 2, 3}, removed={4}), pods)
    progress = rollout.progress_of(step.update, step)
    assert (2, 4) == (progress.kill_count, progress.rest_count)


def moves(one: UpdateRecord, pods: dict[int, PodRecord], sla_maximum: int = 0, now_ns: int = 0) -> bool:
    return rollout.may_move(one, AtHand(pods).count, sla_maximum, now_ns)


def test_it_moves_when_an_instance_is_done() -> None:
    """The update moves when an instance is done, when it is new, or when its batch is not full; an unchanged batch
    requires no step.
    """
    full = next_step(update(UpdateSpec(batch_size=1), updated=range(4)), service(4)).update
    assert not moves(full, service(4) | {0: service_pod(0, 2, state=PodState.STARTING)})
    assert moves(full, service(4) | {0: NEW})
    assert moves(update(updated={0}, state=UpdateState.INITIALIZED), service(1))
    assert moves(replace(full, spec=UpdateSpec(batch_size=2)), service(4))


def test_batch_zero_is_everything_at_once() -> None:
    """A batch of zero has no bound."""
    step = next_step(update(updated=range(50)), service(50))
    assert 50 == len(step.change) == len(step.update.current)


def test_a_full_batch_waits() -> None:
    """A full batch begins no instance; the wait says so."""
    pods = service(4) | {0: service_pod(0, 2, state=PodState.STARTING)}
    step = next_step(update(UpdateSpec(batch_size=1), updated=range(4), current={0}), pods)
    assert ((), "instance 0 to run and be healthy") == (step.change, update_wait_text(step.update))
    assert update_wait_text(step.update) == in_flight_text(step.update)


@given(st.sets(st.integers(0, 60), min_size=1))
def test_instances_are_named_in_short(instances: set[int]) -> None:
    """A text names at most three ranges with both ends, first ones first, and the number of the others."""
    text, _, more = instances_text(instances).removeprefix("instances ").removeprefix("instance ").partition(" and ")
    named = [range(int(part.partition("-")[0]), int(part.rpartition("-")[2]) + 1) for part in text.split(", ")]
    assert sorted(instances)[: sum(map(len, named))] == [i for one in named for i in one]
    assert len(instances) == sum(map(len, named)) + int(more.removesuffix(" more") or 0)
    assert all(before[-1] + 1 < after[0] for before, after in itertools.pairwise(named))


def test_what_is_waited_for_is_in_words() -> None:
    """Instances that start and instances that end are named separately, a few ranges of each."""
    one = update(updated=range(10), removed={10}, current={0, 2, 4, 6, 7, 9, 10})
    assert "instances 0, 2, 4 and 3 more to run and be healthy and for instance 10 to end" == (in_flight_text(one))
    stop = update(type=UpdateType.STOP, updated=range(3), current={0, 1})
    assert "instances 0-1 to end" == in_flight_text(stop)
    assert "" == in_flight_text(replace(one, current=frozenset()))


def test_done_stays_done() -> None:
    """A failure of an instance after it was done does not count for the update."""
    pods = {0: service_pod(0, 2, state=PodState.FAILED, failure_count=5)}
    step = next_step(update(UpdateSpec(max_instance_attempts=1), updated={0}, done={0}), pods)
    assert UpdateState.SUCCEEDED is step.update.state


def test_failures_under_the_limit_end_well() -> None:
    """Fewer failed instances than allowed do not fail the update."""
    pods = service(3, 2) | {0: service_pod(0, 2, state=PodState.FAILED, failure_count=1)}
    spec = UpdateSpec(max_instance_attempts=1, max_failure_instances=2)
    step = next_step(update(spec, updated=range(3), current=range(3)), pods)
    assert (UpdateState.SUCCEEDED, frozenset({0}), frozenset({1, 2})) == (
        step.update.state,
        step.update.failed,
        step.update.done,
    )


@pytest.mark.parametrize(
    ("rollback", "state", "rolls_back", "after"),
    [
        (False, FORWARD, False, UpdateState.FAILED),
        (True, FORWARD, True, FORWARD),
        (True, BACKWARD, False, UpdateState.FAILED),
    ],
)
def test_too_many_failures(rollback: bool, state: UpdateState, rolls_back: bool, after: UpdateState) -> None:
    """Too many failures roll the update back if it was requested and is not rolling back already; else the update
    fails.
    """
    spec = UpdateSpec(rollback_on_failure=rollback, max_instance_attempts=1, max_failure_instances=1, batch_size=1)
    pods = service(3) | {0: service_pod(0, 2, state=PodState.FAILED, failure_count=1)}
    step = next_step(update(spec, updated=range(3), current={0}, state=state), pods)
    assert (rolls_back, after, ()) == (step.rolls_back, step.update.state, step.change)


def test_a_paused_update_tracks_and_begins_nothing() -> None:
    """A paused update tracks instances in flight, and begins no more."""
    pods = service(3) | {0: NEW}
    step = next_step(update(UpdateSpec(batch_size=1), updated=range(3), current={0}, state=PAUSED), pods)
    assert (frozenset({0}), (), PAUSED) == (step.update.done, step.change, step.update.state)


def test_pause_resume_abort() -> None:
    """A resumed update has its former state; an ended update does not change."""
    one = update(state=BACKWARD)
    stopped = rollout.pause(one)
    ended = update(state=UpdateState.SUCCEEDED)
    assert (PAUSED, BACKWARD) == (stopped.state, rollout.resume(stopped).state)
    assert UpdateState.ABORTED is rollout.abort(stopped).state
    assert [ended] * 3 == [rollout.pause(ended), rollout.resume(ended), rollout.abort(ended)]
    assert rollout.pause(stopped) == stopped
    assert ("an operator to resume it", "") == (update_wait_text(stopped), update_wait_text(rollout.resume(stopped)))


def test_races_of_the_instances() -> None:
    """Races are resolved: an added instance that exists is changed, an updated one that is gone is added."""
    step = next_step(update(added={0}, updated={1}), {0: service_pod(0)})
    assert ((1,), (0,)) == (step.add, step.change)


def test_the_stricter_choice_keeps_to_the_sla() -> None:
    """The SLA of one limits a batch of three to one; instances that do not serve do not count."""
    pods = service(5)
    step = next_step(update(UpdateSpec(batch_size=3), updated=range(5)), pods, sla_maximum=1)
    assert ((0,), "the SLA: no more than 1 instances may be unavailable, 0 are, 2 must wait") == (
        step.change,
        update_wait_text(step.update),
    )
    pods[4] = replace(pods[4], state=PodState.PENDING)
    step = next_step(update(UpdateSpec(batch_size=3), updated=range(5)), pods, sla_maximum=1)
    assert ((4,), "the SLA: 1 of at most 1 instances are unavailable already") == (
        step.change,
        update_wait_text(step.update),
    )


def test_difference() -> None:
    """Added: no pod; removed: beyond the count; updated: other configuration, or still on its way; else unchanged."""
    pods = service(5) | {1: service_pod(1, 1, desired_config_version=2)}
    changed = {(i, 1): i == 2 for i in range(5)}
    found = rollout.difference(pods, 4, 3, changed)
    assert [set(), {1, 2}, {4}, {0, 3}] == [found.added, found.updated, found.removed, found.unchanged]
    assert {5, 6} == rollout.difference(pods, 7, 3, changed | {(4, 1): False}).added


def land(pods: dict[int, PodRecord], step: rollout.Step) -> None:
    """Apply a step to the pods, as storage does, in short."""
    version = step.update.config_version
    for i in (*step.add, *step.change):
        pods[i] = service_pod(i, version, state=PodState.PENDING, goal=PodState.RUNNING)
    for i in step.remove:
        pods[i] = replace(pods[i], goal=PodState.DELETED)


@given(
    st.integers(0, 12), st.integers(0, 12), st.integers(0, 5), st.integers(0, 4), st.data(),
)  # fmt: skip
def test_a_rollout_ends_and_keeps_its_batch(
    before: int, after: int, batch: int, maximum: int, data: st.DataObject
) -> None:
    """Instances in flight are never more than the batch, missing ones never more than the SLA and the batch allow, and
    in the end every instance has the new configuration, in whatever order pods start.
    """
    pods = service(before)
    found = rollout.difference(pods, after, 2, {(i, 1): True for i in range(before)})
    one = update(
        UpdateSpec(batch_size=batch),
        added=found.added, updated=found.updated, removed=found.removed, state=UpdateState.INITIALIZED,
    )  # fmt: skip
    for _ in range(200):
        step = next_step(one, pods, maximum)
        one = step.update
        if not one.is_active:
            break
        land(pods, step)
        assert len(one.current) <= (batch or before + after)
        if maximum:
            away = {i for i in sla.missing_of(pods) if i < before}
            assert len(away) <= maximum
        for i in data.draw(st.sets(st.sampled_from(sorted(one.current)), min_size=1)):
            if i in one.removed:
                pods.pop(i, None)
            else:
                pods[i] = service_pod(i, 2)
    assert UpdateState.SUCCEEDED is one.state
    assert dict.fromkeys(range(after), 2) == {i: pod.config_version for i, pod in pods.items()}
