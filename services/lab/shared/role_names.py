"""The validation of role names, for which hosts may be reserved, with the messages of a Mesos master."""

from __future__ import annotations

_BLANKS = frozenset("\x08\t\n\x0b\x0c\r ")


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
