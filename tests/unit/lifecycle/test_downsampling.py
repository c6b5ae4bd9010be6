"""Downsampling of minutes to hours."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from peloton.lifecycle.downsampling import MARKS_MAX, cut, downsample, merge, merge_marks
from peloton.model.history import Column, Preemption, Quantity, Series

MINUTE_S, HOUR_S = 60, 3_600
ADMITTED, LIMIT = Column(Quantity.ADMITTED), Column(Quantity.LIMIT, "cpu")
ALLOCATION = Column(Quantity.ALLOCATION, "cpu")
COLUMNS = (ADMITTED, LIMIT, ALLOCATION)


@st.composite
def minutes(draw: st.DrawFn, most: int = 200) -> Series:
    """Minutes of some hours, with gaps, each covered in part or whole."""
    times = sorted(draw(st.sets(st.integers(0, 400), min_size=1, max_size=most)))
    count = len(times)
    amounts = st.lists(st.integers(0, 2**53), min_size=count, max_size=count)
    marks = st.builds(
        Preemption, st.sampled_from(times).map(MINUTE_S.__mul__), st.text("ab", max_size=3), st.integers(1, 9)
    )
    return Series(
        [number * MINUTE_S for number in times],
        draw(st.lists(st.integers(1, MINUTE_S), min_size=count, max_size=count)),
        {column: draw(amounts) for column in COLUMNS},
        preemptions=merge_marks(draw(st.lists(marks, max_size=20))),
    )


@given(minutes())
def test_sums_and_bounds_are_kept(series: Series) -> None:
    """Counts and covered time add up to the same; a mean lies between the least and the greatest minute, times its
    time it is the sum of the minutes but for the rounding, and the maximum is one of them."""
    hours = downsample(series, HOUR_S)

    assert sum(series.columns[ADMITTED]) == sum(hours.columns[ADMITTED])
    assert sum(series.covered_s) == sum(hours.covered_s)
    assert sum(mark.pod_count for mark in series.preemptions) == sum(mark.pod_count for mark in hours.preemptions)
    for at, begin_s in enumerate(hours.times_s):
        there = [i for i, at_s in enumerate(series.times_s) if begin_s <= at_s < begin_s + HOUR_S]
        values = [series.columns[ALLOCATION][i] for i in there]
        total = sum(series.columns[ALLOCATION][i] * series.covered_s[i] for i in there)
        mean, covered_s = hours.columns[ALLOCATION][at], hours.covered_s[at]
        assert min(values) <= mean <= max(values)
        assert abs(mean * covered_s - total) <= covered_s / 2
        assert max(values) == hours.maxima_of(ALLOCATION)[at]
        assert series.columns[LIMIT][there[-1]] == hours.columns[LIMIT][at]


@given(minutes())
def test_gaps_stay_gaps(series: Series) -> None:
    """Each hour with a minute is in the result, and no other; it has the time that is covered."""
    hours = downsample(series, HOUR_S)

    assert sorted({at_s - at_s % HOUR_S for at_s in series.times_s}) == hours.times_s
    assert all(0 < covered_s <= HOUR_S for covered_s in hours.covered_s)


@given(minutes(), st.sampled_from([120, 600, 1_800]))
def test_in_two_steps(series: Series, between_s: int) -> None:
    """Maxima, counts and configured values are the same with a step in between."""
    once, twice = downsample(series, HOUR_S), downsample(downsample(series, between_s), HOUR_S)

    assert (once.times_s, once.covered_s) == (twice.times_s, twice.covered_s)
    assert once.maxima_of(ALLOCATION) == twice.maxima_of(ALLOCATION)
    assert [once.columns[each] for each in (ADMITTED, LIMIT)] == [twice.columns[each] for each in (ADMITTED, LIMIT)]
    assert once == downsample(once, HOUR_S)


@given(minutes(), st.integers(0, 400))
def test_parts_are_merged_whole(series: Series, at: int) -> None:
    """A series that was cut in two is whole again, in either order; of an interval in both, the first is used."""
    early, late = cut(series, 0, at * MINUTE_S), cut(series, at * MINUTE_S, 10**6)

    assert series == merge(early, late) == merge(late, early) == merge(series, late)


def test_the_first_of_two_stands() -> None:
    """The first of two values is used, and the first marks; a column that one of them lacks is 0 there."""
    first = Series([60], [60], {ALLOCATION: [5]}, preemptions=[Preemption(60, "/a", 1)])
    second = Series([60, 120], [60, 30], {ADMITTED: [7, 8]}, preemptions=[Preemption(60, "/b", 2)])

    merged = merge(first, second)

    assert ([60, 120], [60, 30]) == (merged.times_s, merged.covered_s)
    assert {ALLOCATION: [5, 0], ADMITTED: [0, 8]} == merged.columns
    assert [Preemption(60, "/a", 1)] == merged.preemptions


def test_few_causes_are_named() -> None:
    """Causes with the most pods are named; the others are one mark without a name, and no pod is lost."""
    marks = [Preemption(0, f"/{number}", number + 1) for number in range(MARKS_MAX + 2)]

    found = merge_marks(marks)

    assert MARKS_MAX + 1 == len(found)
    assert Preemption(0, "", 1 + 2) == found[-1]
    assert found == merge_marks(found)
