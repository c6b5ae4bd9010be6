"""Marks of hosts and services: they rise and fall, and do not flap."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.lifecycle.latency import bounds_refusal, latency_bounds
from peloton.model.advice import LatencyBounds, Mark, PodLatency
from peloton.model.ids import Hostname
from peloton.scheduling.advice import (
    AdvicePolicy,
    Kind,
    MarkWatch,
    Measure,
    host_measures,
    mark_text,
    observe,
    service_measures,
)
from peloton.scheduling.qos import HostLoad, Use

GREEN, ORANGE, RED = Mark
POLICY = AdvicePolicy(sample_count=3, margin_percent=10, hold_s=60.0)


def cpu(percent: int) -> tuple[Measure, ...]:
    return (Measure(Kind.CPU, percent, 80, 90),)


def marks(values: Sequence[int], policy: AdvicePolicy = POLICY, period_s: float = 20.0) -> list[Mark]:
    """Return the mark after each sample."""
    watch, found = MarkWatch(), []
    for at, value in enumerate(values):
        watch = observe(watch, cpu(value), at * period_s, policy)
        found.append(watch.mark)
    return found


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([90] * 3, [GREEN, GREEN, RED]),
        ([80, 95, 80], [GREEN, GREEN, ORANGE]),
        ([85, 85, 79, 85, 85, 85], [GREEN] * 5 + [ORANGE]),
        # 81 % is not below red by the margin, 80 % is; then orange holds until 72 %.
        ([90] * 3 + [81] * 5, [GREEN] * 2 + [RED] * 6),
        ([90] * 3 + [80] * 4, [GREEN] * 2 + [RED] * 4 + [ORANGE]),
        ([90] * 3 + [10] * 4, [GREEN] * 2 + [RED] * 4 + [GREEN]),
        # A sample above the bound in between restarts the hold time.
        ([80] * 3 + [10, 10, 75, 10, 10, 10, 10], [GREEN] * 2 + [ORANGE] * 7 + [GREEN]),
    ],
    ids=["rises to red", "rises to orange", "in a row", "margin", "one step", "two steps", "again"],
)
def test_marks_rise_and_fall(values: Sequence[int], expected: Sequence[Mark]) -> None:
    """A mark rises after three samples in a row, and falls after a minute below the bound by a tenth."""
    assert list(expected) == marks(values)


@given(
    st.integers(0, 150),
    st.integers(1, 5),
    st.integers(0, 99),
    st.floats(0, 1_000),
    st.integers(0, 40),
)
def test_constant_load_never_flaps(value: int, count: int, margin: int, hold_s: float, length: int) -> None:
    """A constant load changes the mark once at most, to the one of its bounds."""
    found = marks([value] * length, AdvicePolicy(sample_count=count, margin_percent=margin, hold_s=hold_s))

    final = RED if value >= 90 else ORANGE if value >= 80 else GREEN
    assert [GREEN] * min(count - 1, length) + [final] * max(length - count + 1, 0) == found


@given(st.integers(0, 150), st.lists(st.integers(0, 7), max_size=60), st.floats(0, 100))
def test_what_varies_by_less_than_the_margin_never_falls(base: int, noise: Sequence[int], hold_s: float) -> None:
    """A mark that has risen does not fall: 7 % are less than a tenth of 80 %."""
    order = list(Mark)
    found = [order.index(mark) for mark in marks([base + part for part in noise], AdvicePolicy(hold_s=hold_s))]

    assert sorted(found) == found


@given(st.lists(st.integers(0, 120), max_size=80), st.integers(1, 4), st.floats(0, 200))
def test_red_is_above_orange(values: Sequence[int], count: int, hold_s: float) -> None:
    """A sample that holds red also holds orange, so red falls to orange or, with it, to green."""
    policy, watch = AdvicePolicy(sample_count=count, hold_s=hold_s), MarkWatch()
    for at, value in enumerate(values):
        watch = observe(watch, cpu(value), at * 20.0, policy)
        red, orange = watch.latches[Kind.CPU, RED], watch.latches[Kind.CPU, ORANGE]
        assert orange.is_set or not red.is_set


def test_a_host_is_marked_by_its_most_used_resource() -> None:
    """A host's mark depends on its highest use in percent of its total; a kind without capacity is left out."""
    load = HostLoad(Hostname("h"), Use(4_000, 1_000), Use(3_000, 950), 0, 0)
    watch = MarkWatch()
    for at in range(3):
        watch = observe(watch, host_measures(load, POLICY), float(at), POLICY)

    assert (RED, "memory 95 %, red from 90 %") == (watch.mark, mark_text(watch, POLICY))
    assert () == host_measures(HostLoad(Hostname("h"), Use(), Use(5, 5), 0, 0), POLICY)
    watch = observe(watch, cpu(20), 3.0, POLICY)
    assert (GREEN, "cpu 20 %") == (watch.mark, mark_text(watch, POLICY))


def test_a_mark_that_is_held_says_until_when() -> None:
    """The text of a held mark has the bound and the time."""
    watch = MarkWatch()
    for at, value in enumerate([95, 95, 95, 50]):
        watch = observe(watch, cpu(value), at, POLICY)

    assert "cpu 50 %, red from 90 % until it was below 81 % for 60 s" == mark_text(watch, POLICY)


def test_a_service_is_as_slow_as_its_requests() -> None:
    """Percentiles of a service weigh pods by their requests, and ignore pods without requests."""
    bounds = LatencyBounds(p95_orange_ms=50, p99_red_ms=300)
    fast, slow, idle = PodLatency(1, 10, 100, 900), PodLatency(1, 20, 1_100, 100), PodLatency(9, 9_000, 9_000, 0)

    expected = (Measure(Kind.P50, 1, 0, 0), Measure(Kind.P95, 11, 50, 0), Measure(Kind.P99, 200, 0, 300))
    assert expected == service_measures([fast, slow, idle], bounds)
    assert [0, 0, 0] == [one.value for one in service_measures([idle], bounds)]
    assert ((RED, 300),) == expected[2].bounds()


def test_bounds_come_from_labels_and_else_from_the_installation() -> None:
    """A label that is no number is rejected when jobs are submitted, and ignored here."""
    default = LatencyBounds(p99_orange_ms=100, p99_red_ms=200)
    labels = {"peloton/p99-red-ms": "500", "peloton/p95-red-ms": "soon", "peloton/p99-orange-ms": "0", "a": "b"}

    assert LatencyBounds(p99_orange_ms=0, p99_red_ms=500) == latency_bounds(labels, default)
    assert default == latency_bounds({}, default)
    assert "label peloton/p95-red-ms: 'soon' is no number of milliseconds, want 0 to 3600000" == bounds_refusal(labels)
    assert "" == bounds_refusal({"peloton/p95-red-ms": "3600000"})
    assert bounds_refusal({"peloton/p95-red-ms": "3600001"})
