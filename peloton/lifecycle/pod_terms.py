"""Terms of the pod machine's table: conditions on a pod, and columns that are set together."""

from __future__ import annotations

from typing import Any

from peloton.lifecycle.deadline import DEADLINE_REASON
from peloton.lifecycle.guards import Column, Condition, Differs, Exceeds, Flag, In, Joined, Parameter, Pick, Plus, Unset
from peloton.lifecycle.retry import THROTTLED_MESSAGE
from peloton.lifecycle.sla import HEALTHY_ENOUGH
from peloton.model.pod import (
    ENDING_GOALS,
    ON_HOST,
    TERMINAL,
    HealthState,
    NextRun,
    PodState,
    Termination,
    TerminationReason,
)

_S = PodState

# -- conditions ----------------------------------------------------------------------------------------------------

LAUNCH_REASON = "REASON_UPDATE_OFFER"


def state(*states: PodState) -> Condition:
    return In("state", frozenset(states))


NOWHERE = state(_S.UNKNOWN)
INITIALIZED = state(_S.INITIALIZED)
PENDING = state(_S.PENDING)
READY = state(_S.READY)
QUEUED = state(_S.PENDING, _S.READY)
LAUNCHED = state(_S.LAUNCHED)
STARTING = state(_S.STARTING)
RUNNING = state(_S.RUNNING)
NOT_RUNNING_YET = state(_S.LAUNCHED, _S.STARTING, _S.PREEMPTING)  # a host may still report that it runs
LEAVING = state(_S.KILLING, _S.PREEMPTING)
KILLING = state(_S.KILLING)
HOSTED = In("state", ON_HOST)
ENDED = In("state", TERMINAL - {_S.DELETED})

GOAL_ENDED = In("goal", ENDING_GOALS)  # it has to end without a next run
GOAL_ALIVE = ~GOAL_ENDED
GOAL_DELETED = In("goal", frozenset({_S.DELETED}))  # its row has to be deleted
RUN_SUPERSEDED = Exceeds("desired_run_id", Column("run_id"))  # a newer run is wanted
CONFIG_OUTDATED = Differs("desired_config_version", Column("config_version"))  # it has to change its configuration
DIFFERS = Differs("desired_config_version", Parameter("version"))  # its desired version is not the update's
REVIVABLE = GOAL_ENDED & ~GOAL_DELETED
RETRIES = In("next_run", frozenset({NextRun.RETRY}))
RELAUNCHES = In("next_run", frozenset({NextRun.RELAUNCH}))
HAS_NO_NEXT_RUN = In("next_run", frozenset({NextRun.NONE}))
NOT_DUE = Exceeds("due_ns", Parameter("now_ns"))
UNPLACED = Unset("queue_seq")  # it has no position in a queue
HAS_PLACE = ~UNPLACED
UNTERMINATED = Unset("termination")
ASKED_TO_END = ~UNTERMINATED  # a row of this table asked its run to end
UNSTARTED = Unset("started_ns")
NO_PREFERRED_HOST = Unset("desired_host")
HEALTHY = In("health", HEALTHY_ENOUGH)

