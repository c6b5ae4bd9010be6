"""Our roles as parts of the local cluster."""

from __future__ import annotations

ROLES = ("hostmgr", "resmgr", "api", "worker")
"""Of every local cluster, in this order."""
WEB = "web"


def is_role(part: str) -> bool:
    """``hostmgr``, or ``hostmgr-b`` of another cluster."""
    return part.partition("-")[0] in (*ROLES, WEB)


def several(role: str, count: int) -> list[str]:
    """Names of the parts that share a role: api, api-2, api-3."""
    return [role if number == 1 else f"{role}-{number}" for number in range(1, count + 1)]
