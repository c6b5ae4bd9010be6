"""Amounts in Kubernetes's notation: "500m", "24629300Ki", "1e3", "110". They are exact, and rounded once."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

KNOWN_MAX = 10_000
"""Limit of distinct texts whose amounts are cached."""
MIB = 2**20

_TEXT = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?\d{1,3}))?", re.ASCII)
_UNITS = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    **{unit: Fraction(10 ** (3 * power)) for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Fraction(2 ** (10 * power)) for power, unit in enumerate("KMGTPE", 1)},
}


@lru_cache(maxsize=KNOWN_MAX)
def amount(text: str | int | float) -> Fraction:
    """Return the exact amount. Raises ValueError naming the text."""
    match = _TEXT.fullmatch(str(text))
    if match is None:
        raise ValueError(f"{text!r} is no amount: want a number with a unit such as m, k, Mi or e3")
    number, unit, exponent = match.groups()
    scale = _UNITS[unit] if unit else Fraction(10) ** int(exponent or 0)
    return Fraction(number) * scale


def milli(amount: Fraction, up: bool) -> int:
    """Return thousandths. ``up``: requests round up, so that a pod receives its request; capacities round down."""
    return _round(amount * 1000, up)


def mib(amount: Fraction, up: bool) -> int:
    """Return MiB of an amount of bytes."""
    return _round(amount / MIB, up)


def _round(value: Fraction, up: bool) -> int:
    return -(-value.numerator // value.denominator) if up else value.numerator // value.denominator
