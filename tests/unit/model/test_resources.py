"""Amounts: the wire's doubles become integers once, rounded up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from peloton.model.resources import Resources

amounts = st.integers(0, 10**9)
resources = st.builds(Resources, amounts, amounts, amounts, amounts)


def test_requests_round_up() -> None:
    """Amounts are rounded up, so that a pod has at least its request."""
    assert Resources(1, 1, 1, 1) == Resources.of(0.0001, 0.5, 0.5, 0.0001)


def test_binary_noise_is_not_a_request() -> None:
    """0.1 three times is 300 milli-cpu, not 301, although the sum of the doubles is above 0.3."""
    assert Resources(300) == Resources.of(0.1 + 0.1 + 0.1)


@given(resources, resources)
def test_sums_are_exact(a: Resources, b: Resources) -> None:
    """An addition and its subtraction cancel each other; a part fits in the sum."""
    assert a == a + b - b
    assert a.fits_in(a + b)


@given(resources, st.integers(0, 1000))
def test_a_product_is_a_repeated_sum(a: Resources, count: int) -> None:
    """``count`` equal pods have ``count`` times the resources of one."""
    assert sum((a for _ in range(count)), Resources()) == a * count
