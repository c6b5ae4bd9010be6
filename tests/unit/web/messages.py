"""Random messages of any type, for hypothesis."""

from __future__ import annotations

from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import strategies as st

from tests.present import require

DEPTH_MAX = 3
FIELDS_MAX = 4
"""The maximum number of optional fields of one message; required fields are always set."""
LAST_SECOND = 253_402_300_799
"""The last second of the year 9999, which is the maximum of a timestamp."""

_K = FieldDescriptor
_SCALARS: dict[int, st.SearchStrategy[Any]] = {
    _K.CPPTYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    _K.CPPTYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    _K.CPPTYPE_UINT32: st.integers(0, 2**32 - 1),
    _K.CPPTYPE_UINT64: st.integers(0, 2**64 - 1),
    _K.CPPTYPE_DOUBLE: st.floats(allow_nan=False),
    _K.CPPTYPE_FLOAT: st.floats(width=32, allow_nan=False),
    _K.CPPTYPE_BOOL: st.booleans(),
}


@st.composite
def messages(draw: st.DrawFn, kind: Any, depth: int = 0) -> Any:
    """Draw a message of ``kind`` with some of its fields set to any valid value."""
    message: Any = message_factory.GetMessageClass(kind)()
    if kind.full_name == "google.protobuf.Timestamp":
        message.seconds = draw(st.integers(0, LAST_SECOND))
        message.nanos = draw(st.integers(0, 999_999_999))
        return message
    chosen = draw(st.sets(st.sampled_from(list(kind.fields)), max_size=FIELDS_MAX)) if kind.fields else set()
    for field in kind.fields:
        is_deep = depth >= DEPTH_MAX and field.message_type is not None
        if not field.is_required and (field not in chosen or is_deep):
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _fill_map(draw, getattr(message, field.name), field, depth)
        elif field.is_repeated:
            for _ in range(draw(st.integers(1, 2))):
                _append(draw, getattr(message, field.name), field, depth)
        elif field.message_type is not None:
            getattr(message, field.name).CopyFrom(draw(messages(field.message_type, depth + 1)))
        else:
            setattr(message, field.name, draw(scalars(field)))
    return message


def _fill_map(draw: st.DrawFn, target: Any, field: FieldDescriptor, depth: int) -> None:
    key_field, value_field = (require(field.message_type).fields_by_name[name] for name in ("key", "value"))
    key = draw(scalars(key_field))
    if value_field.message_type is not None:
        target[key].CopyFrom(draw(messages(value_field.message_type, depth + 1)))
    else:
        target[key] = draw(scalars(value_field))


def _append(draw: st.DrawFn, target: Any, field: FieldDescriptor, depth: int) -> None:
    if field.message_type is not None:
        target.add().CopyFrom(draw(messages(field.message_type, depth + 1)))
    else:
        target.append(draw(scalars(field)))


def scalars(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.type == _K.TYPE_BYTES:
        return st.binary(max_size=5)
    if field.type == _K.TYPE_STRING:
        return st.text(max_size=5)
    if field.type == _K.TYPE_ENUM:
        return st.sampled_from([value.number for value in require(field.enum_type).values])
    return _SCALARS[field.cpp_type]
