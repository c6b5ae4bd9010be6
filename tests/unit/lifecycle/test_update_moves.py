"""Steps of an update, predicted from counts: never missed, and rarely without effect."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.lifecycle import pod_terms, rollout, sla
from peloton.lifecycle.rollout_pods import AtHand, Coming
from peloton.lifecycle.sla import Availability
from peloton.model.pod import HealthState, PodState, Termination, TerminationReason
from peloton.model.update import UpdateRecord, UpdateSpec, UpdateState, UpdateType
from peloton.model.update_text import update_wait_text
from tests.nightly import examples
from tests.unit.lifecycle.every_pod import GOALS, STATES
from tests.unit.lifecycle.pods import JOB, service_pod

COUNT = 5
NOW = 1_000 * 10**9
TAKEN_DOWN = Termination(TerminationReason.KILLED_FOR_UPDATE)

pod_fields = st.fixed_dictionaries(
    {
        "state": st.sampled_from([PodState.RUNNING, PodState.RUNNING, PodState.PENDING, PodState.KILLED]),
        "goal": st.sampled_from([PodState.RUNNING, PodState.RUNNING, PodState.KILLED, PodState.DELETED]),
        "desired_run_id": st.sampled_from([1, 1, 2]),
        "config_version": st.integers(1, 2),
        "desired_config_version": st.integers(1, 2),
        "health": st.sampled_from([HealthState.DISABLED, HealthState.HEALTH_UNKNOWN]),
        "failure_count": st.integers(0, 2),
        "termination": st.sampled_from([None, None, TAKEN_DOWN]),
    }
)
serving: dict[str, Any] = {"config_version": 1, "desired_config_version": 1}
updated: dict[str, Any] = {"config_version": 2, "desired_config_version": 2}
away = serving | {"state": PodState.LOST}
kinds = st.one_of(st.sampled_from([serving, serving, updated, away]), pod_fields)
"""Kinds of pods, as fields of a pod."""
moments = st.tuples(
    st.dictionaries(st.integers(0, COUNT), kinds, max_size=2),  # pods that have become another kind
    st.sampled_from([0, 0, 1, 10]),  # seconds that have passed
    st.booleans(),  # a pulse has come
    st.sampled_from([True, True, False]),  # the step is taken
)
specs = st.builds(
    UpdateSpec,
    batch_size=st.sampled_from([0, 1, 2, 2]),
    rollback_on_failure=st.booleans(),
    max_instance_attempts=st.sampled_from([0, 0, 2]),
    max_failure_instances=st.sampled_from([0, 0, 2]),
    pulse_s=st.sampled_from([0, 0, 5]),
)
states = st.sampled_from([UpdateState.INITIALIZED, UpdateState.ROLLING_BACKWARD, UpdateState.PAUSED])


@st.composite
def updates(draw: st.DrawFn) -> UpdateRecord:
    """Each instance is added, updated, removed or unchanged."""
    parts = draw(st.lists(st.sampled_from(["updated", "updated", "updated", "added", "removed", ""]), max_size=COUNT))
    sets: dict[str, Any] = {
        part: frozenset(i for i, mine in enumerate(parts) if mine == part) for part in {*parts} - {""}
    }
    spec, state, type_ = draw(specs), draw(states), draw(st.sampled_from(UpdateType))
    return UpdateRecord("u", JOB, type_, spec, state, 2, 1, prev_state=UpdateState.ROLLING_FORWARD, **sets)


class Whole(AtHand):
    """Pods that return every instance to begin, however few of them the SLA would allow."""

    def coming(self, update: UpdateRecord, limit: int) -> Coming:
        return super().coming(update, limit if update.spec.batch_size else COUNT)


@settings(max_examples=examples(400))
@given(updates(), st.lists(moments, min_size=2, max_size=6), st.integers(0, 2))
def test_counts_never_miss_a_step(update: UpdateRecord, life: list[Any], maximum: int) -> None:
    """Count predict the changes of the whole next step at each moment of an update. They err on the safe side alone,
    and only where the SLA blocks a step while instances wait to be removed.
    """
    pods, now_ns = {i: service_pod(i) for i in range(COUNT)}, NOW
    for changed, seconds, is_pulsed, is_taken in life:
        pods |= {i: service_pod(i, **fields) for i, fields in changed.items()}
        now_ns += seconds * 10**9
        update = rollout.pulse(update, now_ns) if is_pulsed else update
        step = rollout.next_step(update, pods, maximum, now_ns)
        assert step == rollout.next_step(update, Whole(pods), maximum, now_ns)
        expected = step.rolls_back or step.update != update
        actual = rollout.may_move(update, AtHand(pods).count, maximum, now_ns)

        assert actual or not expected
        assert actual == expected or (maximum and update.removed - update.current - update.done - update.failed)
        if is_taken:
            update = step.update
            pods = {i: pod for i, pod in pods.items() if i not in step.remove}


@settings(max_examples=examples(200))
@given(pod_fields, st.sampled_from(STATES), st.sampled_from(GOALS), st.sampled_from(TerminationReason))
def test_what_is_counted_is_what_the_sla_reads(
    fields: dict[str, Any], state: PodState, goal: PodState, why: TerminationReason
) -> None:
    """Conditions on availability are ``availability`` and ``is_missing``, for every pod."""
    termination = Termination(why) if fields["termination"] else None
    pod = service_pod(0, **fields | {"state": state, "goal": goal, "termination": termination})

    assert (sla.availability(pod) is Availability.AVAILABLE) == pod_terms.AVAILABLE.holds(pod, {})
    assert sla.is_missing(pod) == pod_terms.MISSING.holds(pod, {})


def test_a_pulse_that_came_and_went_needs_no_step() -> None:
    """The text of the wait follows the pulse that expired before a step was taken; the update itself is unchanged."""
    spec = UpdateSpec(batch_size=1, pulse_s=5)
    update = UpdateRecord("u", JOB, UpdateType.UPDATE, spec, UpdateState.ROLLING_FORWARD, 2, 1, updated=frozenset({0}))
    pods = {0: service_pod(0)}
    waits = rollout.next_step(update, pods, now_ns=NOW).update
    went = rollout.pulse(waits, NOW - 6 * 10**9)

    assert waits.awaits_pulse
    assert not rollout.may_move(waits, AtHand(pods).count, now_ns=NOW)
    assert not rollout.may_move(went, AtHand(pods).count, now_ns=NOW)
    assert ("its first pulse", "a pulse: none has come for 5 s") == (update_wait_text(waits), update_wait_text(went))
