"""The plan of a deployment: what to create, update and delete, in which order, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from peloton.deployment.parts import EMULATORS, ORDER, PROGRAM, Part

VALUE_SHOWN = 60


class Action(StrEnum):
    CREATE = "create"
    UPDATE = "update"
    WAIT = "wait"
    KEEP = "keep"
    DELETE = "delete"


@dataclass(frozen=True)
class Observed:
    """A part as it is in the outer Peloton."""

    part: Part
    is_settled: bool  # all of its pods serve, and no update is under way


@dataclass(frozen=True)
class Step:
    """One action on one part. ``reasons`` say what is different."""

    action: Action
    name: str
    reasons: tuple[str, ...] = ()


def plan(wanted: Iterable[Part], observed: Mapping[str, Observed], backwards: bool = False) -> list[Step]:
    """Return a step for each part in order; with ``backwards`` in the order of a return to an older release.

    Parts that are not wanted are deleted last, clients of others first.
    """
    parts = {part.name: part for part in wanted}
    steps = [step_of(part, observed.get(name)) for name, part in parts.items()]
    if backwards:
        steps.sort(key=lambda step: -ORDER.index(step.name) if step.action is Action.UPDATE else 0)
    gone = [name for name in reversed(ORDER) if name in observed and name not in parts]
    return [*steps, *(Step(Action.DELETE, name, ("it is not in the deployment",)) for name in gone)]


def plan_deletion(observed: Mapping[str, Observed]) -> list[Step]:
    """Return the steps that delete all parts, clients of others first."""
    return [Step(Action.DELETE, name) for name in reversed(ORDER) if name in observed]


def step_of(part: Part, seen: Observed | None) -> Step:
    if seen is None:
        return Step(Action.CREATE, part.name, (f"{part.instances} pod{'s' * (part.instances > 1)}",))
    if reasons := differences(seen.part, part):
        return Step(Action.UPDATE, part.name, tuple(reasons))
    if not seen.is_settled:
        return Step(Action.WAIT, part.name, ("its pods do not all serve yet",))
    return Step(Action.KEEP, part.name)


def differences(old: Part, new: Part) -> list[str]:
    """Return a sentence for each field and variable that differs."""
    found: list[str] = []
    for field in ("instances", "cpu", "memory_mib", "image", "port_variable", "command", "check"):
        before, after = getattr(old, field), getattr(new, field)
        if before != after and not (field == "check" and found):  # its program is that of the command
            found.append(f"{field}: {shorten_value(before)} -> {shorten_value(after)}")
    kept = {PROGRAM} if new.name in EMULATORS else set()
    for name in sorted({*old.environment, *new.environment} - kept):
        before, after = old.environment.get(name), new.environment.get(name)
        if before != after:
            found.append(f"{name}: {mask(name, before)} -> {mask(name, after)}")
    return found


def mask(name: str, value: str | None) -> str:
    """Return a value for people. URLs of databases may have passwords."""
    if value is None:
        return "unset"
    return "another URL" if name == "PELOTON_DATABASE" and "@" in value else shorten_value(value)


def shorten_value(value: object) -> str:
    """Return the last line of a value, which has the program of a command, at most so long."""
    line = (str(value).splitlines() or [""])[-1] or "none"
    return line if len(line) <= VALUE_SHOWN else f"{line[: VALUE_SHOWN - 3]}..."


def changes(steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if step.action is not Action.KEEP]
