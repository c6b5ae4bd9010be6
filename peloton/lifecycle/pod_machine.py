"""State machine of a pod as one table: the transitions of each event, their writes, and the actors that may cause them.

``TABLE`` is the complete definition. ``next_pod`` evaluates it on one record; ``services/storage/pods/writes.py``
compiles it to one UPDATE per event; ``docs/pod-states.md`` is generated from it. The first row of an event whose guard
holds decides; without one nothing changes. A pod that does not exist is UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from operator import attrgetter
from typing import Any

from peloton.lifecycle.guards import ALWAYS, Column, Flag, Parameter, Row
from peloton.lifecycle.pod_terms import (
    ADOPTED,
    ADOPTS,
    ALIVE,
    ANOTHER_RUN,
    ASKED_TO_END,
    BACKOFF,
    BORN,
    BOUND_ELSEWHERE,
    CONFIG_OUTDATED,
    DIFFERS,
    DUE,
    ENDED,
    ENDED_UNLAUNCHED,
    EVICTED_AS,
    EVICTED_BY_CLUSTER,
    FACTS,
    GOAL_ALIVE,
    GOAL_DELETED,
    GOAL_ENDED,
    GONE,
    HAS_NO_NEXT_RUN,
    HAS_PLACE,
    HOSTED,
    IN_QUEUE,
    INITIALIZED,
    KILLED_UNLAUNCHED,
    KILLING,
    LAST,
    LATEST_RUN,
    LAUNCHABLE,
    LAUNCHED,
    LAUNCHED_THERE,
    LEAVING,
    LOST,
    LOST_STOPPED,
    MESSAGE,
    NEW_RUN,
    NEXT_RUN_ID,
    NO_DESIRED_HOST,
    NO_NEXT_RUN,
    NO_PLACE,
    NO_PREFERRED_HOST,
    NO_TERMINATION,
    NOT_RUNNING_YET,
    NOW,
    NOWHERE,
    NUMBERING_RESUMED,
    ON_REQUEST,
    OTHER_WORDS,
    OVERDUE,
    PENDING,
    QUEUED,
    READY,
    REASON,
    RELAUNCHES,
    REMOVED,
    REPLACED,
    RESTARTED,
    RETRIES,
    REVIVABLE,
    RUN_ENDED,
    RUN_RESTARTED,
    RUN_SUPERSEDED,
    RUNNING,
    SAME_VERSION,
    STARTED,
    STARTING,
    STAYING,
    STOPPED_UNLAUNCHED,
    TAKES_CONFIG,
    THERE,
    TIMED,
    UNQUEUED_END,
    UNSTARTED,
    UNTHROTTLED,
    UNWANTED,
    UPDATE_STARTED,
    UPDATE_STOPPED,
    WAITS_ON_HOST,
    WHY,
    WORDS,
)
from peloton.lifecycle.retry import THROTTLED_MESSAGE
from peloton.model.ids import JobId
from peloton.model.making import maker
from peloton.model.pod import PodRecord, PodState


class Event(StrEnum):
    CREATE = "create"
    SET_FACTS = "set facts"
    RESUME_NUMBERING = "resume numbering"
    ADOPT = "adopt"
    FORGET = "forget"
    ENQUEUE = "enqueue"
    ENQUEUE_GANG = "enqueue gang"
    REFUSE = "refuse"
    ADMIT = "admit"
    SKIP_QUEUE = "skip queue"
    LEAVE_QUEUE = "leave queue"
    UNADMIT = "unadmit"
    REQUEUE = "requeue"
    BACK_OFF = "back off"
    REQUEUE_GANG = "requeue gang"
    LAUNCH = "launch"
    KILL = "kill"
    EVICT = "evict"
    EVICT_FINAL = "final evict"
    DISRUPT = "disrupt"
    MOVE = "move"
    REPORT_LAUNCHED = "report LAUNCHED"
    REPORT_STARTING = "report STARTING"
    REPORT_RUNNING = "report RUNNING"
    REPORT_SUCCEEDED = "report SUCCEEDED"
    REPORT_FAILED = "report FAILED"
    REPORT_LOST = "report LOST"
    REPORT_KILLED = "report KILLED"
    RUN_AGAIN = "run again"
    BEGIN_NEXT_RUN = "begin next run"
    THROTTLE = "throttle"
    END_UNQUEUED = "end unqueued"
    EXCEED_DEADLINE = "exceed deadline"
    RERUN_WITH_GANG = "rerun with gang"
    STOP = "stop"
    START = "start"
    RESTART = "restart"
    RELABEL = "relabel"
    REMOVE = "remove"
    KEEP = "keep"
    REVIVE = "revive"
    STAY_ON_HOST = "stay on host"
    LEAVE_HOST = "leave host"
    UPDATE = "update"
    UPDATE_START = "update: start"
    UPDATE_STOP = "update: stop"


class Actor(StrEnum):
    """Component and operation that writes a pod."""

    API = "api"
    CREATION = "worker, creating pods"
    SETTLE = "worker, settling"
    ROLLOUT = "worker, rolling out an update"
    RESMGR = "resmgr"
    HOSTMGR = "hostmgr"


@dataclass(frozen=True, slots=True)
class Rule:
    """Actors and rows of an event. ``is_quiet``: no pod event is written and the revision does not change, because
    another event follows or clients do not see the change."""

    by: frozenset[Actor]
    rows: tuple[Row[PodState], ...]
    is_quiet: bool


def _rule(by: set[Actor], *rows: Row[PodState]) -> Rule:
    return Rule(frozenset(by), rows, False)


def _quiet_rule(by: set[Actor], *rows: Row[PodState]) -> Rule:
    return Rule(frozenset(by), rows, True)


# -- the table -----------------------------------------------------------------------------------------------------

_S = PodState
_API, _CREATION, _SETTLE, _ROLLOUT = Actor.API, Actor.CREATION, Actor.SETTLE, Actor.ROLLOUT
_RESMGR, _HOSTMGR = Actor.RESMGR, Actor.HOSTMGR

# fmt: off
TABLE: Mapping[Event, Rule] = {
    # Creation and deletion.
    Event.CREATE: _rule(
        {_CREATION, _ROLLOUT},
        Row(NOWHERE & Flag("is_ending"), _S.KILLED, BORN | KILLED_UNLAUNCHED, goal=_S.KILLED),
        Row(NOWHERE, _S.INITIALIZED, BORN, goal=Parameter("goal"), health=Parameter("initial_health")),
    ),
    Event.SET_FACTS: _quiet_rule(
        {_CREATION, _ROLLOUT},
        Row(INITIALIZED, None, FACTS, health=Parameter("initial_health")),
        Row(ALWAYS, None, FACTS),
    ),
    Event.RESUME_NUMBERING: _quiet_rule(  # the instance existed before
        {_ROLLOUT}, Row(INITIALIZED | ENDED, None, NUMBERING_RESUMED)
    ),
    Event.ADOPT: _rule(  # its owner, an external controller, has created another pod
        {_HOSTMGR},
        Row(
            ENDED & HAS_NO_NEXT_RUN,
            _S.INITIALIZED,
            NEW_RUN | NO_PLACE | SAME_VERSION,
            goal=_S.SUCCEEDED,
            message=MESSAGE,
        ),
    ),
    Event.FORGET: _quiet_rule({_SETTLE}, Row(GONE, _S.UNKNOWN)),
    # The queue.
    Event.ENQUEUE: _rule(
        {_RESMGR},
        Row(INITIALIZED & GOAL_ALIVE & HAS_PLACE, _S.PENDING, IN_QUEUE),
        Row(INITIALIZED & GOAL_ALIVE, _S.PENDING, IN_QUEUE, queue_seq=Parameter("queue_seq")),
    ),
    Event.ENQUEUE_GANG: _rule(
        {_RESMGR},
        Row(INITIALIZED & GOAL_ALIVE, _S.PENDING, IN_QUEUE, queue_seq=Parameter("queue_seq")),
    ),
    Event.REFUSE: _rule(  # its pool was deleted
        {_RESMGR},
        Row(INITIALIZED & GOAL_ALIVE, _S.FAILED, ENDED_UNLAUNCHED, message=MESSAGE),
    ),
    Event.ADMIT: _rule({_RESMGR}, Row(PENDING, _S.READY, held_until_ns=0)),
    Event.SKIP_QUEUE: _rule({_HOSTMGR}, Row(INITIALIZED & GOAL_ALIVE, _S.READY, message=MESSAGE, reason="")),  # daemons
    Event.LEAVE_QUEUE: _rule(
        {_RESMGR},
        Row(QUEUED & GOAL_ENDED, _S.KILLED, KILLED_UNLAUNCHED),
        Row(QUEUED & CONFIG_OUTDATED, _S.INITIALIZED, TAKES_CONFIG, health=Column("initial_health")),
    ),
    Event.UNADMIT: _rule(
        {_RESMGR},
        Row(READY & GOAL_ALIVE & Flag("gang_incomplete"), _S.INITIALIZED, WORDS),  # it waits for the rest of its gang
        Row(READY & GOAL_ALIVE, _S.PENDING, WORDS),
    ),
    Event.REQUEUE: _rule({_RESMGR}, Row(LAUNCHABLE, _S.PENDING, BACKOFF | WORDS)),
    Event.BACK_OFF: _quiet_rule({_RESMGR}, Row(PENDING, None, BACKOFF)),  # clients do not see the backoff
    Event.REQUEUE_GANG: _rule(
        {_RESMGR},
        Row(READY & GOAL_ALIVE & Flag("gang_incomplete"), _S.INITIALIZED, WORDS),
        Row(READY & GOAL_ALIVE, _S.PENDING, WORDS),
        Row(STAYING, None, RUN_RESTARTED),
    ),
    # Hosts.
    Event.LAUNCH: _rule({_HOSTMGR}, Row(LAUNCHABLE, _S.LAUNCHED, LAUNCHED_THERE | LATEST_RUN)),
    Event.KILL: _rule({_HOSTMGR}, Row(UNWANTED, _S.KILLING, message="Killing the task")),
    Event.EVICT: _rule({_RESMGR, _HOSTMGR}, Row(STAYING, _S.PREEMPTING, RUN_RESTARTED)),
    Event.EVICT_FINAL: _rule(
        {_RESMGR, _HOSTMGR},
        Row(STAYING, _S.PREEMPTING, WORDS, goal=Parameter("goal"), termination=WHY),
    ),
    Event.DISRUPT: _rule(
        {_API, _HOSTMGR},
        Row(HOSTED & GOAL_ALIVE & ~RUN_SUPERSEDED, None, message=MESSAGE, desired_run_id=ANOTHER_RUN, termination=WHY),
    ),
    Event.MOVE: _rule(
        {_HOSTMGR},
        Row(
            HOSTED & GOAL_ALIVE & ~RUN_SUPERSEDED, None,
            message=MESSAGE, desired_run_id=ANOTHER_RUN, termination=WHY, desired_host=Parameter("target"),
        ),
    ),
    # Reports of hosts.
    Event.REPORT_LAUNCHED: _rule(
        {_HOSTMGR},
        Row(LAUNCHED & Flag("is_waiting") & OTHER_WORDS, None, WORDS),
        Row(LAUNCHED & BOUND_ELSEWHERE, None, THERE),
    ),
    Event.REPORT_STARTING: _rule(
        {_HOSTMGR},
        Row(LAUNCHED, _S.STARTING, ALIVE),
        Row(STARTING & (Flag("is_waiting") | WAITS_ON_HOST) & OTHER_WORDS, None, WORDS),
    ),
    Event.REPORT_RUNNING: _rule(
        {_HOSTMGR},
        Row(RUNNING & Flag("is_health_news"), None, WORDS, health=Parameter("health")),
        Row(NOT_RUNNING_YET & UNSTARTED, _S.RUNNING, ALIVE | NO_DESIRED_HOST, started_ns=NOW),
        Row(NOT_RUNNING_YET, _S.RUNNING, ALIVE),
    ),
    Event.REPORT_SUCCEEDED: _rule(
        {_HOSTMGR},
        Row(HOSTED & ASKED_TO_END, _S.SUCCEEDED, RUN_ENDED),  # the request's reason is more specific
        Row(HOSTED, _S.SUCCEEDED, RUN_ENDED, reason=""),
    ),
    Event.REPORT_FAILED: _rule(
        {_HOSTMGR},
        Row(HOSTED, _S.FAILED, RUN_ENDED | NO_DESIRED_HOST, reason=REASON, termination=Parameter("failed_as")),
    ),
    Event.REPORT_LOST: _rule(
        {_HOSTMGR},
        Row(HOSTED & (GOAL_ENDED | LAST), _S.KILLED, RUN_ENDED | EVICTED_AS, message=LOST_STOPPED, reason=""),
        Row(HOSTED, _S.LOST, RUN_ENDED | EVICTED_AS | NO_DESIRED_HOST, message=LOST, reason=REASON),
    ),
    Event.REPORT_KILLED: _rule(
        {_HOSTMGR},
        Row(HOSTED & ASKED_TO_END, _S.KILLED, RUN_ENDED),
        Row(
            HOSTED & Flag("is_cluster_eviction"),
            _S.KILLED,
            RUN_ENDED | EVICTED_AS,
            message=EVICTED_BY_CLUSTER,
            reason=REASON,
        ),
        Row(HOSTED, _S.KILLED, RUN_ENDED, reason=""),
    ),
    Event.RUN_AGAIN: _quiet_rule(  # with the report of the end
        {_HOSTMGR},
        Row(ENDED & GOAL_ALIVE, None, next_run=Parameter("next_run"), due_ns=Parameter("due_ns")),
    ),
    # Writes of a settle.
    Event.BEGIN_NEXT_RUN: _rule(
        {_SETTLE},
        Row(DUE & RETRIES, _S.INITIALIZED, NEW_RUN | NO_PLACE, message="Rescheduled after task terminated"),
        Row(DUE & RELAUNCHES, _S.INITIALIZED, NEW_RUN, message="Regenerate placement"),
        Row(DUE, _S.INITIALIZED, NEW_RUN, message="Initialize task"),
    ),
    Event.THROTTLE: _rule({_SETTLE}, Row(UNTHROTTLED, None, message=THROTTLED_MESSAGE)),
    Event.END_UNQUEUED: _rule({_SETTLE}, Row(UNQUEUED_END, _S.KILLED, KILLED_UNLAUNCHED)),
    Event.EXCEED_DEADLINE: _rule({_SETTLE}, Row(TIMED, None, NO_DESIRED_HOST | OVERDUE, goal=_S.KILLED)),
    Event.RERUN_WITH_GANG: _rule(
        {_SETTLE},
        Row(ENDED & GOAL_ALIVE & HAS_NO_NEXT_RUN, _S.INITIALIZED, NEW_RUN, message=MESSAGE),
        Row(HOSTED & GOAL_ALIVE & ~RUN_SUPERSEDED, None, RUN_RESTARTED),
    ),
    # Requests of clients.
    Event.STOP: _rule(
        {_API, _SETTLE},
        Row(ENDED & GOAL_ALIVE, None, NO_NEXT_RUN | NO_DESIRED_HOST, goal=_S.KILLED),
        Row(INITIALIZED & GOAL_ALIVE, _S.KILLED, STOPPED_UNLAUNCHED | NO_DESIRED_HOST, goal=_S.KILLED, termination=WHY),
        Row(GOAL_ALIVE, None, WORDS | NO_DESIRED_HOST, goal=_S.KILLED, termination=WHY),
    ),
    Event.START: _rule(
        {_API},
        Row(ENDED & REVIVABLE, _S.INITIALIZED, NEW_RUN | NO_PLACE | STARTED),
        Row(LEAVING & REVIVABLE, None, NO_TERMINATION | NO_PLACE | STARTED, desired_run_id=NEXT_RUN_ID),
        Row(REVIVABLE, None, NO_TERMINATION | STARTED),
    ),
    Event.RESTART: _rule(
        {_API},
        Row(ENDED & GOAL_ALIVE & (~RUN_SUPERSEDED | HAS_NO_NEXT_RUN), None, REPLACED | {"desired_run_id": ANOTHER_RUN}),
        Row(GOAL_ALIVE & ~RUN_SUPERSEDED, None, RESTARTED),
    ),
    # Writes of an update.
    Event.RELABEL: _rule({_ROLLOUT}, Row(ALWAYS, None, SAME_VERSION)),
    Event.REMOVE: _rule({_ROLLOUT}, Row(ALWAYS, None, REMOVED, goal=_S.DELETED)),
    Event.KEEP: _rule({_ROLLOUT}, Row(GOAL_DELETED, None, goal=Parameter("goal"))),  # another update was removing it
    Event.REVIVE: _rule({_ROLLOUT}, Row(GOAL_ENDED, None, goal=_S.RUNNING)),
    Event.STAY_ON_HOST: _quiet_rule({_ROLLOUT}, Row(HOSTED & NO_PREFERRED_HOST, None, desired_host=Column("host"))),
    Event.LEAVE_HOST: _quiet_rule({_ROLLOUT}, Row(ALWAYS, None, NO_DESIRED_HOST)),
    Event.UPDATE: _rule(
        {_ROLLOUT},
        Row(KILLING & DIFFERS & GOAL_ALIVE, None, ADOPTS, desired_run_id=NEXT_RUN_ID),
        Row(HOSTED & DIFFERS & GOAL_ALIVE, None, ADOPTS, desired_run_id=NEXT_RUN_ID, termination=WHY),
        Row(ENDED & DIFFERS & GOAL_ALIVE, None, ADOPTS | REPLACED),
        Row(DIFFERS & GOAL_ENDED, None, ADOPTED),
        Row(INITIALIZED & DIFFERS, None, ADOPTED, health=Column("initial_health")),
        Row(QUEUED & DIFFERS & Flag("is_new"), None, ADOPTS),  # it leaves its queue for the new configuration
        Row(QUEUED & DIFFERS, None, ADOPTED),
    ),
    Event.UPDATE_START: _rule(
        {_ROLLOUT},
        Row(HOSTED & GOAL_ENDED, None, NO_TERMINATION | UPDATE_STARTED, desired_run_id=NEXT_RUN_ID),
        Row(ENDED & GOAL_ENDED, _S.INITIALIZED, NEW_RUN | SAME_VERSION | UPDATE_STARTED),
        Row(DIFFERS, None, SAME_VERSION | UPDATE_STARTED),
    ),
    Event.UPDATE_STOP: _rule(
        {_ROLLOUT},
        Row(~ENDED & GOAL_ALIVE, None, UPDATE_STOPPED, goal=_S.KILLED, termination=ON_REQUEST),
        Row(DIFFERS, None, UPDATE_STOPPED, goal=_S.KILLED),
    ),
}
# fmt: on


_PLACES = {field.name: at for at, field in enumerate(fields(PodRecord))}
_column_values = attrgetter(*_PLACES)
_make_pod = maker(PodRecord)
_UPDATED, _REVISION = _PLACES["updated_ns"], _PLACES["revision"]
_ROWS = {
    event: [
        (
            row.guard,
            [(_PLACES[name], value) for name, value in row.constants.items()],
            [(_PLACES[name], value) for name, value in row.values.items()],
        )
        for row in rule.rows
    ]
    for event, rule in TABLE.items()
}
"""Guard, constants and values of each row, by the places of fields: a dict for each report would take as long as the
guards."""


def next_pod(pod: PodRecord, event: Event, now_ns: int, **given: Any) -> PodRecord | None:
    """Return the pod after the event; None if nothing changes."""
    given["now_ns"] = now_ns
    for guard, constants, values in _ROWS[event]:
        if guard.holds(pod, given):
            found = list(_column_values(pod))
            for place, value in values:
                found[place] = value.of(pod, given)
            for place, value in constants:
                found[place] = value
            if not TABLE[event].is_quiet:
                found[_UPDATED] = now_ns
                found[_REVISION] += 1
            return _make_pod(*found)
    return None


def no_pod(job_id: JobId, instance_id: int) -> PodRecord:
    """Return the record that stands for a pod that does not exist."""
    return PodRecord(
        job_id=job_id,
        instance_id=instance_id,
        run_id=0,
        state=PodState.UNKNOWN,
        goal=PodState.UNKNOWN,
        config_version=0,
        desired_config_version=0,
        desired_run_id=0,
        revision=0,
    )
