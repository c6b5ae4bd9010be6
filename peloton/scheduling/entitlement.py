"""The entitlement of each pool: hierarchical weighted max-min fairness, exact to the unit.

From the root down, the entitlement E of a pool is divided among its children, separately for each kind:

A. guarantee: ``min(claim, reservation)``, or the whole reservation where it is STATIC. Guarantees are honoured even
   when they add up to more than E (hosts were lost, or an update was forced): then, and only then, children together
   hold more than their parent. Admission still stops at every ancestor's limit and at the cluster's capacity.
B. the claim above the guarantee, by share.
C. the rest, by share, up to each limit. Amounts cut off by one child's limit are offered to the others again. The
   amounts that A and B gave a child for idle STATIC reservations below it are within its part of the rest.

A leaf claims its demand. A STATIC pool claims its reservation at least, as far as the cluster has it: no other pool may
use it. An inner pool claims the sum of its children's claims: if it claimed its demand alone, the idle reservations of
its STATIC children would be taken from its other children.

A child with share 0 takes no part in B and C. Fractions go to the largest remainder, ties to the first by path.

Claim, demand and limit of an inner pool are cut to the amounts that its children can use or keep, level by level on the
way up, so a subtree never receives more than that.

The cpu of revocable pods is slack (revocable cpu of hosts), divided in a second pass the same way; their other kinds
are borrowed from the amounts that non-revocable pods of the same pool leave over, within the pool's slack limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from peloton.scheduling.filling import Ints, fill
from peloton.scheduling.gangs import Usage
from peloton.scheduling.tree import CPU, Level, PoolTree


@dataclass(frozen=True, eq=False)
class Load:
    """Allocation and demand of pools, own amounts ``[P,R]`` (not subtree sums): only leaves have any.

    Demand is of gangs in queues; allocation of admitted pods. Slack is the revocable part; the others exclude it.
    """

    demand: Ints
    slack_demand: Ints
    allocation: Ints
    slack_allocation: Ints


@dataclass(frozen=True, eq=False)
class Entitlement:
    """``[P,R]`` each. ``total`` is physical; of it ``non_slack`` is for non-revocable pods, the rest may be borrowed.

    ``slack`` is for revocable pods: cpu from the slack of hosts, other kinds borrowed from ``total``.
    """

    total: Ints
    non_slack: Ints
    slack: Ints
    parts: tuple[Entitlement, ...] = field(default=(), kw_only=True)  # one per compartment; empty: there are none
    host_pools: str = field(default="", kw_only=True)  # of the compartment; empty for a whole cluster
    licenses: Entitlement | None = field(default=None, kw_only=True)  # over all compartments; they are divided once


def pair_parts(entitlement: Entitlement, usage: Usage) -> Iterator[tuple[Entitlement, Usage]]:
    """Yield entitlement and usage of each compartment, and then of licenses in all of them; without compartments, the
    two themselves. A kind is bounded in one of these only: elsewhere its entitlement is UNLIMITED."""
    yield from zip(entitlement.parts or (entitlement,), usage.parts or (usage,), strict=True)
    if entitlement.licenses is not None:
        yield entitlement.licenses, usage


def entitle(tree: PoolTree, load: Load, capacity: Ints, slack_cpu: int) -> Entitlement:
    """Divide ``capacity`` ``[R]`` and the cluster's slack cpu among all pools."""
    wants = _compute_wants(tree, load, capacity)
    total = np.zeros_like(tree.reservation)
    total[0] = capacity
    for level in tree.levels:
        total[level.begin : level.end] = _divide(tree, level, wants, total[level.parents])
    borrowed = np.minimum(np.maximum(total - wants.non_slack, 0), wants.slack)
    borrowed[0] = 0
    slack = borrowed.copy()
    slack[:, CPU] = _divide_slack_cpu(tree, load, slack_cpu)
    return Entitlement(total=total, non_slack=total - borrowed, slack=slack)


@dataclass(frozen=True, eq=False)
class _Wants:
    non_slack: Ints  # [P,R] allocation plus demand, cut by the limits below
    slack: Ints  # [P,R] amounts that revocable pods borrow; cpu is 0
    fixed: Ints  # [P,R] the reservation of a STATIC pool, 0 for others
    busy: Ints  # [P,R] ``non_slack`` plus ``slack``, at least ``fixed``
    claim: Ints  # [P,R] ``busy`` plus idle reservations of STATIC pools below
    ceiling: Ints  # [P,R] the limit, cut to the sum of the children's limits


