"""Pods in every condition that the pod machine distinguishes, and parameters for every event."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import product
from typing import Any

from peloton.lifecycle.guards import Column, Flag, Parameter, parameters
from peloton.lifecycle.pod_machine import TABLE, Event
from peloton.lifecycle.retry import THROTTLED_MESSAGE
from peloton.model.ids import JobId
from peloton.model.pod import HealthState, NextRun, PodRecord, PodState, Termination, TerminationReason

JOB = JobId("91b1b8e5-2ba8-11e7-bc23-0242ac11000d")
NOW = 1_700_000_000_000_000_000
STATES = (
    PodState.INITIALIZED,
    PodState.PENDING,
    PodState.READY,
    PodState.LAUNCHED,
    PodState.STARTING,
    PodState.RUNNING,
    PodState.PREEMPTING,
    PodState.KILLING,
    PodState.SUCCEEDED,
    PodState.FAILED,
    PodState.LOST,
    PodState.KILLED,
)
GOALS = (PodState.RUNNING, PodState.SUCCEEDED, PodState.KILLED, PodState.PREEMPTING, PodState.DELETED)
PARAMETERS: dict[str, Any] = {
    "now_ns": NOW,
    "message": "said",
    "by": " by alice",
    "reason": "REASON_SAID",
    "why": Termination(TerminationReason.KILLED_FOR_RESTART),
    "goal": PodState.KILLED,
    "version": 2,
    "max_failures": 3,
    "initial_health": HealthState.HEALTH_UNKNOWN,
    "last_run": 8,
    "last_revision": 80,
    "queue_seq": 99,
    "vain_count": 8,
    "held_until_ns": NOW + 5,
    "host": "new-host",
    "agent_id": "new-agent",
    "cluster": "new-cluster",
    "ports": {"http": 31000},
    "health": HealthState.HEALTHY,
    "failures": 1,
    "used_s": 2.5,
    "last_goal": PodState.PREEMPTING,
    "cause": "its host is drained",
    "evicted_as": Termination(TerminationReason.KILLED_HOST_MAINTENANCE),
    "failed_as": Termination(TerminationReason.FAILED, 7, "Broken pipe"),
    "next_run": NextRun.RETRY,
    "due_ns": NOW + 7,
    "failure_count": 0,
    "target": "new-home",
}

_LEFT = Termination(TerminationReason.PREEMPTED_RESOURCES, 3, "hangup")
_KINDS: list[list[dict[str, Any]]] = [
    [{"desired_run_id": 4}, {"desired_run_id": 6}],
    [
        {"config_version": 1, "desired_config_version": 1},
        {"config_version": 1, "desired_config_version": 2},
        {"config_version": 2, "desired_config_version": 2},
        {"config_version": 1, "desired_config_version": 3},
    ],
    [
        {"next_run": NextRun.NONE, "due_ns": 0},
        {"next_run": NextRun.REPLACE, "due_ns": 0},
        {"next_run": NextRun.RETRY, "due_ns": NOW},
        {"next_run": NextRun.RETRY, "due_ns": NOW + 1},
        {"next_run": NextRun.RELAUNCH, "due_ns": 0},
    ],
    [{"queue_seq": 0}, {"queue_seq": 7}],
    [{"termination": None}, {"termination": _LEFT}],
    [{"started_ns": 0}, {"started_ns": NOW - 9}],
    [{"desired_host": ""}, {"desired_host": "old-home"}],
    [{"host": "", "agent_id": ""}, {"host": "old-host", "agent_id": "old-agent"}],
    [{"message": "left"}, {"message": THROTTLED_MESSAGE}],
]
"""Conditions besides state and goal; the first of each is that of a pod whose event does not read it."""


def a_pod(instance: int, state: PodState, goal: PodState, **changes: Any) -> PodRecord:
    return PodRecord(
        job_id=JOB,
        instance_id=instance,
        run_id=4,
        prev_run_id=3,
        state=state,
        goal=goal,
        **{key: value for kind in _KINDS for key, value in kind[0].items()} | changes,
        cluster="old-cluster",
        ports={"http": 1},
        reason="REASON_LEFT",
        health=HealthState.UNHEALTHY,
        initial_health=HealthState.DISABLED,
        failure_count=2,
        max_failures=5,
        vain_count=6,
        held_until_ns=NOW - 4,
        completed_ns=NOW - 3,
        updated_ns=NOW - 2,
        run_seconds=1.5,
        revision=11,
    )


def pods_for(event: Event) -> list[PodRecord]:
    """Every combination of state, goal and the conditions that the event reads."""
    seen = _columns(TABLE[event])
    looked_at = [kind for kind in _KINDS if not seen.isdisjoint(kind[0])]
    found: list[PodRecord] = []
    for state, goal, *chosen in product(STATES, GOALS, *looked_at):
        changes = {key: value for one in chosen for key, value in one.items()}
        found.append(a_pod(len(found), state, goal, **changes))
    return found


def parameters_for(event: Event) -> Iterator[dict[str, Any]]:
    """Every combination of the flags, and of the values that may be missing."""
    parts = list(_parts(TABLE[event]))
    names = {name for part in parts for name in parameters(part)} - {"now_ns"}
    said = {part.name for part in parts if isinstance(part, Flag)}
    kept = {part.name for part in parts if isinstance(part, Parameter) and part.kept}
    choices: dict[str, tuple[Any, ...]]
    choices = {name: (True, False) if name in said else (PARAMETERS[name],) for name in sorted(names)}
    choices |= {name: (PARAMETERS[name], None) for name in kept}
    for values in product(*choices.values()):
        yield dict(zip(choices, values, strict=True))


def _parts(of: Any) -> Iterator[Any]:
    """Yield a rule, a row, a condition or a value, and all its parts."""
    if isinstance(of, (tuple, frozenset)):
        for one in of:
            yield from _parts(one)
    elif isinstance(of, dict):
        yield from _parts(tuple(of.values()))
    elif hasattr(of, "assigned"):
        yield from _parts((of.guard, of.assigned))
    elif is_dataclass(of):
        yield of
        yield from _parts(tuple(getattr(of, one.name) for one in fields(of)))


def _columns(of: Any) -> set[str]:
    named = {part.name for part in _parts(of) if isinstance(part, Column)}
    return named | {part.column for part in _parts(of) if hasattr(part, "column")}
