"""Random draws without state: the same seed and name give the same number, in any order of draws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import blake2b
from statistics import NormalDist

_BITS = 52
_NORMAL = NormalDist()


def unit(seed: int, *name: object) -> float:
    """Draw a number above 0 and below 1, evenly distributed."""
    text = "\0".join(map(str, (seed, *name)))
    number = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> (64 - _BITS)
    return (number + 0.5) / (1 << _BITS)


@dataclass(frozen=True, slots=True)
class Fixed:
    value: float

    @property
    def least(self) -> float:
        return self.value

    @property
    def most(self) -> float:
        return self.value

    def at(self, share: float) -> float:
        return self.value


@dataclass(frozen=True, slots=True)
class Uniform:
    least: float
    most: float

    def at(self, share: float) -> float:
        return self.least + (self.most - self.least) * share


@dataclass(frozen=True, slots=True)
class Exponential:
    """An exponential distribution; draws above `most` are cut to `most`."""

    mean: float
    most: float = math.inf

    @property
    def least(self) -> float:
        return 0.0

    def at(self, share: float) -> float:
        return min(-self.mean * math.log1p(-share), self.most)


@dataclass(frozen=True, slots=True)
class Lognormal:
    """A lognormal distribution of this `median`; `sigma` is the deviation of the logarithms. Draws are cut to
    `most`."""

    median: float
    sigma: float
    most: float = math.inf

    @property
    def least(self) -> float:
        return 0.0

    def at(self, share: float) -> float:
        return min(self.median * math.exp(self.sigma * _NORMAL.inv_cdf(share)), self.most)


Distribution = Fixed | Uniform | Exponential | Lognormal
"""A distribution. `at` returns the quantile of a share; all draws lie from `least` to `most`."""

ONE = Fixed(1.0)