def _compute_wants(tree: PoolTree, load: Load, capacity: Ints) -> _Wants:
    non_slack = load.allocation + load.demand
    slack = np.minimum(tree.slack_limit, load.slack_allocation + load.slack_demand)
    fixed = np.where(tree.static, np.minimum(tree.reservation, tree.limit), 0)
    busy, claim, ceiling = np.zeros_like(fixed), np.minimum(fixed, capacity), tree.limit.copy()
    for level in reversed(tree.levels):
        at, parents, starts = slice(level.begin, level.end), level.parents, level.starts
        non_slack[at] = np.minimum(non_slack[at], ceiling[at])
        slack[at] = np.minimum(slack[at], ceiling[at] - non_slack[at])
        busy[at] = non_slack[at] + slack[at]
        ceiling[at] = np.maximum(ceiling[at], fixed[at])
        claim[at] = np.minimum(np.maximum(claim[at], busy[at]), ceiling[at])
        non_slack[parents] = np.add.reduceat(non_slack[at], starts, axis=0)
        slack[parents] = np.minimum(np.add.reduceat(slack[at], starts, axis=0), tree.slack_limit[parents])
        claim[parents] = np.maximum(np.add.reduceat(claim[at], starts, axis=0), claim[parents])
        ceiling[parents] = np.minimum(np.add.reduceat(ceiling[at], starts, axis=0), ceiling[parents])
    return _Wants(non_slack, slack, fixed, np.maximum(busy, fixed), claim, ceiling)


def _divide(tree: PoolTree, level: Level, wants: _Wants, amounts: Ints) -> Ints:
    """Divide amounts ``[G,R]`` of the parents into entitlements ``[K,R]`` of their children: steps A, B and C."""
    at, share = slice(level.begin, level.end), level.by_share
    claim = wants.claim[at]

    reservation = np.minimum(tree.reservation[at], tree.limit[at])
    allocated = np.maximum(np.minimum(claim, reservation), wants.fixed[at])  # A
    left = np.maximum(amounts - np.add.reduceat(allocated, level.starts, axis=0), 0)

    more = fill(share, left, np.maximum(claim - allocated, 0))  # B
    left -= np.add.reduceat(more, level.starts, axis=0)
    allocated += more

    busy = np.minimum(allocated, wants.busy[at])
    return busy + _divide_rest(level, left, allocated - busy, np.maximum(wants.ceiling[at] - busy, 0))  # C


def _divide_rest(level: Level, left: Ints, idle: Ints, ceiling: Ints) -> Ints:
    """Divide ``left`` ``[G,R]`` and all ``idle`` ``[K,R]`` by share, up to ``ceiling`` ``[K,R]``.

    A child never receives less than the amount that is idle in it.
    """
    if not idle.any():
        return fill(level.by_share, left, ceiling)
    shared = idle  # without the children whose part would be less: they keep their own
    while True:
        rest = fill(level.by_share, left + np.add.reduceat(shared, level.starts, axis=0), ceiling)
        is_less = rest < shared
        if not is_less.any():
            return rest + (idle - shared)
        shared, ceiling = np.where(is_less, 0, shared), np.where(is_less, 0, ceiling)


def _divide_slack_cpu(tree: PoolTree, load: Load, slack_cpu: int) -> Ints:
    """Return the revocable cpu ``[P]``: first the cpu held, then the demand, then the rest by share, whatever the
    limits.

    When slack shrinks below the cpu held, the held amounts shrink by share as well.
    """
    held = tree.roll_up(load.slack_allocation)[:, CPU : CPU + 1]
    wanted = tree.roll_up(load.slack_demand)[:, CPU : CPU + 1]
    allocated = np.zeros_like(held)
    allocated[0] = slack_cpu
    for level in tree.levels:
        at, left = slice(level.begin, level.end), allocated[level.parents]
        share = level.cpu_by_share
        for want, weights in ((held[at], level.held_cpu), (wanted[at], share), (left[level.group], share)):
            more = fill(weights, left, want)
            allocated[at] += more
            left = left - np.add.reduceat(more, level.starts, axis=0)
    return allocated[:, 0]
