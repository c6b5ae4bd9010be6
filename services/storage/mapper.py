"""Mapping between dataclasses and rows: each field has the column of its name, and is converted by its type.

A mapper is built once per class. Enums are numbers in columns of numbers and their values in columns of texts; other
types that columns lack need a ``Form``, or a ``Part`` for several columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from enum import Enum
from operator import attrgetter, itemgetter
from typing import Any, Generic, TypeVar, get_args, get_origin

import sqlalchemy as sa

from peloton.api.convert import HEALTH_NUMBERS, JOB_STATE_NUMBERS, JOB_TYPE_NUMBERS, POD_STATE_NUMBERS
from peloton.api.convert_volume import VOLUME_STATE_NUMBERS
from peloton.api.v0.host import host_pb2
from peloton.model.field_types import field_types
from peloton.model.host import HostState
from peloton.model.job import JobState, JobType
from peloton.model.making import maker
from peloton.model.pod import HealthState, NextRun, PodState
from peloton.model.volume import VolumeState

T = TypeVar("T")
Convert = Callable[[Any], Any]
NUMBERS: Mapping[type[Enum], Mapping[Any, int]] = {
    JobState: JOB_STATE_NUMBERS,
    JobType: JOB_TYPE_NUMBERS,
    PodState: POD_STATE_NUMBERS,
    HealthState: HEALTH_NUMBERS,
    NextRun: {reason: int(reason) for reason in NextRun},
    VolumeState: VOLUME_STATE_NUMBERS,
    HostState: {state: host_pb2.HostState.Value(f"HOST_STATE_{state}") for state in HostState},
}
"""Numbers of enums in columns."""


def strip_nul(text: str) -> str:
    """Remove NUL characters, which PostgreSQL cannot store."""
    return text.replace("\x00", "")


@dataclass(frozen=True, slots=True)
class Form:
    """Form of a field in its column; None leaves a value as it is."""

    to_column: Convert | None = None
    from_column: Convert | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Field that is stored in several columns, or, without any, not at all."""

    columns: tuple[str, ...]
    make: Callable[..., Any]
    split: Callable[[Any], Iterable[Any]]


def spread(kind: type[Any]) -> Part:
    """Store each field of a nested dataclass in the column of its name."""
    names = tuple(field.name for field in fields(kind))
    return Part(names, kind, attrgetter(*names))


def not_stored(value: Any) -> Part:
    """Leave a field out of the table: it is read as ``value``."""
    return Part((), lambda: value, lambda _: ())


def to_json(value: Any) -> str:
    """Return a dataclass as JSON without NUL."""
    return strip_nul(json.dumps(asdict(value)))


def from_json(kind: Any, value: Any) -> Any:
    """Build a value of a type from parsed JSON; unknown fields, which the next release may write, are ignored."""
    if types := field_types(kind):
        return kind(**{name: from_json(each, value[name]) for name, each in types.items() if name in value})
    if get_origin(kind) is tuple:
        first, *others = get_args(kind)
        kinds = [first] * len(value) if others == [...] else [first, *others]
        return tuple(map(from_json, kinds, value))
    return kind(value) if isinstance(kind, type) and issubclass(kind, Enum) else value


def json_form(kind: Any, empty: Any = MISSING) -> Form:
    """Store a dataclass as JSON; ``empty`` is the value of an empty text."""

    def load(text: str) -> Any:
        return empty if not text and empty is not MISSING else from_json(kind, json.loads(text))

    return Form(lambda value: "" if value is None else to_json(value), load)


class Mapper(Generic[T]):
    """Mapper of a dataclass and a table; ``given`` has the forms of fields that their types do not determine."""

    def __init__(self, record: type[T], table: sa.Table, **given: Form | Part) -> None:
        kind: Any = record
        types = field_types(kind)
        names = list(types)
        self._make = maker(record)
        self._forms = {name: given.get(name) or _form_of(types[name], table.c[name]) for name in names}
        places = {column.name: at for at, column in enumerate(table.columns)}
        self._pick = itemgetter(*(places.get(name, 0) for name in names))
        self._converts, self._makes = list[tuple[int, Convert]](), list[tuple[int, Convert, Convert]]()
        for at, form in enumerate(self._forms.values()):
            if isinstance(form, Part):
                self._makes.append((at, _get_all([places[name] for name in form.columns]), form.make))
            elif form.from_column is not None:
                self._converts.append((at, form.from_column))
        self.values = self.writer(names)
        """Function from a record to its columns."""

    def record(self, row: sa.Row[Any] | tuple[Any, ...]) -> T:
        """Build a record from a row that begins with the table's columns, by position: names take twice as long."""
        found = tuple(row)
        values = list(self._pick(found))
        for at, convert in self._converts:
            values[at] = convert(values[at])
        for at, get, make in self._makes:
            values[at] = make(*get(found))
        return self._make(*values)

    def writer(self, names: Iterable[str], prefix: str = "") -> Callable[[T], dict[str, Any]]:
        """Return a function from a record to the columns of several fields, their names with a prefix."""
        columns, values = self.lister(names)
        columns = [prefix + name for name in columns]
        return lambda record: dict(zip(columns, values(record), strict=True))

    def lister(self, names: Iterable[str]) -> tuple[list[str], Callable[[T], list[Any]]]:
        """Return the columns of several fields, and a function from a record to the values of these columns."""
        plain, parts, converts = list[str](), list[tuple[Convert, Part]](), list[tuple[int, Convert]]()
        for name in names:
            form = self._forms[name]
            if isinstance(form, Part):
                parts.append((attrgetter(name), form))
                continue
            if form.to_column is not None:
                converts.append((len(plain), form.to_column))
            plain.append(name)
        columns = [*plain, *(name for _, part in parts for name in part.columns)]
        get = attrgetter(*plain)

        def values(record: T) -> list[Any]:
            found = list(get(record))
            for at, convert in converts:
                found[at] = convert(found[at])
            for of, part in parts:
                found += part.split(of(record))
            return found

        return columns, values


def _get_all(places: Sequence[int]) -> Convert:
    return itemgetter(*places) if len(places) > 1 else lambda found: [found[at] for at in places]


def _form_of(kind: Any, column: sa.Column[Any]) -> Form:
    if isinstance(kind, type) and issubclass(kind, Enum):
        if isinstance(column.type, sa.Text):
            return Form(attrgetter("value"), kind)
        numbers = NUMBERS[kind]
        return Form(numbers.__getitem__, {number: value for value, number in numbers.items()}.__getitem__)
    base = getattr(kind, "__supertype__", kind)  # of a NewType
    if base not in (int, float, bool, str, bytes):
        raise TypeError(f"field {column.name} of table {column.table.name} is of type {kind}: give its form")
    return Form(strip_nul) if base is str and isinstance(column.type, sa.Text) else Form()
