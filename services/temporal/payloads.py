"""Payload converter of Temporal's SDK that resolves the types of a dataclass's fields once per class.

The SDK evaluates the annotations of each class for each value, which took a third of the worker's time.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultPayloadConverter,
    JSONPlainPayloadConverter,
    JSONTypeConverter,
    value_to_type,
)

from peloton.model.field_types import field_types


class Dataclasses(JSONTypeConverter):
    def to_typed_value(self, hint: type, value: Any) -> Any:
        if not (isinstance(hint, type) and dataclasses.is_dataclass(hint) and isinstance(value, dict)):
            return JSONTypeConverter.Unhandled
        fields = field_types(hint).items()
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
