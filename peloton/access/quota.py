"""Quotas of users: pure decisions about numbers that storage counts."""

from __future__ import annotations

ACTIVE_PODS = "active_pods"


def pods_refusal(user: str, active: int, added: int, most: int) -> str:
    """Return why a user with ``active`` pods may not add more, or "". What adds none is never refused; 0: any number.

    A job that alone exceeds the quota is refused for that, since waiting would not help.
    """
    if not most or added <= 0 or active + added <= most:
        return ""
    if added > most:
        return f"{added:,} pods at once exceed the quota of user {user}, {most:,} active pods"
    return f"user {user} has {active:,} active pods, and {added:,} more would exceed the quota of {most:,}"
