"""Writes docs/host-state.md from the events of the state of the hosts: ``python -m peloton.hosts.state_page``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import getdoc
from pathlib import Path
from typing import NamedTuple

from peloton.hosts.effects import Effect, effects_of
from peloton.hosts.state import HostState

TARGET = Path(__file__).resolve().parents[2] / "docs" / "host-state.md"
OPENING = """# The state of the hosts

Generated from the methods of [HostState](../peloton/hosts/state.py) by `make docs`; do not edit. Why the state has no
lock, clock or I/O is in [ADR 89](adr/0089-a-pure-state-of-the-hosts.md).

The host manager applies *events* to the state one at a time. An event returns what its caller needs (a lease, claims,
the jobs that may find hosts now), and may have further *effects*, which the
[owner](../services/hostmgr/hosts/host_owner.py) logs and records after it. Dotted arrows are answers, full ones are
effects.
"""
ANSWERS = ("JobsToWake", "HostLease")
"""The answers that are drawn."""


class Event(NamedTuple):
    part: str  # the part of the state that applies it; empty: the state itself
    name: str
    answer: str
    effects: tuple[type[Effect], ...]
    meaning: str


def events() -> Iterator[Event]:
    """Yield the events by part, in the order of the code."""
    state = HostState(0.0)
    yield from _events_of("", HostState)
    for part, held in (vars(state) | {"pod_labels": state.table.pod_labels}).items():
        yield from _events_of(part, type(held))


def _events_of(part: str, kind: type) -> Iterator[Event]:
    for name, method in vars(kind).items():
        if (effects := effects_of(method)) is not None:
            yield Event(part, name, method.__annotations__["return"], effects, _first_sentence(method))


def _first_sentence(method: Callable[..., object]) -> str:
    text = " ".join((getdoc(method) or "").replace("``", "`").split())
    return text.partition(". ")[0].rstrip(".")


def page() -> str:
    found = list(events())
    return "\n".join([OPENING, *_drawing(found), "", *_table(found), "", *_effects(found), ""])


def _drawing(found: list[Event]) -> Iterator[str]:
    """Yield the lines of the diagram: the events of each part on the left, the effects on the right."""
    yield "```mermaid"
    yield "flowchart LR"
    yield '    state(["HostState"])'
    for part in dict.fromkeys(event.part for event in found):
        names = "<br>".join(event.name for event in found if event.part == part)
        yield f'    {part or "hosts"}["<b>{part or "hosts, pods, leases"}</b><br>{names}"] --> state'
    for kind in _kinds(found):
        causes = "<br>".join(_name_of(event) for event in found if kind in event.effects)
        yield f'    state -->|"{causes}"| {kind.__name__}'
    for answer in ANSWERS:
        causes = "<br>".join(_name_of(event) for event in found if event.answer == answer)
        yield f'    state -. "{causes}" .-> {answer}'
    yield "```"


def _kinds(found: list[Event]) -> dict[type[Effect], None]:
    return dict.fromkeys(kind for event in found for kind in event.effects)


def _name_of(event: Event) -> str:
    return f"{event.part}.{event.name}" if event.part else event.name


def _table(found: list[Event]) -> Iterator[str]:
    yield "| event | meaning | returns | effects |"
    yield "|---|---|---|---|"
    for event in found:
        answer = "" if event.answer == "None" else f"`{event.answer}`".replace("|", "\\|")
        effects = ", ".join(kind.__name__ for kind in event.effects)
        yield f"| **{_name_of(event)}** | {event.meaning} | {answer} | {effects} |"


def _effects(found: list[Event]) -> Iterator[str]:
    yield "| effect | meaning |"
    yield "|---|---|"
    for kind in _kinds(found):
        yield f"| {kind.__name__} | {_first_sentence(kind)} |"


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
