"""Payload converter of Temporal's SDK that resolves the types of a dataclass's fields once per class.

The SDK evaluates the annotations of each class for each value, which took a third of the worker's time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any, get_type_hints

from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultPayloadConverter,
    JSONPlainPayloadConverter,
    JSONTypeConverter,
    value_to_type,
)


@cache
def _fields(kind: type) -> Mapping[str, Any]:
    """Return the types of a dataclass's fields. The cache has as many entries as signatures of workflows and activities
    have classes.
    """
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}


class Dataclasses(JSONTypeConverter):
    def to_typed_value(self, hint: type, value: Any) -> Any:
        if not (isinstance(hint, type) and dataclasses.is_dataclass(hint) and isinstance(value, dict)):
            return JSONTypeConverter.Unhandled
        fields = _fields(hint).items()
        return hint(**{name: value_to_type(kind, value[name], (self,)) for name, kind in fields if name in value})


class Payloads(CompositePayloadConverter):
    def __init__(self) -> None:
        kept = (
            JSONPlainPayloadConverter(custom_type_converters=(Dataclasses(),))
            if isinstance(converter, JSONPlainPayloadConverter)
            else converter
            for converter in DefaultPayloadConverter.default_encoding_payload_converters
        )
        super().__init__(*kept)


CONVERTER = dataclasses.replace(DataConverter.default, payload_converter_class=Payloads)
