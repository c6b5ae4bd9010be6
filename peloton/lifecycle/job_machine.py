"""State machine of a job as one table: events that change its goal and state.

The first row of an event whose guard holds decides; without one nothing changes. ``lifecycle.job.roll_up`` derives the
state from the counts of pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any

from peloton.lifecycle.goal import default_goal
from peloton.lifecycle.guards import ALWAYS, Column, Differs, In, Parameter, Plus, Row, decide
from peloton.model.job import JOB_TERMINAL, JobRecord, JobState, JobType

TO_BE_DELETED = "job is going to be deleted"
"""Error for starting or stopping a service that is being deleted."""


class JobEvent(StrEnum):
    STOP = "stop"
    START = "start"
    START_POD = "start a pod"
    GROW = "grow"
    START_SERVICE = "start a service"
    STOP_SERVICE = "stop a service"
    DELETE_SERVICE = "delete a service"
    START_BY_UPDATE = "start by an update"
    FORGET = "forget"


_S = JobState
ENDED = In("state", JOB_TERMINAL)
INITIALIZED = In("state", frozenset({_S.INITIALIZED}))
IS_BATCH = In("type", frozenset({JobType.BATCH}))
STOPS = In("goal", frozenset({_S.KILLED, _S.DELETED}))
GOAL_DELETED = In("goal", frozenset({_S.DELETED}))
STRAYS = Differs("goal", Parameter("own_goal"))  # the goal differs from the default of its type

OWN_GOAL = {"goal": Parameter("own_goal")}
ALIVE = {"completed_ns": 0}
STEERED = {"desired_state_version": Plus(Column("desired_state_version"), 1), "revision": Plus(Column("revision"), 1)}
GROWN = {"instance_count": Parameter("instance_count"), "config_version": Plus(Column("config_version"), 1)}

# fmt: off
JOB_TABLE: Mapping[JobEvent, tuple[Row[JobState], ...]] = {
    JobEvent.STOP: (Row(~STOPS & ~ENDED, _S.KILLING, STEERED | ALIVE, goal=_S.KILLED),),
    JobEvent.START: (Row(~GOAL_DELETED & STRAYS & ~(ENDED & IS_BATCH), _S.PENDING, STEERED | ALIVE | OWN_GOAL),),
    JobEvent.START_POD: (
        Row(INITIALIZED & STRAYS, None, ALIVE | OWN_GOAL),
        Row(STRAYS | ENDED, _S.PENDING, ALIVE | OWN_GOAL),
    ),
    JobEvent.GROW: (Row(~ENDED, _S.INITIALIZED, GROWN),),
    JobEvent.START_SERVICE: (Row(~GOAL_DELETED, _S.PENDING, STEERED | ALIVE, goal=_S.RUNNING),),
    JobEvent.STOP_SERVICE: (
        Row(~GOAL_DELETED & ENDED, None, STEERED, goal=_S.KILLED),
        Row(~GOAL_DELETED, _S.KILLING, STEERED | ALIVE, goal=_S.KILLED),
    ),
    JobEvent.DELETE_SERVICE: (  # its workflow controls it until its pods have been deleted
        Row(ALWAYS, _S.KILLING, STEERED | ALIVE, goal=_S.DELETED),
    ),
    JobEvent.START_BY_UPDATE: (
        Row(ENDED, _S.PENDING, ALIVE, goal=_S.RUNNING),
        Row(ALWAYS, None, ALIVE, goal=_S.RUNNING),
    ),
    JobEvent.FORGET: (Row(ENDED, _S.DELETED, goal=_S.DELETED),),
}
# fmt: on


def next_job(job: JobRecord, event: JobEvent, now_ns: int, **given: Any) -> JobRecord:
    """Return the job after the event; the same object if nothing changes."""
    changes = decide(JOB_TABLE[event], job, {**given, "own_goal": default_goal(job.type)})
    return job if changes is None else replace(job, **changes, updated_ns=now_ns)