LAUNCHABLE = (
    READY & GOAL_ALIVE & ~CONFIG_OUTDATED
)  # with an old configuration it must not launch: nothing would replace it
UNQUEUED_END = INITIALIZED & GOAL_ENDED & ~GOAL_DELETED
GONE = GOAL_DELETED & (ENDED | INITIALIZED)
WAITS_ON_HOST = (  # a container cannot be started yet; message and reason say why
    state(_S.LAUNCHED, _S.STARTING) & ~Unset("reason") & Differs("reason", LAUNCH_REASON)
)
UNWANTED = In("state", ON_HOST - {_S.KILLING}) & (
    GOAL_ENDED | RUN_SUPERSEDED
)  # its host has not been asked to kill it yet
STAYING = state(_S.LAUNCHED, _S.STARTING, _S.RUNNING) & GOAL_ALIVE & ~RUN_SUPERSEDED
TIMED = RUNNING & GOAL_ALIVE
DUE = ENDED & ~HAS_NO_NEXT_RUN & ~NOT_DUE
WAITS = ENDED & ~HAS_NO_NEXT_RUN & NOT_DUE
UNTHROTTLED = WAITS & Differs("message", THROTTLED_MESSAGE)
MISSED = ~ENDED & GOAL_ALIVE  # in a job that has to end
AVAILABLE = (  # the condition of ``sla.availability``
    RUNNING
    & GOAL_ALIVE
    & UNTERMINATED
    & ~RUN_SUPERSEDED
    & ~CONFIG_OUTDATED
    & In("goal", frozenset({_S.RUNNING}))
    & HEALTHY
)
MISSING = GOAL_ALIVE & ~AVAILABLE  # wanted and not serving: it counts against the SLA
LAST = Flag("is_last") & GOAL_ALIVE & ~RUN_SUPERSEDED & ~CONFIG_OUTDATED  # this eviction ends it without a next run

# -- columns that are set ------------------------------------------------------------------------------------------

Sets = dict[str, Any]

NOW, VERSION = Parameter("now_ns"), Parameter("version")
MESSAGE, REASON, WHY = Parameter("message"), Parameter("reason"), Parameter("why")
WORDS: Sets = {"message": MESSAGE, "reason": REASON}
OTHER_WORDS = Differs("message", MESSAGE) | Differs("reason", REASON)
ANOTHER_RUN = Plus(Column("run_id"), 1)
NEXT_RUN_ID = Pick(RUN_SUPERSEDED, Column("desired_run_id"), ANOTHER_RUN)
NON_RUNNING_KILLED = "Non-running task killed"

ON_REQUEST = Termination(TerminationReason.KILLED_ON_REQUEST)
LOST, LOST_STOPPED = Joined(("Task LOST: ", MESSAGE)), Joined(("Stopped task LOST event: ", MESSAGE))
EVICTED_BY_CLUSTER = Joined(("Evicted by the cluster, ", Parameter("cause"), ": ", MESSAGE))

NO_NEXT_RUN: Sets = {"next_run": NextRun.NONE, "due_ns": 0}
NO_PLACE: Sets = {"queue_seq": 0}
NO_TERMINATION: Sets = {"termination": None}
NO_DESIRED_HOST: Sets = {"desired_host": ""}
SAME_VERSION: Sets = {"config_version": VERSION, "desired_config_version": VERSION}
FACTS: Sets = {"max_failures": Parameter("max_failures"), "initial_health": Parameter("initial_health")}
BORN: Sets = {"run_id": 1, "desired_run_id": 1, **SAME_VERSION, **FACTS}
TAKES_CONFIG: Sets = {"config_version": Column("desired_config_version")}
LATEST_RUN: Sets = {  # a newer run, requested while it waited
    "prev_run_id": Pick(RUN_SUPERSEDED, Column("run_id"), Column("prev_run_id")),
    "run_id": Column("desired_run_id"),
}
REPLACED: Sets = {"desired_run_id": NEXT_RUN_ID, "next_run": NextRun.REPLACE, "due_ns": 0}
NUMBERING_RESUMED: Sets = {
    "prev_run_id": Parameter("last_run"),
    "run_id": Plus(Parameter("last_run"), 1),
    "desired_run_id": Plus(Parameter("last_run"), 1),
    "revision": Plus(Parameter("last_revision"), 1),
}
BACKOFF: Sets = {"vain_count": Parameter("vain_count"), "held_until_ns": Parameter("held_until_ns")}
OVERDUE: Sets = {
    "message": DEADLINE_REASON,
    "reason": DEADLINE_REASON,
    "termination": Termination(TerminationReason.DEADLINE_TIMEOUT_EXCEEDED),
}
STARTED: Sets = {"goal": Parameter("goal"), "message": MESSAGE}
RESTARTED: Sets = {
    "desired_run_id": ANOTHER_RUN,
    "message": Parameter("message", kept="message"),
    "reason": Parameter("reason", kept="reason"),
    "termination": Parameter("why", kept="termination"),
}
REMOVED: Sets = {
    "desired_config_version": VERSION,
    "message": "Task Count reduced via API",
    "reason": "",
    "termination": Termination(TerminationReason.KILLED_FOR_UPDATE),
}
UPDATE_STARTED: Sets = {"goal": PodState.RUNNING, "message": MESSAGE, "desired_config_version": VERSION}
UPDATE_STOPPED: Sets = {**SAME_VERSION, **NO_NEXT_RUN, **NO_DESIRED_HOST, "message": MESSAGE}
IN_QUEUE: Sets = {"message": "Task sent for placement", "reason": "", "vain_count": 0, "held_until_ns": 0}

