"""The language of the state tables of pods and jobs: conditions and values that are defined once, evaluated here on a
record, and compiled to SQL by storage.

Column names are fields of the record. ``given`` holds the parameters of an event by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

Given = Mapping[str, Any]


# -- values --------------------------------------------------------------------------------------------------------


class Value:
    """Value that is assigned to a column. Objects of other types are constants."""

    __slots__ = ()

    def of(self, record: Any, given: Given) -> Any:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Column(Value):
    name: str

    def of(self, record: Any, given: Given) -> Any:
        return getattr(record, self.name)


@dataclass(frozen=True, slots=True)
class Parameter(Value):
    """Value of a parameter. ``kept``: column that keeps its value when the parameter is None."""

    name: str
    kept: str = ""

    def of(self, record: Any, given: Given) -> Any:
        value = given[self.name]
        return getattr(record, self.kept) if value is None and self.kept else value


@dataclass(frozen=True, slots=True)
class Plus(Value):
    term: Column | Parameter
    more: int | Parameter

    def of(self, record: Any, given: Given) -> Any:
        return self.term.of(record, given) + value_of(self.more, record, given)


@dataclass(frozen=True, slots=True)
class Joined(Value):
    """Concatenation of texts."""

    parts: tuple[str | Parameter, ...]

    def of(self, record: Any, given: Given) -> Any:
        return "".join(value_of(part, record, given) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Pick(Value):
    when: Condition
    then: Any
    otherwise: Any

    def of(self, record: Any, given: Given) -> Any:
        return value_of(self.then if self.when.holds(record, given) else self.otherwise, record, given)


def value_of(value: Any, record: Any, given: Given) -> Any:
    return value.of(record, given) if isinstance(value, Value) else value


# -- conditions ----------------------------------------------------------------------------------------------------


class Condition:
    """Condition on a record, combined by ``&``, ``|`` and ``~``."""

    __slots__ = ()

    def holds(self, record: Any, given: Given) -> bool:
        raise NotImplementedError

    def evaluate(self, leaf: Callable[[Condition], bool]) -> bool:
        """Evaluate the condition without a record, from the answers of its leaves."""
        return leaf(self)

    def __and__(self, other: Condition) -> Condition:
        return All((*_parts(self, All), *_parts(other, All)))

    def __or__(self, other: Condition) -> Condition:
        return Either((*_parts(self, Either), *_parts(other, Either)))

    def __invert__(self) -> Condition:
        return self.part if isinstance(self, Not) else Not(self)


@dataclass(frozen=True, slots=True)
class In(Condition):
    column: str
    values: frozenset[Any]

    def holds(self, record: Any, given: Given) -> bool:
        return getattr(record, self.column) in self.values


@dataclass(frozen=True, slots=True)
class Unset(Condition):
    """Condition that the column is 0, empty or None."""

    column: str

    def holds(self, record: Any, given: Given) -> bool:
        return not getattr(record, self.column)


@dataclass(frozen=True, slots=True)
class Differs(Condition):
    column: str
    other: Any  # Column, Parameter or a constant

    def holds(self, record: Any, given: Given) -> bool:
        return bool(getattr(record, self.column) != value_of(self.other, record, given))


@dataclass(frozen=True, slots=True)
class Exceeds(Condition):
    column: str
    other: Column | Parameter

    def holds(self, record: Any, given: Given) -> bool:
        return bool(getattr(record, self.column) > self.other.of(record, given))


@dataclass(frozen=True, slots=True)
class Flag(Condition):
    """Condition that a parameter of the event is true."""

    name: str

    def holds(self, record: Any, given: Given) -> bool:
        return bool(given[self.name])


@dataclass(frozen=True, slots=True)
class Not(Condition):
    part: Condition

    def holds(self, record: Any, given: Given) -> bool:
        return not self.part.holds(record, given)

    def evaluate(self, leaf: Callable[[Condition], bool]) -> bool:
        return not self.part.evaluate(leaf)


@dataclass(frozen=True, slots=True)
class All(Condition):
    parts: tuple[Condition, ...] = ()

    def holds(self, record: Any, given: Given) -> bool:
        for part in self.parts:  # noqa: SIM110, a generator would take twice as long, for every report of a host
            if not part.holds(record, given):
                return False
        return True

    def evaluate(self, leaf: Callable[[Condition], bool]) -> bool:
        for part in self.parts:  # noqa: SIM110
            if not part.evaluate(leaf):
                return False
        return True


@dataclass(frozen=True, slots=True)
class Either(Condition):
    parts: tuple[Condition, ...] = ()

    def holds(self, record: Any, given: Given) -> bool:
        return any(part.holds(record, given) for part in self.parts)

    def evaluate(self, leaf: Callable[[Condition], bool]) -> bool:
        return any(part.evaluate(leaf) for part in self.parts)


ALWAYS = All()


def _parts(condition: Condition, kind: type[All] | type[Either]) -> tuple[Condition, ...]:
    return condition.parts if isinstance(condition, kind) else (condition,)


def parameters(of: Any) -> Iterator[str]:
    """Yield the names of the parameters that a condition or a value reads."""
    match of:
        case Parameter(name) | Flag(name):
            yield name
        case Plus(term, more):
            yield from (*parameters(term), *parameters(more))
        case Joined(texts):
            for text in texts:
                yield from parameters(text)
        case Differs(_, other) | Exceeds(_, other):
            yield from parameters(other)
        case Pick(when, then, otherwise):
            yield from (*parameters(when), *parameters(then), *parameters(otherwise))
        case Not(part):
            yield from parameters(part)
        case All(parts) | Either(parts):
            for part in parts:
                yield from parameters(part)


# -- rows ----------------------------------------------------------------------------------------------------------

S = TypeVar("S", bound=StrEnum)


class Row(Generic[S]):
    """A transition: guard, next state, and assigned fields of the record. With ``to`` None the state does not change;
    assigned objects that are no Value are constants."""

    __slots__ = ("assigned", "constants", "guard", "to", "values")

    def __init__(self, guard: Condition, to: S | None, sets: Mapping[str, Any] | None = None, **more: Any) -> None:
        self.guard, self.to = guard, to
        self.assigned = {**({} if to is None else {"state": to}), **(sets or {}), **more}
        self.constants = {name: value for name, value in self.assigned.items() if not isinstance(value, Value)}
        self.values = {name: value for name, value in self.assigned.items() if isinstance(value, Value)}


def decide(rows: Iterable[Row[Any]], record: Any, given: Given) -> dict[str, Any] | None:
    """Return the fields that the first row with a true guard sets; None without such a row."""
    for row in rows:
        if row.guard.holds(record, given):
            return {**row.constants, **{name: value.of(record, given) for name, value in row.values.items()}}
    return None
