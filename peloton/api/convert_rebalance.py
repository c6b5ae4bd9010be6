"""Conversion of rebalancing goals from the wire."""

from __future__ import annotations

from collections.abc import Iterable

from peloton.api.v0.rebalance import rebalance_pb2 as pb
from peloton.errors import InvalidArgument
from peloton.model.rebalance import Goal

_GOALS: dict[int, Goal] = {pb.Goal.Value(f"GOAL_{goal}"): goal for goal in Goal}
GOAL_NUMBERS = {goal: pb.Goal.Value(f"GOAL_{goal}") for goal in Goal}


def goals_of(numbers: Iterable[int]) -> set[Goal]:
    """Return the goals of these numbers, FREE without any. Raises InvalidArgument."""
    asked = list(numbers)
    if unknown := [number for number in asked if number not in _GOALS]:
        raise InvalidArgument(f"goal {unknown[0]} is not known")
    return {_GOALS[number] for number in asked} or {Goal.FREE}