NEW_RUN: Sets = {  # failures, goal, usage and the position in the queue are kept
    "prev_run_id": Column("run_id"),
    "run_id": NEXT_RUN_ID,
    "desired_run_id": NEXT_RUN_ID,
    **TAKES_CONFIG,
    "health": Column("initial_health"),
    "reason": "",
    "host": "",
    "agent_id": "",
    "ports": {},
    "started_ns": 0,
    "completed_ns": 0,
    **NO_TERMINATION,
    **NO_NEXT_RUN,
}
ENDED_UNLAUNCHED: Sets = {
    "reason": "",
    "health": HealthState.INVALID,
    "completed_ns": NOW,
    "queue_seq": 0,
    **NO_NEXT_RUN,
}
KILLED_UNLAUNCHED: Sets = {"message": NON_RUNNING_KILLED, **ENDED_UNLAUNCHED}
STOPPED_UNLAUNCHED: Sets = {"message": Joined((NON_RUNNING_KILLED, Parameter("by"))), **ENDED_UNLAUNCHED}
LAUNCHED_THERE: Sets = {
    "host": Parameter("host"),
    "agent_id": Parameter("agent_id"),
    "cluster": Parameter("cluster"),
    "ports": Parameter("ports"),
    "desired_host": Pick(
        Differs("desired_host", Parameter("host")), "", Column("desired_host")
    ),  # the desired host had too few free resources
    "message": "Add hostname and ports",
    "reason": LAUNCH_REASON,
    "vain_count": 0,
}
RUN_RESTARTED: Sets = {**WORDS, "desired_run_id": ANOTHER_RUN, "termination": WHY}  # the current run has to end first
BOUND_ELSEWHERE = Flag("is_bound_elsewhere")  # the scheduler of an admitted external pod has chosen another host
THERE: Sets = {"host": Parameter("host"), "agent_id": Parameter("agent_id")}
ALIVE: Sets = {
    **WORDS,
    "host": Pick(BOUND_ELSEWHERE | Unset("host"), Parameter("host"), Column("host")),
    "agent_id": Pick(BOUND_ELSEWHERE | Unset("agent_id"), Parameter("agent_id"), Column("agent_id")),
    "health": Parameter("health"),
    "completed_ns": 0,
}
RUN_ENDED: Sets = {
    "message": MESSAGE,
    "health": HealthState.INVALID,
    "goal": Pick(LAST, Parameter("last_goal"), Column("goal")),
    "failure_count": Plus(Column("failure_count"), Parameter("failures")),
    "completed_ns": NOW,
    "run_seconds": Plus(Column("run_seconds"), Parameter("used_s")),
    "desired_host": Pick(Flag("is_cluster_eviction"), "", Column("desired_host")),  # its host takes no pods any longer
    **NO_NEXT_RUN,
}
EVICTED_AS: Sets = {"termination": Pick(ASKED_TO_END, Column("termination"), Parameter("evicted_as"))}
ADOPTS: Sets = {
    "desired_config_version": VERSION,
    "message": MESSAGE,
    "reason": "",
    "failure_count": Parameter("failure_count", kept="failure_count"),
}
ADOPTED: Sets = {**ADOPTS, "config_version": VERSION}
