"""Amounts of Kubernetes."""

from __future__ import annotations

from fractions import Fraction

import pytest

from services.hostmgr.kubernetes.pods.quantities import amount, mib, milli


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2),
        ("500m", Fraction(1, 2)),
        ("1.5", Fraction(3, 2)),
        (".5", Fraction(1, 2)),
        ("24629300Ki", 24_629_300 * 1024),
        ("1e3", 1_000),
        ("1E3", 1_000),
        ("12E-1", Fraction(6, 5)),
        ("1E", 10**18),
        ("3Ei", 3 * 2**60),
        ("128974848", 128_974_848),
        ("129M", 129_000_000),
        ("123n", Fraction(123, 10**9)),
        ("7u", Fraction(7, 10**6)),
        ("0", 0),
        ("-1", -1),
        (4, 4),
    ],
)
def test_every_form_of_an_amount_is_exact(text: str, value: int | Fraction) -> None:
    """Amounts in decimal and binary units, exponents, and plain numbers are exact."""
    assert value == amount(text)


@pytest.mark.parametrize("text", ["", "m", "1 Gi", "1GiB", "1ee3", "one", "1e3m", "0x10", "1e9999"])
def test_what_is_no_amount_is_refused_by_its_text(text: str) -> None:
    """A malformed amount is rejected with its text."""
    with pytest.raises(ValueError, match="is no amount") as refused:
        amount(text)

    assert repr(text) in str(refused.value)


def test_requests_round_up_and_capacities_round_down() -> None:
    """An amount that fits by the rounded numbers fits by Kubernetes's own."""
    assert (1, 0) == (milli(amount("1n"), up=True), milli(amount("1n"), up=False))
    assert (24_053, 24_052) == (mib(amount("24629300Ki"), up=True), mib(amount("24629300Ki"), up=False))
    assert 2_000 == milli(amount("2"), up=True) == milli(amount("2"), up=False)
