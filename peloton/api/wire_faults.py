"""Parsing of requests, with errors that name the field that is invalid or missing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError, Message

from peloton.errors import InvalidArgument

M = TypeVar("M", bound=Message)

SEARCHED_BYTES_MAX = 64 * 1024
"""Maximum bytes of an invalid message in which the faulty field is searched for."""
MISSING_MAX = 3
"""Maximum missing fields that are named."""
_PATH_MAX = 20

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}


def message_of(kind: type[M], raw: bytes) -> M:
    """Parse a message. Raises InvalidArgument, also for messages of Mesos that lack required fields or have strings
    that are not UTF-8: protobuf accepts these because they are proto2."""
    try:
        message = kind.FromString(raw)
    except DecodeError as error:
        reason = str(error).rpartition(": ")[2]
        path = _find_fault(cast(Descriptor, kind.DESCRIPTOR), raw) if len(raw) <= SEARCHED_BYTES_MAX else []
        where = f" at {'.'.join(path[:_PATH_MAX])}" if path else ""
        raise InvalidArgument(f"bytes that are no {kind.DESCRIPTOR.full_name}{where}: {reason}") from error
    if _contains_proto2(kind.DESCRIPTOR):
        if not message.IsInitialized():
            raise InvalidArgument(f"{kind.DESCRIPTOR.name} lacks required fields: {missing(message)}")
        if path := _find_non_text(message):
            raise InvalidArgument(f"{'.'.join(reversed(path))} of {kind.DESCRIPTOR.name} is not UTF-8")
    return message


def missing(message: Message) -> str:
    """Return the paths of missing required fields."""
    paths = list(_find_missing(message, ""))
    more = f" and {len(paths) - MISSING_MAX} more" if len(paths) > MISSING_MAX else ""
    return f"{', '.join(paths[:MISSING_MAX])}{more}"


def _find_missing(message: Message, before: str) -> Iterator[str]:
    """Yield the paths of missing required fields; ``before`` is that of the message. The search of protobuf itself ends
    the process when a map of numbers precedes the message that lacks a field."""
    required = (field for field in message.DESCRIPTOR.fields if field.is_required)
    yield from (f"{before}{field.name}" for field in required if not message.HasField(field.name))
    for name, is_repeated, is_map in _proto2_fields(message.DESCRIPTOR):
        value: Any = getattr(message, name)
        if is_map or is_repeated:
            for key in sorted(value) if is_map else range(len(value)):
                yield from _find_missing(value[key], f"{before}{name}[{key}].")
        elif message.HasField(name):
            yield from _find_missing(value, f"{before}{name}.")


class _Proto2Field(NamedTuple):
    """A field whose messages are proto2, or contain proto2 messages."""

    name: str
    is_repeated: bool
    is_map: bool


@cache
def _proto2_fields(kind: Descriptor) -> tuple[_Proto2Field, ...]:
    found = []
    for field in kind.fields:
        below = field.message_type
        if below is not None and _contains_proto2(below):
            found.append(_Proto2Field(field.name, field.is_repeated, below.GetOptions().map_entry))
    return tuple(found)


@cache
def _contains_proto2(kind: Descriptor) -> bool:
    seen, found = {kind.full_name}, [kind]
    for one in found:
        if _is_proto2(one):
            return True
        for field in one.fields:
            if field.message_type is not None and field.message_type.full_name not in seen:
                seen.add(field.message_type.full_name)
                found.append(field.message_type)
    return False


@cache
def _is_proto2(kind: Descriptor) -> bool:
    file = FileDescriptorProto()
    kind.file.CopyToProto(file)
    return file.syntax in ("", "proto2")


def _find_non_text(message: Any) -> list[str]:
    """Return the field names from a proto2 string that is not UTF-8 up to ``message``; empty without one."""
    if _is_proto2(message.DESCRIPTOR):
        return _find_non_text_in_proto2(message)
    for name, is_repeated, is_map in _proto2_fields(message.DESCRIPTOR):
        if is_repeated or message.HasField(name):
            value = getattr(message, name)
            for one in value.values() if is_map else value if is_repeated else (value,):
                if path := _find_non_text(one):
                    return [*path, name]
    return []


def _find_non_text_in_proto2(message: Any) -> list[str]:
    """Return the same for a proto2 message, whose strings that are not UTF-8 are read as bytes."""
    for field, value in message.ListFields():
        kind = field.type
        if kind == FieldDescriptor.TYPE_STRING:
            if type(value) is bytes or (type(value) is not str and any(type(one) is bytes for one in value)):
                return [field.name]
        elif kind == FieldDescriptor.TYPE_MESSAGE:
            for one in value if field.is_repeated else (value,):
                if path := _find_non_text_in_proto2(one):
                    return [*path, field.name]
    return []


def _find_fault(kind: Descriptor, raw: bytes) -> list[str]:
    """Return the names on the path to the first invalid field; empty if each field is valid by itself."""
    for number, wire_type, value in _fields(raw):
        field = kind.fields_by_number.get(number)
        name = f"field {number}" if field is None else field.name
        if value is None:
            return [name]
        if field is None or wire_type != _BYTES:
            continue
        if field.message_type is not None and not _is_readable(field.message_type, value):
            return [name, *_find_fault(field.message_type, value)]
        if field.type == FieldDescriptor.TYPE_STRING and not _is_text(value):
            return [name]
    return []


def _fields(raw: bytes) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield number, type and value of each field; an invalid field has the value None and is the last."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        number, wire_type, end = tag >> 3, tag & 7, -1
        if at and wire_type == _VARINT:
            end = _varint(raw, at)[1]
        elif at and wire_type == _BYTES:
            length, at = _varint(raw, at)
            end = at + length if at else -1
        elif at and wire_type in _FIXED:
            end = at + _FIXED[wire_type]
        if not at <= end <= len(raw) or not end:
            yield number, wire_type, None
            return
        yield number, wire_type, raw[at:end]
        at = end


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """Return the number and its end; 0 for an incomplete one."""
    number = 0
    for shift in range(10):
        if at + shift >= len(raw):
            return number, 0
        number |= (raw[at + shift] & 0x7F) << 7 * shift
        if raw[at + shift] < 0x80:
            return number, at + shift + 1
    return number, 0


def _is_readable(kind: Descriptor, raw: bytes) -> bool:
    try:
        message_factory.GetMessageClass(kind).FromString(raw)
    except DecodeError:
        return False
    return True


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
