"""Constraints on the wire have the same meaning as their evaluation, NOT included."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.api import convert
from peloton.api.v0.task import task_pb2
from peloton.errors import InvalidArgument
from peloton.lifecycle.constraints import describe, evaluate
from peloton.model.negation import COUNT_MAX

Wire = task_pb2.Constraint
Counts = dict[str, dict[str, int]]
COUNTS = st.dictionaries(st.sampled_from("ab"), st.dictionaries(st.sampled_from("xy"), st.integers(1, 3)))
CONDITIONS = [
    task_pb2.LabelConstraint.CONDITION_LESS_THAN,
    task_pb2.LabelConstraint.CONDITION_EQUAL,
    task_pb2.LabelConstraint.CONDITION_GREATER_THAN,
]


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> Wire:
    kinds = [Wire.LABEL_CONSTRAINT, Wire.AND_CONSTRAINT, Wire.OR_CONSTRAINT, Wire.NOT_CONSTRAINT]
    wire = Wire(type=draw(st.sampled_from(kinds if depth else kinds[:1])))
    if wire.type == Wire.LABEL_CONSTRAINT:
        leaf = wire.labelConstraint
        leaf.kind = draw(st.sampled_from([task_pb2.LabelConstraint.HOST, task_pb2.LabelConstraint.TASK]))
        leaf.condition = draw(st.sampled_from(CONDITIONS))
        leaf.requirement = draw(st.sampled_from([0, 1, 2, 3, COUNT_MAX]))
        leaf.label.key, leaf.label.value = draw(st.sampled_from("ab")), draw(st.sampled_from("xy"))
    elif wire.type == Wire.NOT_CONSTRAINT:
        wire.notConstraint.constraint.CopyFrom(draw(trees(depth=depth - 1)))
    else:
        parts = draw(st.lists(trees(depth=depth - 1), max_size=3))
        (wire.andConstraint if wire.type == Wire.AND_CONSTRAINT else wire.orConstraint).constraints.extend(parts)
    return wire


def verdict(wire: Wire, labels: Counts, pods: Counts | None) -> bool | None:
    """Evaluate a constraint as documented; None means that it does not apply."""
    if wire.type == Wire.NOT_CONSTRAINT:
        inner = verdict(wire.notConstraint.constraint, labels, pods)
        return None if inner is None else not inner
    if wire.type == Wire.LABEL_CONSTRAINT:
        leaf = wire.labelConstraint
        counts = labels if leaf.kind == task_pb2.LabelConstraint.HOST else pods
        if counts is None:
            return None
        found = counts.get(leaf.label.key, {}).get(leaf.label.value, 0)
        sign = (found > leaf.requirement) - (found < leaf.requirement)
        return CONDITIONS[sign + 1] == leaf.condition
    wins = wire.type == Wire.OR_CONSTRAINT
    parts = (wire.orConstraint if wins else wire.andConstraint).constraints
    said = [one for part in parts if (one := verdict(part, labels, pods)) is not None]
    return None if not said else wins if wins in said else not wins


@given(trees(), COUNTS, st.none() | COUNTS)
def test_a_constraint_means_what_the_language_says(wire: Wire, labels: Counts, pods: Counts | None) -> None:
    """The meanings agree for any tree of AND, OR and NOT, any labels, and pods that are counted or not."""
    constraint = convert.constraint(wire)

    assert constraint is not None
    assert verdict(wire, labels, pods) == evaluate(constraint, labels, pods)


def label(condition: task_pb2.LabelConstraint.Condition.ValueType, count: int) -> Wire:
    wire = Wire(type=Wire.LABEL_CONSTRAINT)
    wire.labelConstraint.kind = task_pb2.LabelConstraint.HOST
    wire.labelConstraint.condition = condition
    wire.labelConstraint.label.key, wire.labelConstraint.label.value = "rack", "a"
    wire.labelConstraint.requirement = count
    return wire


def negation(*refused: Wire) -> Wire:
    wire = Wire(type=Wire.NOT_CONSTRAINT)
    for one in refused:
        wire.notConstraint.constraint.CopyFrom(one)
    return wire


@pytest.mark.parametrize(
    ("condition", "count", "expected"),
    [
        (task_pb2.LabelConstraint.CONDITION_EQUAL, 1, "not label rack=a"),
        (task_pb2.LabelConstraint.CONDITION_EQUAL, 0, "label rack=a > 0"),
        (task_pb2.LabelConstraint.CONDITION_EQUAL, 2, "not label rack=a = 2"),
        (task_pb2.LabelConstraint.CONDITION_LESS_THAN, 1, "label rack=a > 0"),
        (task_pb2.LabelConstraint.CONDITION_GREATER_THAN, 0, "label rack=a < 1"),
    ],
)
def test_a_negation_reads_as_one(
    condition: task_pb2.LabelConstraint.Condition.ValueType, count: int, expected: str
) -> None:
    """The description of a negation has the terms of the request."""
    constraint = convert.constraint(negation(label(condition, count)))

    assert constraint is not None
    assert expected == describe(constraint)


def test_a_negation_of_nothing_is_refused() -> None:
    """A negation without a constraint is refused, since it would match no host or every one."""
    with pytest.raises(InvalidArgument, match="a NOT constraint has no constraint"):
        convert.constraint(negation())
