"""The goal-state tables are total, and lead to the goal."""

from __future__ import annotations

import itertools

import pytest

from peloton.lifecycle.goal import (
    JobAction,
    PodAction,
    default_goal,
    default_pod_goal,
    next_job_action,
    next_pod_action,
)
from peloton.model.job import JOB_TERMINAL, JobState, JobType
from peloton.model.pod import ON_HOST, TERMINAL, PodState

GOALS = (PodState.RUNNING, PodState.SUCCEEDED, PodState.KILLED, PodState.DELETED)
RUN, DONE, KILL, DELETE = GOALS

POD_TABLE = """
state        RUNNING        SUCCEEDED     KILLED           DELETED
INITIALIZED  enqueue        enqueue       kill_unlaunched  kill_unlaunched
PENDING      none           none          kill_unlaunched  kill_unlaunched
READY        none           none          kill_unlaunched  kill_unlaunched
PLACING      none           none          kill_unlaunched  kill_unlaunched
PLACED       none           none          kill_unlaunched  kill_unlaunched
LAUNCHING    none           none          kill_unlaunched  kill_unlaunched
RESERVED     none           none          kill_unlaunched  kill_unlaunched
LAUNCHED     await_launch   await_launch  kill_on_host     kill_on_host
STARTING     await_launch   await_launch  kill_on_host     kill_on_host
RUNNING      none           none          kill_on_host     kill_on_host
PREEMPTING   none           none          kill_on_host     kill_on_host
KILLING      none           none          none             none
SUCCEEDED    retry_forever  none          none             delete
FAILED       retry_forever  retry         none             delete
LOST         retry_forever  retry         none             delete
KILLED       retry_forever  retry         none             delete
DELETED      none           none          none             none
UNKNOWN      invalid        invalid       invalid          invalid
"""

JOB_TABLE = """
state          RUNNING      SUCCEEDED    KILLED  DELETED
UNINITIALIZED  create_pods  create_pods  kill    kill
INITIALIZED    create_pods  create_pods  kill    kill
PENDING        none         none         kill    kill
RUNNING        none         none         kill    kill
KILLING        invalid      invalid      none    none
SUCCEEDED      none         rest         rest    delete
FAILED         none         rest         rest    delete
KILLED         none         rest         rest    delete
DELETED        rest         rest         rest    rest
UNKNOWN        invalid      invalid      invalid invalid
"""


def table(text: str) -> list[tuple[str, str, str]]:
    head, *rows = (line.split() for line in text.strip().splitlines())
    return [(row[0], goal, action) for row in rows for goal, action in zip(head[1:], row[1:], strict=True)]


@pytest.mark.parametrize(("state", "goal", "action"), table(POD_TABLE))
def test_the_pod_table(state: str, goal: str, action: str) -> None:
    """Each pair of state and goal has the action of the table."""
    assert PodAction(action) == next_pod_action(PodState(state), PodState(goal))


@pytest.mark.parametrize(("state", "goal", "action"), table(JOB_TABLE))
def test_the_job_table(state: str, goal: str, action: str) -> None:
    """Each pair of state and goal has the action of the table."""
    assert JobAction(action) == next_job_action(JobState(state), JobState(goal))


def test_the_tables_are_complete() -> None:
    """No state is missing from the tables above."""
    assert {s.value for s in PodState} == {row[0] for row in table(POD_TABLE)}
    assert {s.value for s in JobState} == {row[0] for row in table(JOB_TABLE)}


def test_the_functions_are_total() -> None:
    """Every pair has an answer, and goals that nothing steers for are invalid."""
    for state, goal in itertools.product(PodState, PodState):
        action = next_pod_action(state, goal)
        assert (goal not in (*GOALS, PodState.PREEMPTING)) <= (action is PodAction.INVALID)
    for job_state, job_goal in itertools.product(JobState, JobState):
        job_action = next_job_action(job_state, job_goal)
        assert (job_goal.value not in {g.value for g in GOALS}) <= (job_action is JobAction.INVALID)


def test_a_pod_that_is_to_end_is_led_there() -> None:
    """With goal KILLED there is an act for every state that has not ended and was not told yet."""
    for state in set(PodState) - TERMINAL - {PodState.KILLING, PodState.UNKNOWN}:
        expected = PodAction.KILL_ON_HOST if state in ON_HOST else PodAction.KILL_UNLAUNCHED
        assert expected == next_pod_action(state, PodState.KILLED)


@pytest.mark.parametrize("job_type", list(JobType))
def test_goals_of_a_type(job_type: JobType) -> None:
    """A batch job is to succeed, all others are to run; pods steer as their job does."""
    assert default_goal(job_type).value == default_pod_goal(job_type).value
    assert (default_goal(job_type) in JOB_TERMINAL) == (job_type is JobType.BATCH)
