"""Weighted max-min: groups of members share amounts, exact to the unit.

Entitlement does this a few times for each level of the tree in each cycle, always by the same weights. The arrays that
depend on these alone are made once for a tree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

_INT64_SAFE = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Weights ``[K,R]`` of the members of ``G`` groups as one flat problem.

    Its ``S = R * G`` segments are each a group and a kind.
    """

    kinds: int  # R
    weight: Ints  # [R*K] divided by their common divisor
    has_weight: Flags  # [R*K]
    starts: Ints  # [S] start of each segment
    segment: Ints  # [R*K] segment of each member
    factor: NDArray[np.float64]  # [S] upper bound of the factor by which amounts are multiplied


def weigh(starts: Ints, group: Ints, weight: Ints) -> Weights:
    """Prepare weights: ``starts`` ``[G]`` of groups, ``group`` ``[K]`` and ``weight`` ``[K,R]`` >= 0 of members."""
    children, kinds = weight.shape
    offsets = np.arange(kinds)[:, None]
    flat = weight.T.ravel()
    flat = flat // max(int(np.gcd.reduce(flat)), 1)
    flat_starts = (offsets * children + starts).ravel()
    segment = (offsets * len(starts) + group).ravel()
    factor = np.maximum(np.add.reduceat(flat, flat_starts), np.bincount(segment, minlength=len(flat_starts)))
    return Weights(kinds, flat, flat > 0, flat_starts, segment, factor.astype(np.float64))


def fill(weights: Weights, amounts: Ints, want: Ints) -> Ints:
    """Return per group and kind ``min(want, lambda * weight)`` with the largest lambda that fits.

    ``amounts`` ``[G,R]`` and ``want`` ``[K,R]`` are all >= 0. Members with a weight receive all that they want if it
    suffices; members with weight 0 receive nothing.
    """
    if not want.any():
        return np.zeros_like(want)
    filled = _fill_segments(weights, amounts.T.ravel(), want.T.ravel())
    return np.ascontiguousarray(filled.reshape(weights.kinds, -1).T)


def _fill_segments(weights: Weights, amount: Ints, want: Ints) -> Ints:
    """Share ``amount[s]`` among the members of each segment s, in their order.

    Each round drops the members that the present level fills; the others share the rest in proportion. A round only
    raises the level, so a dropped member never has to come back.
    """
    weight, starts, segment = weights.weight, weights.starts, weights.segment
    allocated = np.where(weights.has_weight, np.minimum(want, amount[segment]), 0)
    is_short = np.add.reduceat(allocated, starts) > amount
    if not is_short.any():
        return allocated
    is_open = is_short[segment] & (allocated > 0)
    if (amount * weights.factor).max() >= _INT64_SAFE:  # Python's integers are slower, but exact at any size
        amount, allocated, weight = (array.astype(object) for array in (amount, allocated, weight))
    rest, weights_left, is_open = _water_level(amount, allocated, weight, starts, segment, is_open)
    members = np.flatnonzero(is_open)
    owner = segment[members]
    portion = rest[owner] * weight[members]
    allocated[members] = portion // weights_left[owner]
    _add_remainders(allocated, members, portion % weights_left[owner], rest, owner)
    return allocated.astype(np.int64)


def _water_level(
    amount: Ints, want: Ints, weight: Ints, starts: Ints, segment: Ints, is_open: Flags
) -> tuple[Ints, Ints, Flags]:
    """Return per segment the rest shared by members that stay short, the sum of their weights (at least 1), and a flag
    ``[R*K]`` for these members."""
    while True:
        rest = amount - np.add.reduceat(np.where(is_open, 0, want), starts)
        weights = np.maximum(np.add.reduceat(np.where(is_open, weight, 0), starts), 1)
        is_full = is_open & (want * weights[segment] <= rest[segment] * weight)
        if not is_full.any():
            return rest, weights, is_open
        is_open = is_open & ~is_full


def _add_remainders(allocated: Ints, members: Ints, remainder: Ints, rest: Ints, owner: Ints) -> None:
    """Give the units that rounding down left over to the largest remainders, ties to the first."""
    if remainder.dtype == object:
        order = np.array(sorted(range(len(members)), key=lambda i: (owner[i], -remainder[i])), np.int64)
    else:
        order = np.lexsort((-remainder, owner))
    ranked = owner[order]
    rank = np.arange(len(ranked)) - np.searchsorted(ranked, ranked)
    spent = np.zeros_like(rest)
    np.add.at(spent, owner, allocated[members])
    allocated[members[order[rank < (rest - spent)[ranked]]]] += 1
