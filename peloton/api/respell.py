"""Copies between messages of the two API versions, which spell the same fields differently."""

from __future__ import annotations

from collections.abc import Container
from functools import lru_cache
from typing import Any, NamedTuple

from google.protobuf.message import Message

PAIRS_MAX = 128
"""Maximum cached pairs of message types whose fields have been compared."""


class _Shared(NamedTuple):
    """A field of two messages."""

    name: str  # in the source
    other: str  # in the target
    is_message: bool
    is_repeated: bool
    has_same_encoding: bool  # its messages are the same on the wire


def respell(source: Message, target: Message, names: Container[str] | None = None) -> None:
    """Set the fields of ``target`` that ``source`` has under a name that differs at most in case and underscores
    (``cpu_limit``, ``cpuLimit``), recursively. Numbers of enums are copied unchanged; a message is not copied to a text
    of the same name. ``names``: only these fields of ``source``. A scalar that is zero or empty counts as unset."""
    for field in _find_shared(source.DESCRIPTOR, target.DESCRIPTOR):
        if names is not None and field.name not in names:
            continue
        if field.is_repeated:
            for item in getattr(source, field.name):
                if field.is_message:
                    _copy(item, getattr(target, field.other).add(), field.has_same_encoding)
                else:
                    getattr(target, field.other).append(item)
        elif not field.is_message:
            if value := getattr(source, field.name):
                setattr(target, field.other, value)
        elif source.HasField(field.name):
            getattr(target, field.other).SetInParent()
            _copy(getattr(source, field.name), getattr(target, field.other), field.has_same_encoding)


def _copy(source: Message, target: Message, has_same_encoding: bool) -> None:
    if has_same_encoding:
        target.MergeFromString(source.SerializeToString())  # much faster than field by field
    else:
        respell(source, target)


@lru_cache(maxsize=PAIRS_MAX)
def _find_shared(source: Any, target: Any) -> tuple[_Shared, ...]:
    """Return the shared fields of two descriptors, cached because descriptors are slow."""
    others = {squash(field.name): field for field in target.fields}
    shared = []
    for field in source.fields:
        other = others.get(squash(field.name))
        is_message = field.message_type is not None
        if other is None or is_message != (other.message_type is not None) or field.is_repeated != other.is_repeated:
            continue
        has_same_encoding = is_message and _has_same_encoding(field.message_type, other.message_type, set())
        shared.append(_Shared(field.name, other.name, is_message, field.is_repeated, has_same_encoding))
    return tuple(shared)


def _has_same_encoding(one: Any, other: Any, seen: set[str]) -> bool:
    """Return whether two message types have the same fields with the same numbers and spellings."""
    if one.full_name == other.full_name or one.full_name in seen:
        return True
    seen.add(one.full_name)
    fields = other.fields_by_number
    return len(one.fields) == len(fields) and all(
        field.number in fields
        and squash(field.name) == squash(fields[field.number].name)
        and (
            field.message_type is None
            or _has_same_encoding(field.message_type, fields[field.number].message_type, seen)
        )
        for field in one.fields
    )


def squash(name: str) -> str:
    return name.replace("_", "").casefold()
