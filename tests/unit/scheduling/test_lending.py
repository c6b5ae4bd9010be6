"""Lending: which part of an allocation is borrowed, and which pools have lent it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.model.ids import ROOT_POOL_ID, RespoolId
from peloton.model.resources import RESOURCE_KINDS, UNLIMITED
from peloton.model.respool import PoolResource, PoolSpec
from peloton.scheduling.lending import compute_lending
from peloton.scheduling.tree import CPU, build_tree

NAMES = {"a": "", "b": "", "a1": "a", "a2": "a", "b1": "b", "b2": "b"}


def spec(name: str, parent: str) -> PoolSpec:
    resources = tuple(PoolResource(kind, 0, UNLIMITED, 1) for kind in RESOURCE_KINDS)
    return PoolSpec(RespoolId(name), RespoolId(parent or ROOT_POOL_ID), name, resources)


TREE = build_tree([spec(name, parent) for name, parent in NAMES.items()])
ROW = {path.rpartition("/")[2]: row for row, path in enumerate(TREE.paths)}


def amounts(**by_name: int) -> np.ndarray:
    """Return ``[P,R]`` with these amounts of cpu; ``root`` is the whole cluster."""
    found = np.zeros_like(TREE.reservation)
    for name, amount in by_name.items():
        found[0 if name == "root" else ROW[name], CPU] = amount
    return found


def lending(reserved: dict[str, int], held: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Return (borrowed, lent) of each pool with either. ``held``: by leaf."""
    found = compute_lending(TREE, amounts(**reserved), TREE.roll_up(amounts(**held)))
    pairs = {name: (int(found.borrowed[row, CPU]), int(found.lent[row, CPU])) for name, row in ROW.items() if name}
    return {name: pair for name, pair in pairs.items() if any(pair)}


@pytest.mark.parametrize(
    ("reserved", "held", "wanted"),
    [
        ({"root": 100, "a": 60, "b": 40}, {"a1": 60, "b1": 40}, {"a1": (60, 0), "b1": (40, 0)}),
        ({"root": 100, "a": 60, "b": 40}, {"a1": 80}, {"a": (20, 0), "a1": (80, 0), "b": (0, 20)}),
        # What no pool has reserved is borrowed first.
        ({"root": 100, "a": 40, "b": 40}, {"a1": 60}, {"a": (20, 0), "a1": (60, 0)}),
        ({"root": 100, "a": 40, "b": 40}, {"a1": 70}, {"a": (30, 0), "a1": (70, 0), "b": (0, 10)}),
        # Siblings lend within their parent, and children of a lender are the ones that lend.
        ({"root": 100, "a": 60, "a1": 30, "a2": 30, "b": 40}, {"a1": 50}, {"a1": (20, 0), "a2": (0, 20)}),
        (
            {"root": 100, "a": 60, "a1": 60, "b": 40, "b1": 30, "b2": 10},
            {"a1": 100},
            {"a": (40, 0), "a1": (40, 0), "b": (0, 40), "b1": (0, 30), "b2": (0, 10)},
        ),
    ],
)
def test_who_lends(reserved: dict[str, int], held: dict[str, int], wanted: dict[str, tuple[int, int]]) -> None:
    """Loans come from what no pool has reserved, then from siblings, then from outside of the parent."""
    assert wanted == lending(reserved, held)


leaves = st.fixed_dictionaries({name: st.integers(0, 50) for name in ("a1", "a2", "b1", "b2")})


@given(reserved=leaves, held=leaves)
def test_no_pool_lends_what_it_lacks(reserved: dict[str, int], held: dict[str, int]) -> None:
    """Leaves that have reserved the whole cluster lend as much as they borrow, and idle reservations alone are lent."""
    reservation = TREE.roll_up(amounts(**reserved))
    allocation = TREE.roll_up(amounts(**held))
    reservation[0] = np.maximum(reservation[0], allocation[0])

    found = compute_lending(TREE, reservation, allocation)

    assert (found.lent <= np.maximum(reservation - allocation, 0)).all()
    assert (found.lent >= 0).all()
    at_leaves = TREE.is_leaf
    borrowed, lent = found.borrowed[at_leaves, CPU].sum(), found.lent[at_leaves, CPU].sum()
    unreserved = reservation[0, CPU] - sum(reserved.values())
    assert borrowed - unreserved <= lent + len(reserved)  # shares are rounded down at each level
    assert lent <= borrowed
