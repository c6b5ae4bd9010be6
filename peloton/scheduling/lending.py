"""Lending between pools: which part of each pool's allocation is borrowed, and which part of its reservation is lent.

Arrays are ``[P,R]`` by the rows of the pool tree.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from peloton.scheduling.tree import Ints, PoolTree


class Lending(NamedTuple):
    borrowed: Ints  # allocation above the reservation
    lent: Ints  # reservation that other pools hold


def compute_lending(tree: PoolTree, reservation: Ints, allocation: Ints) -> Lending:
    """Compute lending from sums over subtrees. ``reservation[0]`` is the capacity of the clusters.

    What children borrow, and what their parent lends to its siblings, comes first from the part of the parent's
    reservation that no child has reserved, then from idle reservations of the children, in proportion to them. What
    the parent itself borrows was lent outside.
    """
    borrowed = np.maximum(allocation - reservation, 0)
    idle = np.maximum(reservation - allocation, 0)
    lent = np.zeros_like(allocation)
    for level in tree.levels:
        at = slice(level.begin, level.end)
        reserved, taken, spare = (np.add.reduceat(of[at], level.starts, axis=0) for of in (reservation, borrowed, idle))
        unreserved = np.maximum(reservation[level.parents] - reserved, 0)
        wanted = taken + lent[level.parents] - borrowed[level.parents] - unreserved
        total = np.clip(wanted, 0, spare)
        lent[at] = idle[at] * total[level.group] // np.maximum(spare[level.group], 1)
    return Lending(borrowed, lent)
