"""Peloton's roles as parts of the local cluster."""

from __future__ import annotations

ROLES = ("hostmgr", "resmgr", "api", "worker")
"""The roles of every local cluster, in this order."""
WEB, BRIDGE = "web", "aurorabridge"


def is_role(part: str) -> bool:
    """Return whether a part is a role: ``hostmgr``, or ``hostmgr-b`` of another cluster."""
    return role_of(part) in (*ROLES, WEB, BRIDGE)


def role_of(part: str) -> str:
    return part.partition("-")[0]


def several(role: str, count: int) -> list[str]:
    """Return names of the parts that share a role: api, api-2, api-3."""
    return [role if number == 1 else f"{role}-{number}" for number in range(1, count + 1)]
