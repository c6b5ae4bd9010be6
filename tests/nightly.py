"""The mark of tests that ``make nightly`` runs and ``make test`` leaves out.

``make test`` proves each behaviour once. Nightly are further seeds and kinds of clusters, long random lives, faults of
the product that the simulation must notice, small runs of the benchmarks, and long or repeated stories that other tests
cover in parts. Properties are tried with an eighth of their examples in ``make test``, and nightly with all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

NIGHTLY = pytest.mark.nightly
PROPERTY = pytest.mark.property
"""A test that tries a number of examples, which its function does not show."""
SEEDS, STEPS = "PELOTON_TEST_SEEDS", "PELOTON_TEST_STEPS"
ALL_EXAMPLES = "PELOTON_TEST_ALL_EXAMPLES"
EXAMPLES_SHARE = 8
EXAMPLES_MIN = 10


def nightly(*values: Any) -> Any:
    """A value of ``parametrize`` or of a fixture's ``params`` whose tests are nightly."""
    return pytest.param(*values, marks=NIGHTLY)


def first_of(values: Iterable[Any]) -> list[Any]:
    """Return values of ``parametrize`` of which ``make test`` takes the first one alone."""
    first, *others = values
    return [first, *map(nightly, others)]


def seeds(default: str) -> list[Any]:
    """Seeds of random lives: the ones in PELOTON_TEST_SEEDS (as in 1,2,3), or the default, of which only the first one
    is played by ``make test``.
    """
    if chosen := os.environ.get(SEEDS, ""):
        return [int(seed) for seed in chosen.split(",")]
    return first_of(int(seed) for seed in default.split(","))


def lives(short: tuple[int, int], steps: int, long: str = "1,2") -> list[Any]:
    """Seeds and steps of random lives: a short one in ``make test``, and nightly the long ones, each of so many steps.
    PELOTON_TEST_SEEDS and PELOTON_TEST_STEPS choose others.
    """
    if SEEDS in os.environ or STEPS in os.environ:
        chosen = os.environ.get(SEEDS, long).split(",")
        return [(int(seed), int(os.environ.get(STEPS, steps))) for seed in chosen]
    return [short, *(nightly(int(seed), steps) for seed in long.split(","))]


def takes_all_examples() -> bool:
    return bool(os.environ.get(ALL_EXAMPLES))


def examples(count: int) -> int:
    """Return how many examples of a property are tried: ``count`` in ``make nightly``, an eighth of them elsewhere."""
    return count if takes_all_examples() else min(count, max(count // EXAMPLES_SHARE, EXAMPLES_MIN))


def mark_properties(items: Iterable[pytest.Item]) -> None:
    """Make properties nightly where all of their examples are tried; elsewhere ``make test`` tries a part of them."""
    for item in items if takes_all_examples() else ():
        is_given = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        if is_given or item.get_closest_marker(PROPERTY.name):
            item.add_marker(NIGHTLY)
