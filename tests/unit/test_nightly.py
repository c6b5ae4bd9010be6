"""The tests that ``make test`` leaves out, and the part of the examples of properties that it tries."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.nightly import (
    ALL_EXAMPLES,
    EXAMPLES_MIN,
    NIGHTLY,
    PROPERTY,
    SEEDS,
    STEPS,
    examples,
    first_of,
    lives,
    mark_properties,
    nightly,
)


@pytest.mark.parametrize(("count", "tried"), [(400, 50), (100, 12), (60, EXAMPLES_MIN), (8, 8)])
def test_make_test_tries_an_eighth_of_the_examples(count: int, tried: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of at least ten examples is tried, unless a property has fewer; the nightly run tries all."""
    monkeypatch.delenv(ALL_EXAMPLES, raising=False)
    assert tried == examples(count)

    monkeypatch.setenv(ALL_EXAMPLES, "1")
    assert count == examples(count)


def test_make_test_plays_one_short_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """The long lives are nightly, and environment variables choose others."""
    for name in (SEEDS, STEPS):
        monkeypatch.delenv(name, raising=False)
    assert [(4, 200), nightly(1, 800), nightly(2, 800)] == lives((4, 200), steps=800)

    monkeypatch.setenv(SEEDS, "7,8")
    assert [(7, 800), (8, 800)] == lives((4, 200), steps=800)

    monkeypatch.setenv(STEPS, "30")
    assert [(7, 30), (8, 30)] == lives((4, 200), steps=800)


def test_make_test_takes_the_first_of_several_values() -> None:
    """All values but the first are nightly."""
    assert ["a", nightly("b"), nightly("c")] == first_of(["a", "b", "c"])


@given(st.integers())
@settings(max_examples=1)
def a_property(number: int) -> None:
    """Hold for every example."""
    assert isinstance(number, int)


@PROPERTY
def a_state_machine() -> None:
    """Pass for every play."""


def a_plain_test() -> None:
    """Pass without examples."""


@pytest.mark.parametrize(("value", "count"), [("1", 1), ("", 0)])
def test_properties_are_nightly_where_all_examples_are_tried(
    value: str, count: int, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Properties are marked only where all examples are tried, and plain tests never are."""
    monkeypatch.setenv(ALL_EXAMPLES, value)
    parent = request.node.parent
    tests = (a_property, a_state_machine, a_plain_test)
    items = [pytest.Function.from_parent(parent, name=test.__name__, callobj=test) for test in tests]

    mark_properties(items)

    assert [count, count, 0] == [len(list(item.iter_markers(NIGHTLY.name))) for item in items]
