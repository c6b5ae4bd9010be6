"""NOT of a constraint, carried down to the labels.

What evaluates, describes, stores and sends constraints knows AND and OR alone; so do the roles of older releases.
"""

from __future__ import annotations

from dataclasses import replace

from peloton.model.pod import AllOf, AnyOf, Constraint, HostLabel, PodLabel

COUNT_MAX = 2**32 - 1
"""As the wire has it. No label occurs so often."""


def negated(constraint: Constraint) -> Constraint:
    """Refuses what the constraint takes, takes what it refuses, and has no say where the constraint has none."""
    match constraint:
        case AllOf(parts):
            return AnyOf(tuple(negated(part) for part in parts))
        case AnyOf(parts):
            return AllOf(tuple(negated(part) for part in parts))
        case HostLabel() | PodLabel():
            return _other_counts(constraint)


def _other_counts(leaf: HostLabel | PodLabel) -> Constraint:
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
    """The leaf of which this is the negation, should it be that of one ``=``."""
    match constraint.constraints:
        case (HostLabel() | PodLabel() as less, HostLabel() | PodLabel() as more) if less.condition == "<":
            return replace(less, condition="=") if replace(less, condition=">") == more else None
    return None
