"""Writes docs/pod-states.md from the pod machine's table: ``python -m peloton.lifecycle.pod_page``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from peloton.lifecycle import job_machine as jobs
from peloton.lifecycle import pod_terms as terms
from peloton.lifecycle.guards import (
    All,
    Column,
    Condition,
    Differs,
    Either,
    Flag,
    In,
    Joined,
    Not,
    Parameter,
    Pick,
    Plus,
    Row,
    Unset,
)
from peloton.lifecycle.pod_machine import TABLE
from peloton.model.job import JobState
from peloton.model.pod import ON_HOST, TERMINAL, HealthState, NextRun, PodState, Termination

TARGET = Path(__file__).resolve().parents[2] / "docs" / "pod-states.md"
OPENING = """# The states of a pod

Generated from the [table of the pod machine](../peloton/lifecycle/pod_machine.py) by `make docs`; do not edit. Why
there is one table is in [ADR 36](adr/0036-one-pod-machine.md).

A pod is a row of the database with its current state and its desired state (the *goal*), its current and its desired
run, and its current and its desired configuration. Only the events below write it. The first row of an event whose
condition holds applies; if none holds, nothing changes. Every event is recorded as a pod event, except those marked
*quiet*. *On a host* means LAUNCHED, STARTING, RUNNING, PREEMPTING or KILLING; *ended* means SUCCEEDED, FAILED, LOST or
KILLED; *it is to end* means that the goal is KILLED, PREEMPTING or DELETED.
"""
JOBS = """## The goal of a job

