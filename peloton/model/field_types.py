"""Types of the fields of dataclasses, which are expensive to resolve: Python evaluates the text of each annotation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any, get_type_hints


@cache
def field_types(kind: Any) -> Mapping[str, Any]:
    """Return the types of the fields that a dataclass is constructed from, by name; empty for any other type. The cache
    has an entry for each type in signatures of workflows and activities, in rows and in reasons.
    """
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        return {}
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}
