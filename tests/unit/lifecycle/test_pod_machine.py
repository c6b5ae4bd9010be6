"""The pod machine's table: possible and impossible changes of a pod."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from peloton.lifecycle.pod_machine import TABLE, Event, next_pod
from peloton.lifecycle.pod_page import sources
from peloton.model.pod import ENDING_GOALS, ON_HOST, TERMINAL, HealthState, NextRun, PodRecord, PodState
from tests.unit.lifecycle.every_pod import GOALS, NOW, STATES, a_pod, parameters_for, pods_for

EVENTS = [event for event in Event if event is not Event.CREATE]
WAITING = frozenset({PodState.INITIALIZED, PodState.PENDING, PodState.READY})
ENDED = frozenset({PodState.SUCCEEDED, PodState.FAILED, PodState.LOST, PodState.KILLED})

STEPS = """
INITIALIZED  PENDING READY FAILED KILLED UNKNOWN
PENDING      READY INITIALIZED KILLED
READY        LAUNCHED PENDING INITIALIZED KILLED
LAUNCHED     STARTING RUNNING PREEMPTING KILLING SUCCEEDED FAILED LOST KILLED
STARTING     RUNNING PREEMPTING KILLING SUCCEEDED FAILED LOST KILLED
RUNNING      PREEMPTING KILLING SUCCEEDED FAILED LOST KILLED
PREEMPTING   RUNNING KILLING SUCCEEDED FAILED LOST KILLED
KILLING      SUCCEEDED FAILED LOST KILLED
SUCCEEDED    INITIALIZED UNKNOWN
FAILED       INITIALIZED UNKNOWN
LOST         INITIALIZED UNKNOWN
KILLED       INITIALIZED UNKNOWN
"""


@cache
def outcomes(event: Event) -> list[tuple[PodRecord, PodRecord]]:
    """Every pod that the event changes, before and after."""
    return [
        (pod, after)
        for given in parameters_for(event)
        for pod in pods_for(event)
        if (after := next_pod(pod, event, NOW, **given)) is not None
    ]


def test_every_event_has_its_rule() -> None:
    """The table has a rule for every event."""
    assert [*Event] == [*TABLE]


def test_the_steps_from_state_to_state() -> None:
    """A pod goes from state to state in these ways and in no other."""
    expected = {(row[0], to) for row in map(str.split, STEPS.strip().splitlines()) for to in row[1:]}
    found = {
        (before.state.value, after.state.value)
        for event in EVENTS
        for before, after in outcomes(event)
        if before.state is not after.state
    }

    assert expected == found


@pytest.mark.parametrize("event", EVENTS)
def test_every_row_decides_some_pod(event: Event) -> None:
    """Each row decides for some pod that no row before it matches, and is in the place where the page shows it."""
    decided: dict[int, set[PodState]] = {number: set() for number in range(len(TABLE[event].rows))}
    for given in parameters_for(event):
        for pod in pods_for(event):
            holds = (n for n, row in enumerate(TABLE[event].rows) if row.guard.holds(pod, {**given, "now_ns": NOW}))
            if (number := next(holds, None)) is not None:
                decided[number].add(pod.state)

    assert all(decided.values())
    assert all(states <= sources(TABLE[event].rows[number]) for number, states in decided.items())


@pytest.mark.parametrize("event", EVENTS)
def test_what_never_happens(event: Event) -> None:
    """Run never go back; no event leaves a next run in a pod that waits or runs, or in one that rests; a pod with a
    goal to end is neither queued nor launched; only a pod on a host is killed.
    """
    for before, after in outcomes(event):
        assert after.run_id >= before.run_id
        assert after.desired_run_id >= after.run_id
        if event in (Event.BEGIN_NEXT_RUN, Event.RERUN_WITH_GANG, Event.START, Event.UPDATE_START):
            assert before.state is after.state or (after.state, after.next_run) == (
                PodState.INITIALIZED,
                NextRun.NONE,
            )
        if after.state in (PodState.PENDING, PodState.READY, PodState.LAUNCHED) and after.state is not before.state:
            assert before.state in WAITING
            assert event is Event.ADMIT or after.goal not in ENDING_GOALS
        if after.state in (PodState.PREEMPTING, PodState.KILLING) and after.state is not before.state:
            assert before.state in ON_HOST
        if before.state in ON_HOST:
            assert after.state in ON_HOST or after.state in TERMINAL


@pytest.mark.parametrize("event", EVENTS)
def test_what_is_seen_has_a_revision(event: Event) -> None:
    """A visible event makes a new revision at its time; a quiet one changes neither state nor goal."""
    for before, after in outcomes(event):
        if not TABLE[event].is_quiet:
            assert (before.revision + 1, NOW) == (after.revision, after.updated_ns)
        elif event is not Event.FORGET:
            assert (before.state, before.goal, before.updated_ns) == (after.state, after.goal, after.updated_ns)


@pytest.mark.parametrize(
    ("next_run", "message", "queue_seq"),
    [
        (NextRun.REPLACE, "Initialize task", 7),
        (NextRun.RETRY, "Rescheduled after task terminated", 0),
        (NextRun.RELAUNCH, "Regenerate placement", 7),
    ],
)
def test_each_cause_of_a_run_has_its_message(next_run: NextRun, message: str, queue_seq: int) -> None:
    """The message is the reason of the run for clients; only a failed pod loses its place in the queue."""
    pod = a_pod(0, PodState.FAILED, PodState.SUCCEEDED, next_run=next_run, queue_seq=7)
    again = next_pod(pod, Event.BEGIN_NEXT_RUN, NOW)

    assert again is not None
    assert (PodState.INITIALIZED, 5, message, queue_seq) == (again.state, again.run_id, again.message, again.queue_seq)
    assert HealthState.DISABLED is again.health
    assert next_pod(replace(pod, due_ns=NOW + 1), Event.BEGIN_NEXT_RUN, NOW) is None


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("state", STATES)
def test_a_pod_that_is_to_end_is_led_there(state: PodState, goal: PodState) -> None:
    """A stopped pod in any state has events that end it, or kill it on its host, until it has ended."""
    given = {"message": "", "reason": "", "why": None, "by": ""}
    pod = a_pod(0, state, goal)
    pod = next_pod(pod, Event.STOP, NOW, **given) or pod
    for event in (Event.END_UNQUEUED, Event.LEAVE_QUEUE, Event.KILL):
        pod = next_pod(pod, event, NOW) or pod

    if goal is PodState.DELETED and state is PodState.INITIALIZED:
        forgotten = next_pod(pod, Event.FORGET, NOW)
        assert forgotten is not None
        assert PodState.UNKNOWN is forgotten.state
    else:
        assert (state if state in ENDED else PodState.KILLED if state in WAITING else PodState.KILLING) == pod.state
