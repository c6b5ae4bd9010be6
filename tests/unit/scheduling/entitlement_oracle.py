"""The slow, obvious entitlement: recursion and exact fractions. No arrays, and no code shared with the fast one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor

from peloton.model.ids import ROOT_POOL_ID
from peloton.model.resources import RESOURCE_KINDS
from peloton.model.respool import PoolSpec, ReservationType


@dataclass
class Amounts:
    """Amounts of one leaf, per kind."""

    demand: Sequence[int] = (0, 0, 0, 0)
    slack_demand: Sequence[int] = (0, 0, 0, 0)
    allocation: Sequence[int] = (0, 0, 0, 0)
    slack_allocation: Sequence[int] = (0, 0, 0, 0)


@dataclass(eq=False)
class Node:
    spec: PoolSpec | None
    children: list[Node] = field(default_factory=list)
    amounts: Amounts = field(default_factory=Amounts)
    total: int = 0
    non_slack: int = 0
    slack: int = 0

    # Amounts of one kind, from the view of this node; filled in for each kind.
    limit: int = 0
    share: int = 0
    wants: int = 0
    borrows: int = 0
    fixed: int = 0
    claim: int = 0
    usable: int = 0


Result = dict[str, dict[str, list[int]]]


def entitle(
    pools: Sequence[PoolSpec], amounts: Mapping[str, Amounts], capacity: Sequence[int], slack_cpu: int
) -> Result:
    """Return pool id -> {"total", "non_slack", "slack"} -> amount per kind."""
    ids = [ROOT_POOL_ID, *(p.respool_id for p in pools)]
    result: Result = {pool_id: {"total": [], "non_slack": [], "slack": []} for pool_id in ids}
    for kind in range(len(capacity)):
        root = build(pools, amounts, ROOT_POOL_ID, None)
        look(root, kind, capacity[kind])
        root.total = capacity[kind]
        allocate(root, kind)
        if kind == RESOURCE_KINDS.index("cpu"):
            root.slack = slack_cpu
            distribute_slack_cpu(root, kind)
        collect(root, result)
    return result


def build(pools: Sequence[PoolSpec], amounts: Mapping[str, Amounts], pool_id: str, spec: PoolSpec | None) -> Node:
    children = sorted((p for p in pools if p.parent_id == pool_id), key=lambda p: p.name)
    return Node(spec, [build(pools, amounts, p.respool_id, p) for p in children], amounts.get(pool_id, Amounts()))


def look(node: Node, kind: int, capacity: int) -> None:
    """Compute bottom up the demand, the amount that may be borrowed, the claims, and the amount that fits."""
    for child in node.children:
        look(child, kind, capacity)
    if node.spec is None:
        return
    resource, spec = node.spec.resources[kind], node.spec
    node.limit, node.share = resource.limit, resource.share
    node.fixed = min(resource.reservation, resource.limit) if resource.type is ReservationType.STATIC else 0
    percent = Fraction(20 if spec.slack_limit_percent is None else str(spec.slack_limit_percent))
    slack_limit = 0 if resource.kind == "cpu" else floor(resource.reservation * percent / 100)
    if node.children:
        node.usable = min(node.limit, sum(child.usable for child in node.children))
        wants = sum(child.wants for child in node.children)
        borrows = sum(child.borrows for child in node.children)
    else:
        node.usable = node.limit
        wants = node.amounts.allocation[kind] + node.amounts.demand[kind]
        borrows = node.amounts.slack_allocation[kind] + node.amounts.slack_demand[kind]
    node.wants = min(wants, node.usable)
    node.borrows = min(borrows, slack_limit, node.usable - node.wants)
    node.usable = max(node.usable, node.fixed)
    claim = max(node.wants + node.borrows, sum(child.claim for child in node.children))
    node.claim = max(min(claim, node.usable), min(node.fixed, capacity))


def allocate(node: Node, kind: int) -> None:
    """Distributes top down: guarantees, claims by share, the rest by share."""
    left = node.total
    for child in node.children:
        assert child.spec is not None
        resource = child.spec.resources[kind]
        child.total = max(child.fixed, min(resource.reservation, resource.limit, child.claim))
        left = max(left - child.total, 0)
    shares = [child.share for child in node.children]
    asked = [max(child.claim - child.total, 0) for child in node.children]
    for child, more in zip(node.children, water_fill(left, asked, shares), strict=True):
        child.total += more
        left -= more
    distribute_rest(node.children, left)
    for child in node.children:
        child.slack = min(max(child.total - child.wants, 0), child.borrows)
        child.non_slack = child.total - child.slack
        allocate(child, kind)


def distribute_rest(children: Sequence[Node], left: int) -> None:
    """Distributes the rest by share, and counts idle amounts of STATIC pools below a child as part of its share: a
    child with more idle amounts than its share keeps them, and the others share the remainder.
    """
    idle = {id(c): max(c.total - max(c.wants + c.borrows, c.fixed), 0) for c in children}
    sharing = list(children)
    while True:
        busy = [c.total - idle[id(c)] for c in sharing]
        amount = left + sum(idle[id(c)] for c in sharing)
        usable = [max(c.usable - b, 0) for c, b in zip(sharing, busy, strict=True)]
        parts = water_fill(amount, usable, [c.share for c in sharing])
        more_by_that = [c for c, part in zip(sharing, parts, strict=True) if part < idle[id(c)]]
        if not more_by_that:
            break
        sharing = [c for c in sharing if c not in more_by_that]
    for child, b, part in zip(sharing, busy, parts, strict=True):
        child.total = b + part


def distribute_slack_cpu(node: Node, kind: int) -> None:
    left = node.slack
    for child in node.children:
        child.slack = 0
    for what in ("held", "wanted", "rest"):
        if what == "rest":
            asked = [left for _ in node.children]
        else:
            column = "slack_allocation" if what == "held" else "slack_demand"
            asked = [below(child, column, kind) for child in node.children]
        weights = [max(c.share, 1) if what == "held" else c.share for c in node.children]
        for child, more in zip(node.children, water_fill(left, asked, weights), strict=True):
            child.slack += more
        left = node.slack - sum(child.slack for child in node.children)
    for child in node.children:
        distribute_slack_cpu(child, kind)


def below(node: Node, what: str, kind: int) -> int:
    own: int = getattr(node.amounts, what)[kind]
    return sum((below(child, what, kind) for child in node.children), own)


def water_fill(amount: int, asked: Sequence[int], weights: Sequence[int]) -> list[int]:
    """Raise the level of all unsatisfied requests, in steps, until one is full or the amount is spent; then round."""
    got = [Fraction(0) for _ in asked]
    left = Fraction(amount)
    while left > 0:
        open_ = [i for i in range(len(asked)) if weights[i] > 0 and got[i] < asked[i]]
        if not open_:
            break
        step = min((asked[i] - got[i]) / weights[i] for i in open_)
        step = min(step, left / sum(weights[i] for i in open_))
        for i in open_:
            got[i] += step * weights[i]
            left -= step * weights[i]
    whole = [floor(g) for g in got]
    spare = int(sum(got)) - sum(whole)
    by_remainder = sorted(range(len(got)), key=lambda i: (whole[i] - got[i], i))
    for i in by_remainder[:spare]:
        whole[i] += 1
    return whole


def collect(node: Node, result: Result) -> None:
    found = result[node.spec.respool_id if node.spec else ROOT_POOL_ID]
    found["total"].append(node.total)
    found["non_slack"].append(node.non_slack if node.spec else node.total)
    found["slack"].append(node.slack)
    for child in node.children:
        collect(child, result)