The events that set the goal of a job, and its state where users change it; generated from its
[table](../peloton/lifecycle/job_machine.py). At all other times the state of a job is computed from counts of its pods.
"""
Words = Mapping[Condition, tuple[str, str]]
WORDS: Words = {
    terms.GOAL_ENDED: ("it is to end", "it is not to end"),
    terms.GOAL_DELETED: ("its goal is DELETED", "its goal is not DELETED"),
    terms.RUN_SUPERSEDED: ("it wants a newer run", "it wants no newer run"),
    terms.CONFIG_OUTDATED: ("it wants another configuration", "it wants no other configuration"),
    terms.DIFFERS: ("it wants another configuration than the update's", "it wants the update's configuration"),
    terms.HAS_NO_NEXT_RUN: ("it has no next run", "it has a next run"),
    terms.RETRIES: ("its next run is a RETRY", "its next run is no RETRY"),
    terms.RELAUNCHES: ("its next run is a RELAUNCH", "its next run is no RELAUNCH"),
    terms.NOT_DUE: ("its next run is not due", "its next run is due"),
    terms.UNPLACED: ("it has no place in a queue", "it has a place in a queue"),
    terms.UNTERMINATED: ("no end of its run was requested", "an end of its run was requested"),
    terms.UNSTARTED: ("it has not run yet", "it has run"),
    terms.NO_PREFERRED_HOST: ("it has no desired host", "it has a desired host"),
    terms.LAST: ("it does not run again after this eviction", "it runs again after this eviction"),
}
JOB_WORDS: Words = {
    jobs.ENDED: ("it has ended", "it has not ended"),
    jobs.INITIALIZED: ("its pods are being created", "its pods are created"),
    jobs.IS_BATCH: ("it is a batch job", "it is no batch job"),
    jobs.STOPS: ("its goal is KILLED or DELETED", "its goal is neither KILLED nor DELETED"),
    jobs.GOAL_DELETED: ("its goal is DELETED", "its goal is not DELETED"),
    jobs.STRAYS: ("its goal is not that of its type", "its goal is that of its type"),
}
GROUPS: dict[str, Mapping[str, Any]] = {
    "a new run": terms.NEW_RUN,
    "ended unlaunched": terms.KILLED_UNLAUNCHED,
    "run ended": terms.RUN_ENDED,
    "alive": terms.ALIVE,
    "launched there": terms.LAUNCHED_THERE,
    "born": terms.BORN,
    "queued": terms.IN_QUEUE,
    "adopted": terms.ADOPTED,
    "adopts": terms.ADOPTS,
    "restarts": terms.RUN_RESTARTED,
    "no next run": terms.NO_NEXT_RUN,
    "no termination": terms.NO_TERMINATION,
    "words": terms.WORDS,
}
"""Columns that are set together, the larger groups first."""
STATES = frozenset(row.to for rule in TABLE.values() for row in rule.rows if row.to is not None)
_TOGETHER = {"on a host": ON_HOST, "ended": TERMINAL & STATES}
_ORDER = {state: number for number, state in enumerate(PodState)}


def page() -> str:
    return "\n".join([OPENING, *_drawing(), "", *_table(), "", *_groups(), "", JOBS, *_job_table(), ""])


# -- the diagram ---------------------------------------------------------------------------------------------------


def _drawing() -> Iterator[str]:
    """Yield the lines of the diagram, in which states that an event treats alike are one node."""
    yield "```mermaid"
    yield "flowchart TD"
    yield '    nothing(("no pod"))'
    for name, states in _TOGETHER.items():
        yield f'    subgraph {_node(name)} ["{name}"]'
        yield f"        {'; '.join(_sort_states(states))}"
        yield "    end"
    labels: dict[tuple[str, str], dict[str, None]] = {}
    for event, rule in TABLE.items():
        for row in rule.rows:
            if row.to is not None:
                (target,) = _node_names(frozenset({row.to}))
                for source in _node_names(sources(row)):
                    labels.setdefault((source, target), {})[event.value] = None
    for (source, target), events in labels.items():
        yield f'    {source} -->|"{", ".join(events)}"| {target}'
    yield "```"


def _node_names(states: frozenset[PodState]) -> list[str]:
    names, single = _group_states(states)
    nodes = ["nothing" if state is PodState.UNKNOWN else state.value for state in single]
    return [*nodes, *map(_node, names)]


def _node(name: str) -> str:
    return name.upper().replace(" ", "_")


def _group_states(states: frozenset[PodState]) -> tuple[list[str], list[PodState]]:
    names = [name for name, together in _TOGETHER.items() if states >= together]
    return names, _sort_states(states.difference(*(_TOGETHER[name] for name in names)))


def sources(row: Row[PodState]) -> frozenset[PodState]:
    """Return the states in which the row may decide."""
    states = _states_of(row.guard)
    return states if states == {PodState.UNKNOWN} else states - {PodState.UNKNOWN}


def _states_of(condition: Condition) -> frozenset[PodState]:
    match condition:
        case In("state", values):
            return frozenset(values)
        case Not(In("state", values)):
            return STATES - values
        case All(parts):
            return STATES.intersection(*map(_states_of, parts))
        case Either(parts):
            return frozenset().union(*map(_states_of, parts))
    return STATES


def _sort_states(states: frozenset[PodState]) -> list[PodState]:
    return sorted(states, key=_ORDER.__getitem__)


# -- the table -----------------------------------------------------------------------------------------------------


def _table() -> Iterator[str]:
    yield "| event | by | state | when | becomes | sets |"
    yield "|---|---|---|---|---|---|"
    for event, rule in TABLE.items():
        name = f"**{event.value}**" + (" (quiet)" if rule.is_quiet else "")
        by = "; ".join(sorted(rule.by))
        for row in rule.rows:
            to = "" if row.to is None else "gone" if row.to is PodState.UNKNOWN else row.to.value
            yield f"| {name} | {by} | {_source_text(row)} | {_guard_text(row.guard)} | {to} | {_sets_text(row)} |"
            name = by = ""


def _job_table() -> Iterator[str]:
    yield "| event | when | becomes | sets |"
    yield "|---|---|---|---|"
    for event, rows in jobs.JOB_TABLE.items():
        name = f"**{event.value}**"
        for row in rows:
            to = row.to.value if row.to else ""
            yield f"| {name} | {_guard_text(row.guard, JOB_WORDS)} | {to} | {_sets_text(row)} |"
            name = ""


def _source_text(row: Row[PodState]) -> str:
    states = sources(row)
    if states >= STATES - {PodState.UNKNOWN}:
        return "any"
    if states == {PodState.UNKNOWN}:
        return "none yet"
    names, single = _group_states(states)
    return ", ".join([*(state.value for state in single), *names])


def _guard_text(condition: Condition, words: Words = WORDS) -> str:
    """Describe a condition, without its restriction of the state unless ``words`` names that."""
    if condition in words:
        return words[condition][0]
    match condition:
        case Not(part) if part in words:
            return words[part][1]
        case Not(All(parts)):
            return " or ".join(_guard_text(~part, words) for part in parts)
        case All(parts):
            return ", ".join(filter(None, (_guard_text(part, words) for part in parts)))
        case Either(parts):
            return " or ".join(filter(None, (_guard_text(part, words) for part in parts)))
        case In("state", _) | Not(In("state", _)):
            return ""
        case Not(part):
            return _leaf_text(part, False)
    return _leaf_text(condition, True)


def _leaf_text(leaf: Condition, holds: bool) -> str:
    no = "" if holds else "not "
    match leaf:
        case Flag(name):
            return f"{no}*{name}*"
        case Unset(column):
            return f"`{column}` is {'unset' if holds else 'set'}"
        case Differs(column, other):
            return f"`{column}` is {'not ' if holds else ''}{_value_text(other)}"
    raise AssertionError(f"{leaf} has no words")


def _sets_text(row: Row[Any]) -> str:
    left = {column: value for column, value in row.assigned.items() if column != "state"}
    texts = []
    for name, group in GROUPS.items():
        alike = {column for column, value in group.items() if column in left and left[column] == value}
        if left.keys() >= group.keys() and 2 * len(alike) > len(group):  # the other columns are set to other values
            texts.append(f"*{name}*")
            left = {column: value for column, value in left.items() if column not in alike}
    return ", ".join([*texts, *(f"`{column}` = {_value_text(value)}" for column, value in left.items())])


def _value_text(value: Any) -> str:
    match value:
        case Column(name):
            return f"`{name}`"
        case Parameter(name, kept):
            return f"*{name}*" + (" if given" if kept else "")
        case Plus(term, more):
            return f"{_value_text(term)} + {_value_text(more)}"
        case Joined(parts):
            return " ".join(map(_value_text, parts))
        case _ if value == terms.NEXT_RUN_ID:
            return "the next run"
        case Pick(when, then, otherwise):
            return f"{_value_text(then)} if {_guard_text(when)}, else {_value_text(otherwise)}"
        case PodState() | JobState():
            return value.value
        case Termination(reason):
            return str(reason.value)
        case NextRun() | HealthState():
            return value.name
        case str():
            return f'"{value}"' if value else "empty"
        case None | {}:
            return "none"
    return str(value)


def _groups() -> Iterator[str]:
    yield "Groups of columns that are set together; values in *italics* come with the event:"
    yield ""
    for name, group in GROUPS.items():
        yield f"* *{name}*: " + ", ".join(f"`{column}` = {_value_text(value)}" for column, value in group.items())


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
