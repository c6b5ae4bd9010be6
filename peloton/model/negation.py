"""Negation of constraints, pushed down to the labels.

Constraints are evaluated, described, stored and sent with AND and OR only, also by roles of older releases.
"""

from __future__ import annotations

from dataclasses import replace

from peloton.model.pod import AllOf, AnyOf, Constraint, HostLabel, PodLabel

COUNT_MAX = 2**32 - 1
"""Maximum count on the wire, above any real number of occurrences."""


def negate(constraint: Constraint) -> Constraint:
    """Return the negation: it refuses what the constraint accepts, and accepts what the constraint refuses. Pods or
    hosts that the constraint does not restrict stay unrestricted."""
    match constraint:
        case AllOf(parts):
            return AnyOf(tuple(negate(part) for part in parts))
        case AnyOf(parts):
            return AllOf(tuple(negate(part) for part in parts))
        case HostLabel() | PodLabel():
            return _negate_leaf(constraint)


def _negate_leaf(leaf: HostLabel | PodLabel) -> Constraint:
    count = leaf.count
    less, more = replace(leaf, condition="<"), replace(leaf, condition=">")
    match leaf.condition:
        case "<" if count == 0:
            return AnyOf((replace(less, count=1), more))  # every count
        case "<":
            return replace(more, count=count - 1)
        case ">":
            return replace(less, count=min(count + 1, COUNT_MAX))
    return AnyOf((less, more)) if count else more


def unequal(constraint: AnyOf) -> HostLabel | PodLabel | None:
    """Return the leaf whose single ``=`` the constraint negates, or None."""
    match constraint.constraints:
        case (HostLabel() | PodLabel() as less, HostLabel() | PodLabel() as more) if less.condition == "<":
            return replace(less, condition="=") if replace(less, condition=">") == more else None
    return None
