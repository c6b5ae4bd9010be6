"""The amount of slack that is lent: the estimate of a driver, and that of the emulated agents of Mesos."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.scheduling import slack
from services.lab.mesos.agents import slack_estimator

AMOUNTS = st.integers(0, 100_000)
EACH = pytest.mark.parametrize("by", [slack, slack_estimator], ids=["driver", "emulated agent"])


@EACH
@pytest.mark.parametrize(
    ("last", "allocated", "used", "expected"),
    [
        (0, 1000, 0, 900),  # a tenth of the allocation is not lent
        (0, 1000, 400, 500),
        (0, 1000, 950, 0),
        (0, 500, 700, 0),  # a task may use more than it was promised
        (500, 1000, 430, 500),  # within the margin: the old report remains
        (500, 1000, 510, 390),  # outside of the margin
        (500, 1000, 350, 500),  # not enough more to be worth a new offer
        (500, 1000, 300, 600),
        (900, 0, 0, 0),
    ],
)
def test_the_estimate_is_what_is_unused(by: ModuleType, last: int, allocated: int, used: int, expected: int) -> None:
    """The estimate is the unused amount less a margin; the last report remains while it is safe."""
    assert expected == by.estimate(last, allocated, used)


@EACH
@given(AMOUNTS, AMOUNTS, AMOUNTS)
def test_no_estimate_promises_what_is_in_use(by: ModuleType, last: int, allocated: int, used: int) -> None:
    """Estimates are between 0 and the allocated, unused amount, whatever the last report; with the same use they do not
    change again.
    """
    found = by.estimate(last, allocated, used)

    assert 0 <= found <= max(0, allocated - used)
    assert by.estimate(found, allocated, used) == found


@EACH
@given(AMOUNTS, AMOUNTS, st.integers(0, 1000))
def test_more_use_never_means_more_slack(by: ModuleType, allocated: int, used: int, more: int) -> None:
    """The target falls with use and rises with the allocation."""
    assert by.target(allocated, used + more) <= by.target(allocated, used) <= by.target(allocated + more, used)


@EACH
@given(AMOUNTS, st.lists(AMOUNTS, min_size=1, max_size=30))
def test_use_is_believed_at_once_and_forgotten_slowly(by: ModuleType, before: int, measured: list[int]) -> None:
    """The smoothed use is never below the last measurement nor above the highest one, and comes to rest."""
    seen = before
    for each in measured:
        was, before, seen = before, by.smooth(before, each), max(seen, each)
        assert each <= before <= seen
        assert before <= max(was, each)
    for _ in range(40):
        before = by.smooth(before, measured[-1])
    assert before == measured[-1]
