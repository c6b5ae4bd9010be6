"""Validation of ids, with the master's texts."""

from __future__ import annotations

import re

ID_MAX = 255
_INVALID = re.compile(r"[/\\\x00-\x1f\x7f]")


def id_fault(id_: str) -> str | None:
    if not id_:
        return "ID must not be empty"
    if len(id_) > ID_MAX:
        return f"ID must not be greater than {ID_MAX} characters"
    if id_ in (".", ".."):
        return f"'{id_}' is disallowed"
    if _INVALID.search(id_):
        return f"'{id_}' contains invalid characters"
    return None
