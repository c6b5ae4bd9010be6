"""Goals and states that events set for a job."""

from __future__ import annotations

from itertools import product

import pytest

from peloton.lifecycle.goal import default_goal
from peloton.lifecycle.job_machine import JOB_TABLE, JobEvent, next_job
from peloton.model.ids import JobId, RespoolId
from peloton.model.job import JOB_TERMINAL, JobRecord, JobState, JobType, SlaSpec

NOW = 1_700_000_000_000_000_000
STATES = (
    JobState.INITIALIZED,
    JobState.PENDING,
    JobState.RUNNING,
    JobState.KILLING,
    JobState.SUCCEEDED,
    JobState.FAILED,
    JobState.KILLED,
)
GOALS = (JobState.KILLED, JobState.DELETED)

TABLE = """
event            type     goal     state        becomes
stop             batch    own      alive        KILLING/KILLED
stop             batch    own      ended        -
stop             batch    other    any          -
stop             service  own      alive        KILLING/KILLED
stop             service  own      ended        -
stop             service  other    any          -
start            any      own      any          -
start            batch    KILLED   alive        PENDING/own
start            batch    KILLED   ended        -
start            service  KILLED   any          PENDING/own
start            any      DELETED  any          -
start_pod        any      own      alive        -
start_pod        any      own      ended        PENDING/own
start_pod        any      other    INITIALIZED  INITIALIZED/own
start_pod        any      other    later        PENDING/own
grow             any      any      alive        INITIALIZED/same
grow             any      any      ended        -
start_service    service  own      any          PENDING/own
start_service    service  KILLED   any          PENDING/own
start_service    service  DELETED  any          -
stop_service     service  own      alive        KILLING/KILLED
stop_service     service  own      ended        same/KILLED
stop_service     service  KILLED   alive        KILLING/KILLED
stop_service     service  KILLED   ended        same/KILLED
stop_service     service  DELETED  any          -
delete_service   service  any      any          KILLING/DELETED
start_by_update  service  any      alive        same/RUNNING
start_by_update  service  any      ended        PENDING/RUNNING
forget           any      any      alive        -
forget           any      any      ended        DELETED/DELETED
"""


def a_job(job_type: JobType, state: JobState, goal: JobState) -> JobRecord:
    job_id, pool = JobId("91b1b8e5-2ba8-11e7-bc23-0242ac11000d"), RespoolId("pool")
    return JobRecord(
        job_id, "train", job_type, "team", pool, 4, SlaSpec(), state, goal, completed_ns=7, updated_ns=NOW - 1
    )


def is_meant(word: str, job: JobRecord) -> bool:
    own = default_goal(job.type)
    return {
        "any": True,
        job.type.value.lower(): True,
        "own": job.goal is own,
        "other": job.goal is not own,
        "alive": job.state not in JOB_TERMINAL,
        "ended": job.state in JOB_TERMINAL,
        "later": job.state is not JobState.INITIALIZED,
    }.get(word, word in (job.state, job.goal))


def predict_change(becomes: str, job: JobRecord) -> tuple[str, str] | None:
    if becomes == "-":
        return None
    state, goal = becomes.split("/")
    goals = {"own": default_goal(job.type).value, "same": job.goal.value}
    return job.state.value if state == "same" else state, goals.get(goal, goal)


@pytest.mark.parametrize("line", TABLE.strip().splitlines()[1:])
def test_the_table(line: str) -> None:
    """Each event has the effect of the table above, in every job that the line is for."""
    event, job_type, goal, state, becomes = line.split()
    found = 0
    for kind, at, own_or_not in product((JobType.BATCH, JobType.SERVICE), STATES, (None, *GOALS)):
        job = a_job(kind, at, own_or_not or default_goal(kind))
        goal_is_meant = is_meant(goal, job) if goal in ("any", "own", "other") else goal == job.goal
        state_is_meant = is_meant(state, job) if state in ("any", "alive", "ended", "later") else state == job.state
        if not (is_meant(job_type, job) and goal_is_meant and state_is_meant):
            continue
        found += 1
        after = next_job(job, JobEvent[event.upper()], NOW, instance_count=6)
        expected = predict_change(becomes, job)

        assert expected == (None if after is job else (after.state.value, after.goal.value)), job
        if after is not job:
            assert NOW == after.updated_ns
            assert after.completed_ns == (0 if after.state not in JOB_TERMINAL and event != "grow" else 7)
    assert found


def test_every_event_is_in_both_tables() -> None:
    """The table above has every event, and so has the machine's."""
    assert [event.name.lower() for event in JobEvent] == [
        *dict.fromkeys(line.split()[0] for line in TABLE.strip().splitlines()[1:])
    ]
    assert [*JobEvent] == [*JOB_TABLE]


@pytest.mark.parametrize("event", [JobEvent.STOP, JobEvent.START_SERVICE, JobEvent.DELETE_SERVICE])
def test_what_people_ask_for_is_a_new_version(event: JobEvent) -> None:
    """A request of a user changes the version and the revision of the job."""
    before = a_job(JobType.SERVICE, JobState.RUNNING, JobState.RUNNING)
    after = next_job(before, event, NOW)

    assert (before.desired_state_version + 1, before.revision + 1) == (after.desired_state_version, after.revision)
