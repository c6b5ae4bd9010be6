"""Quotas of users: which limit a user has, and pure decisions about numbers that storage counts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from peloton.access.caller import Caller, Role

SUBMISSIONS, ACTIVE_PODS = "submissions_per_minute", "active_pods"
QUOTAS = (SUBMISSIONS, ACTIVE_PODS)
ANYONE = "*"
"""Subject that every caller with credentials is."""
USER, GROUP, ROLE, SPIFFE, COMMON_NAME, BELOW = "user:", "group:", "role:", "spiffe://", "cn:", "/*"
"""Beginnings of subjects, and the end of one that stands for all SPIFFE ids below a path."""

Rules = Mapping[str, Mapping[str, int]]
"""Subject -> limits by quota; 0: any number. A subject may have one of the quotas alone."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of a user, 0 for any number, and the rule that gives it: a subject, or the name of a setting."""

    most: int
    rule: str


def list_roles(caller: Caller) -> list[str]:
    """Return the subjects of the roles that a caller has, on any pool."""
    return [f"{ROLE}{role}" for role in Role if caller.has_anywhere(role)]


def subjects_of_name(name: str) -> tuple[str, ...]:
    """Return the subjects of a user of whom the name alone is known; an anonymous one has none."""
    if not name:
        return ()
    return (name if name.startswith(SPIFFE) else f"{USER}{name}", ANYONE)


def find_limit(rules: Rules, quota: str, subjects: Collection[str], default: Limit) -> Limit:
    """Return the limit of a user: its own rule, else the greatest of its groups, else of its roles, else that of all
    users, else the default."""
    found = [
        (_rank(subject), rules[subject][quota], subject) for subject in subjects if quota in rules.get(subject, ())
    ]
    if not found:
        return default
    nearest = min(rank for rank, _, _ in found)
    _, most, rule = max((one for one in found if one[0] == nearest), key=lambda one: (one[1] == 0, one[1], one[2]))
    return Limit(most, rule)


def _rank(subject: str) -> int:
    if subject == ANYONE:
        return 3
    if subject.startswith(ROLE):
        return 2
    return 1 if subject.startswith(GROUP) or subject.endswith(BELOW) else 0


def pods_refusal(user: str, active: int, added: int, limit: Limit) -> str:
    """Return why a user with ``active`` pods may not add more, or "". What adds none is never refused; 0: any number.

    A job that alone exceeds the quota is refused for that, since waiting would not help.
    """
    most = limit.most
    if not most or added <= 0 or active + added <= most:
        return ""
    rule = f"the rule is {limit.rule}"
    if added > most:
        return f"{added:,} pods at once exceed the quota of user {user}, {most:,} active pods; {rule}"
    return f"user {user} has {active:,} active pods, and {added:,} more would exceed the quota of {most:,}; {rule}"
