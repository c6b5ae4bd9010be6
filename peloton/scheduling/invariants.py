"""Invariants of a cycle: each check yields a sentence per fault with the object, the rule and the numbers.

The simulation checks them in every step, and the resource manager after each cycle when a setting says so.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from peloton.lifecycle.reason_text import eviction_text
from peloton.model.resources import UNLIMITED
from peloton.scheduling.compartments import Compartment
from peloton.scheduling.cycle import Plan, Snapshot
from peloton.scheduling.entitlement import Entitlement
from peloton.scheduling.gangs import Usage
from peloton.scheduling.tree import CPU, Ints, PoolTree


def above_bounds(now: Snapshot, plan: Plan, after: Usage) -> Iterator[str]:
    """Yield usage that grew above a limit, the capacity, an entitlement, a non-preemptible reservation or the slack.

    Usage that was above before (hosts were lost, a limit was cut) may remain, but must not grow.
    """
    tree, before, may = now.tree, now.usage, plan.entitlement
    limit = tree.limit.copy()
    limit[0] = now.capacity
    if now.compartments:  # each has its own capacity
        limit[0, [kind for kind in range(len(tree.kinds)) if kind not in tree.licenses]] = UNLIMITED
    yield from grown(tree, "the limit", before.physical(tree), after.physical(tree), limit)
    for load, was, held, allocated in zip(now.compartments, before.parts, after.parts, may.parts, strict=True):
        yield from _above_compartment(tree, load.compartment, was, held, allocated)
    leaf = tree.is_leaf[:, None]
    columns = []
    if not now.compartments:  # a pool above its bound in one compartment may grow in another
        columns.append(("the entitlement", before.non_slack, after.non_slack, may.non_slack))
        columns.append(("the slack entitlement", before.slack, after.slack, may.slack))
        yield from _above_slack("hosts have", before, after, now.slack_cpu)
    elif may.licenses is not None:
        columns.append(("the entitlement", before.non_slack, after.non_slack, may.licenses.non_slack))
        columns.append(("the slack entitlement", before.slack, after.slack, may.licenses.slack))
    if now.preempts:
        rule = "the reservation for non-preemptible pods"
        columns.append((rule, before.non_preemptible, after.non_preemptible, tree.reservation))
    for name, old, new, bound in columns:
        yield from grown(tree, name, old * leaf, new * leaf, bound)


def _above_compartment(
    tree: PoolTree, what: Compartment, before: Usage, after: Usage, may: Entitlement
) -> Iterator[str]:
    leaf, capacity = tree.is_leaf[:, None], np.array([what.capacity.row(tree.kinds)], np.int64)
    capacity[:, list(tree.licenses)] = UNLIMITED  # they are bounded over all compartments
    held = before.physical(tree)[:1], after.physical(tree)[:1]
    yield from grown(tree, f"the capacity of {what.host_pools}", *held, capacity)
    pairs = [(before.non_slack, after.non_slack, may.non_slack), (before.slack, after.slack, may.slack)]
    for old, new, bound in pairs:
        yield from grown(tree, f"the entitlement in {what.host_pools}", old * leaf, new * leaf, bound)
    yield from _above_slack(f"{what.host_pools} has", before, after, what.slack_cpu)


def _above_slack(hosts: str, before: Usage, after: Usage, slack_cpu: int) -> Iterator[str]:
    slack = int(after.slack[:, CPU].sum())
    if slack > max(int(before.slack[:, CPU].sum()), slack_cpu):
        yield f"revocable cpu of {slack} was admitted, {hosts} {slack_cpu}"


def grown(tree: PoolTree, what: str, old: Ints, new: Ints, bound: Ints) -> Iterator[str]:
    for row, kind in zip(*((new > old) & (new > bound)).nonzero(), strict=True):
        held = f"{tree.kinds[kind]} of {tree.paths[row]} grew from {old[row, kind]} to {new[row, kind]}"
        yield f"{held}, above {what}: {bound[row, kind]}"


def wrong_evictions(now: Snapshot, plan: Plan) -> Iterator[str]:
    """Yield evictions of gangs that are not preemptible, or for their own job."""
    for one in plan.evictions:
        run = one.run
        if not run.preemptible:
            why = eviction_text(one.grounds)
            yield f"{run.job_id} of {now.tree.paths[one.pool]} is not preemptible, and was evicted: {why}"
        if one.grounds.for_job == run.job_id and one.grounds.is_inside:
            yield f"{run.job_id} of {now.tree.paths[one.pool]} was evicted for itself"
