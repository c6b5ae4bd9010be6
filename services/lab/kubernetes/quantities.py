"""Amounts as Kubernetes writes them: "500m", "24629300Ki", "1e3", "110"."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

AMOUNTS_KEPT = 4096
_AMOUNT = re.compile(r"([+-]?\d+\.?\d*|[+-]?\.\d+)(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?\d{1,3})?")
_FACTORS: dict[str, Fraction] = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", 1)},
}


def amount(value: Any) -> Fraction:
    """Return the amount. Raises ValueError for an invalid text."""
    return _parse(str(value))


@lru_cache(maxsize=AMOUNTS_KEPT)
def _parse(text: str) -> Fraction:
    found = _AMOUNT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no quantity")
    suffix = found[2] or ""
    factor = _FACTORS[suffix] if suffix in _FACTORS else Fraction(10) ** int(suffix[1:])
    return Fraction(found[1]) * factor
