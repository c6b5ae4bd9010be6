"""Entitlement: the worked examples as drawings, and properties against the slow oracle.

REWRITE=1 in the environment redraws the expected tables; read the difference before you keep it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.model.ids import RespoolId
from peloton.model.resources import RESOURCE_KINDS
from peloton.model.respool import PoolResource, PoolSpec, ReservationType
from peloton.scheduling.entitlement import Entitlement, Load, entitle
from peloton.scheduling.tree import Ints, PoolTree, build_tree
from tests.nightly import examples
from tests.unit.scheduling import entitlement_oracle as oracle
from tests.unit.scheduling.pool_table import Scenario, load_of, pool, pool_id

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("entitlement_*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    """The drawn pools have the drawn entitlements."""
    scenario = Scenario.parse(path.read_text())
    tree = scenario.tree()

    entitlement = entitle(tree, load_of(tree, scenario.rows), scenario.capacity, scenario.slack_cpu)

    drawn = scenario.draw(tree, entitlement)
    if os.environ.get("REWRITE"):
        path.write_text(scenario.text(drawn))
    assert Scenario.parse(path.read_text()).expected == drawn


def test_there_are_scenarios() -> None:
    """The folder has at least a dozen scenarios."""
    assert len(SCENARIOS) >= 12


# -- properties -----------------------------------------------------------------------------------------------------

HALF_STATIC = (ReservationType.ELASTIC, ReservationType.STATIC)
Case = tuple[list[PoolSpec], Mapping[str, oracle.Amounts], list[int], int]
SMALL = st.integers(0, 40)
LARGE = st.one_of(SMALL, st.integers(0, 10**7), st.integers(0, 2**50))


@st.composite
def cases(
    draw: st.DrawFn,
    amount: st.SearchStrategy[int] = SMALL,
    is_valid: bool = False,
    shares: Sequence[int] = (0, 1, 1, 2, 3, 1000),
    types: Sequence[ReservationType] = (ReservationType.ELASTIC, ReservationType.ELASTIC, ReservationType.STATIC),
) -> Case:
    """A tree of up to 12 pools with loads on its leaves; valid ones obey the rules of the pool service."""
    paths: list[str] = []
    for _ in range(draw(st.integers(1, 12))):
        parent = draw(st.sampled_from(["", *paths]))
        paths.append(f"{parent}/{'abcdefghijkl'[len(paths)]}")
    kinds = (*RESOURCE_KINDS, *draw(st.sampled_from([(), (), ("license/a",), ("example.com/b", "license/a")])))
    pools = [_draw_pool(draw, path, kinds, amount, shares, types) for path in paths]
    capacity = [draw(amount) for _ in kinds]
    if is_valid:
        pools = _make_valid(pools, capacity)
    parents = {p.parent_id for p in pools}
    leaves = [p.respool_id for p in pools if p.respool_id not in parents]
    loads: dict[str, oracle.Amounts] = {
        leaf: oracle.Amounts(*(tuple(draw(amount) for _ in kinds) for _ in range(4))) for leaf in leaves
    }
    return pools, loads, capacity, draw(amount)


def _draw_pool(
    draw: st.DrawFn,
    path: str,
    kinds: Sequence[str],
    amount: st.SearchStrategy[int],
    shares: Sequence[int],
    types: Sequence[ReservationType],
) -> PoolSpec:
    resources = []
    for kind in kinds:
        reservation = draw(amount)
        kind_type = draw(st.sampled_from(types))
        limit = reservation + draw(amount)
        share = draw(st.sampled_from(shares))
        resources.append(PoolResource(kind, reservation, limit, share, kind_type))
    parent, _, name = path.rpartition("/")
    slack_limit = draw(st.sampled_from([None, 0.0, 12.5, 100.0]))
    return PoolSpec(RespoolId(path), pool_id(parent), name, tuple(resources), None, slack_limit)


def _make_valid(pools: list[PoolSpec], capacity: list[int]) -> list[PoolSpec]:
    """Children's reservations fit in their parent's, limits too."""
    bounds = {"root": [(c, c) for c in capacity]}
    valid = []
    for spec in pools:  # parents come first
        siblings = sum(p.parent_id == spec.parent_id for p in pools)
        own = []
        for r, (reservation, limit) in zip(spec.resources, bounds[spec.parent_id], strict=True):
            reserved = min(r.reservation, reservation // siblings)
            own.append(PoolResource(r.kind, reserved, max(min(r.limit, limit), reserved), r.share, r.type))
        bounds[spec.respool_id] = [(r.reservation, r.limit) for r in own]
        valid.append(PoolSpec(spec.respool_id, spec.parent_id, spec.name, tuple(own), None, spec.slack_limit_percent))
    return valid


def _load(tree: PoolTree, loads: Mapping[str, oracle.Amounts]) -> Load:
    columns: dict[str, Ints] = {}
    for name in ("demand", "slack_demand", "allocation", "slack_allocation"):
        columns[name] = np.zeros_like(tree.reservation)
        for leaf, amounts in loads.items():
            columns[name][tree.row[RespoolId(leaf)]] = getattr(amounts, name)
    return Load(**columns)


def _entitle(case: Case) -> tuple[PoolTree, Load, Entitlement]:
    pools, loads, capacity, slack_cpu = case
    tree = build_tree(pools)
    load = _load(tree, loads)
    return tree, load, entitle(tree, load, np.array(capacity, np.int64), slack_cpu)


def _as_oracle(tree: PoolTree, e: Entitlement) -> oracle.Result:
    return {
        pool: {"total": e.total[row].tolist(), "non_slack": e.non_slack[row].tolist(), "slack": e.slack[row].tolist()}
        for pool, row in tree.row.items()
    }


@given(st.one_of(cases(), cases(LARGE), cases(SMALL, True)))
@settings(max_examples=examples(200), deadline=None)
def test_equals_the_oracle(case: Case) -> None:
    """The fast computation and the obvious one agree to the unit, at any size."""
    tree, _, entitlement = _entitle(case)

    assert oracle.entitle(*case) == _as_oracle(tree, entitlement)


@given(cases())
@settings(max_examples=examples(60), deadline=None)
def test_never_above_the_limit(case: Case) -> None:
    """No pool is entitled to more than its limit."""
    tree, _, entitlement = _entitle(case)

    assert (entitlement.total <= tree.limit).all()
    assert (entitlement.non_slack <= entitlement.total).all()
    assert (entitlement.non_slack >= 0).all()


@given(cases())
@settings(max_examples=examples(60), deadline=None)
def test_guarantee(case: Case) -> None:
    """A leaf is entitled to the smaller of its demand and its reservation, whatever the others do."""
    tree, load, entitlement = _entitle(case)

    wants = np.minimum(load.allocation + load.demand, tree.reservation)
    assert (entitlement.total >= wants)[tree.is_leaf].all()


@given(cases(SMALL, True, types=HALF_STATIC))
@settings(max_examples=examples(200), deadline=None)
def test_children_share_their_parent(case: Case) -> None:
    """Children of a valid tree never have more than their parent, to the unit; STATIC ones neither."""
    tree, _, entitlement = _entitle(case)

    for level in tree.levels:
        sums = np.add.reduceat(entitlement.total[level.begin : level.end], level.starts, axis=0)
        assert (sums <= entitlement.total[level.parents]).all()


CHILD = st.tuples(st.integers(0, 5), st.integers(0, 10), st.booleans())  # reservation, demand, whether it is STATIC
FAMILY = st.tuples(st.lists(CHILD, min_size=1, max_size=4), st.sampled_from([1, 10]))  # children, share of the parent


@given(st.lists(FAMILY, min_size=2, max_size=3), st.integers(0, 3))
@settings(max_examples=examples(200), deadline=None)
def test_no_gang_waits_in_an_idle_cluster(families: list[tuple[list[tuple[int, int, bool]], int]], spare: int) -> None:
    """A cluster with the capacity for all demand, and for the idle amounts of STATIC pools, satisfies all demand."""
    pools, wants, capacity = [], dict[str, oracle.Amounts](), spare
    for name, (children, share) in zip("abc", families, strict=False):
        pools.append(pool(f"/{name}", f"0/{sum(child[0] for child in children)}", "0/100", str(share)))
        for at, (reservation, demand, is_static) in enumerate(children):
            kind_type = "STATIC" if is_static else ""
            pools.append(pool(f"/{name}/{at}", f"0/{reservation}", "0/100", type=kind_type))
            wants[f"/{name}/{at}"] = oracle.Amounts((0, demand, 0, 0))
            capacity += max(demand, reservation * is_static)

    _, load, entitlement = _entitle((pools, wants, [0, capacity, 0, 0], 0))

    assert (entitlement.total >= load.demand).all()


@given(cases(SMALL, True))
@settings(max_examples=examples(60), deadline=None)
def test_work_conserving(case: Case) -> None:
    """A remainder is left only where every child with a share is at its limit or all below it are."""
    tree, _, entitlement = _entitle(case)
    fit_counts = tree.limit.copy()
    for level in reversed(tree.levels):
        inside = np.add.reduceat(fit_counts[level.begin : level.end], level.starts, axis=0)
        fit_counts[level.parents] = np.minimum(fit_counts[level.parents], inside)

    for level in tree.levels:
        at = slice(level.begin, level.end)
        sums = np.add.reduceat(entitlement.total[at], level.starts, axis=0)
        is_left = (sums < entitlement.total[level.parents])[level.group]
        is_full = (entitlement.total[at] >= fit_counts[at]) | (tree.share[at] == 0)
        assert (~is_left | is_full).all()


@given(cases(), st.randoms(use_true_random=False))
@settings(max_examples=examples(60), deadline=None)
def test_order_of_pools_does_not_matter(case: Case, random: Any) -> None:
    """Pools in another order have the same entitlements."""
    pools, loads, capacity, slack_cpu = case
    tree, _, entitlement = _entitle(case)
    shuffled = list(pools)
    random.shuffle(shuffled)

    other_tree, _, other = _entitle((shuffled, loads, capacity, slack_cpu))

    assert _as_oracle(tree, entitlement) == _as_oracle(other_tree, other)


@given(st.lists(st.tuples(SMALL, SMALL, SMALL, st.integers(0, 3)), min_size=2, max_size=6), SMALL)
@settings(max_examples=examples(60), deadline=None)
def test_names_decide_only_ties(siblings: list[tuple[int, int, int, int]], capacity: int) -> None:
    """Renamed siblings move at most one unit of rounding per step of the distribution."""
    results = []
    for order in (1, -1):
        names = "abcdef"[: len(siblings)][::order]
        pools = [
            pool(f"/{name}", f"0/{r}", f"0/{r + more}", str(share))
            for name, (r, more, _, share) in zip(names, siblings, strict=True)
        ]
        tree = build_tree(pools)
        wants = zip(names, siblings, strict=True)
        loads = {f"/{name}": oracle.Amounts((0, want, 0, 0)) for name, (_, _, want, _) in wants}
        entitlement = entitle(tree, _load(tree, loads), np.array([0, capacity, 0, 0]), 0)
        results.append(np.array([entitlement.total[tree.row[RespoolId(f"/{name}")], 1] for name in names]))

    assert np.abs(results[0] - results[1]).max() <= 2


@given(cases(LARGE, shares=(1, 2, 3, 1000)))
@settings(max_examples=examples(60), deadline=None)
def test_slack_cpu_is_distributed(case: Case) -> None:
    """Slack cpu is distributed whole as long as a sibling has a share, and never more than there is."""
    *_, slack_cpu = case
    tree, _, entitlement = _entitle(case)

    top = tree.levels[0]
    assert int(entitlement.slack[top.begin : top.end, 0].sum()) == slack_cpu
