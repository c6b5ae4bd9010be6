"""What is wrong with an id or the name of a role, in the master's words."""

from __future__ import annotations

import re

ID_MAX = 255
_INVALID = re.compile(r"[/\\\x00-\x1f\x7f]")
_BLANKS = frozenset("\x08\t\n\x0b\x0c\r ")


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


def role_fault(role: str) -> str | None:
    if not role:
        return "Role names cannot be the empty string"
    if role == "*":
        return None
    if role.startswith("/"):
        return f"Role '{role}' cannot start with a slash"
    if role.endswith("/"):
        return f"Role '{role}' cannot end with a slash"
    if "//" in role:
        return f"Role '{role}' cannot contain two adjacent slashes"
    for part in role.split("/"):
        if part in (".", "..", "*"):
            return f"Role '{role}' cannot include '{part}' as a component"
        if part.startswith("-"):
            return f"Role component '{part}' is invalid because it starts with a dash"
        if _BLANKS.intersection(part):
            return f"Role component '{part}' is invalid because it contains backspace or whitespace"
    return None
