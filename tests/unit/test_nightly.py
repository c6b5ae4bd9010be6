"""The tests that ``make test`` leaves out, and the part of the examples of properties that it tries."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.nightly import ALL_EXAMPLES, EXAMPLES_MIN, NIGHTLY, examples, mark_properties


@pytest.mark.parametrize(("count", "tried"), [(400, 100), (100, 25), (60, EXAMPLES_MIN), (10, 10)])
def test_make_test_tries_a_quarter_of_the_examples(count: int, tried: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It tries at least twenty, unless a property asks for fewer; the nightly run tries all."""
    monkeypatch.delenv(ALL_EXAMPLES, raising=False)
    assert tried == examples(count)

    monkeypatch.setenv(ALL_EXAMPLES, "1")
    assert count == examples(count)


@given(st.integers())
@settings(max_examples=1)
def a_property(number: int) -> None:
    """Hold for every example."""
    assert isinstance(number, int)


def a_plain_test() -> None:
    """Pass without examples."""


@pytest.mark.parametrize(("value", "count"), [("1", 1), ("", 0)])
def test_properties_are_nightly_where_all_examples_are_tried(
    value: str, count: int, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Only where all examples are tried do properties get the mark, and plain tests never do."""
    monkeypatch.setenv(ALL_EXAMPLES, value)
    parent = request.node.parent
    items = [pytest.Function.from_parent(parent, name=obj.__name__, callobj=obj) for obj in (a_property, a_plain_test)]

    mark_properties(items)

    assert [count, 0] == [len(list(item.iter_markers(NIGHTLY.name))) for item in items]
