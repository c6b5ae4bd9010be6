"""Invariants of a cycle: each check yields a sentence per fault with the object, the rule and the numbers.

The simulation checks them in every step, and the resource manager after each cycle when a setting says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from peloton.lifecycle.reason_text import eviction_text
from peloton.model.resources import RESOURCE_KINDS
from peloton.scheduling.admission import Usage
from peloton.scheduling.cycle import Plan, Snapshot
from peloton.scheduling.tree import CPU, Ints, PoolTree


def above_bounds(now: Snapshot, plan: Plan, after: Usage) -> Iterator[str]:
    """Usage that grew above a limit, the capacity, an entitlement, a reservation of non-preemptible pods or the slack.

    Usage that was above before (hosts were lost, a limit was cut) may stay so, but must not grow.
    """
    tree, before, may = now.tree, now.usage, plan.entitlement
    limit = tree.limit.copy()
    limit[0] = now.capacity
    yield from grown(tree, "the limit", before.physical(tree), after.physical(tree), limit)
    leaf = tree.is_leaf[:, None]
    columns = [
        ("the entitlement", before.non_slack, after.non_slack, may.non_slack),
        ("the slack entitlement", before.slack, after.slack, may.slack),
    ]
    if now.preempts:
        rule = "the reservation for non-preemptible pods"
        columns.append((rule, before.non_preemptible, after.non_preemptible, tree.reservation))
    for name, old, new, bound in columns:
        yield from grown(tree, name, old * leaf, new * leaf, bound)
    slack = int(after.slack[:, CPU].sum())
    if slack > max(int(before.slack[:, CPU].sum()), now.slack_cpu):
        yield f"revocable cpu of {slack} was admitted, hosts have {now.slack_cpu}"


def grown(tree: PoolTree, what: str, old: Ints, new: Ints, bound: Ints) -> Iterator[str]:
    for row, kind in zip(*((new > old) & (new > bound)).nonzero(), strict=True):
        held = f"{RESOURCE_KINDS[kind]} of {tree.paths[row]} grew from {old[row, kind]} to {new[row, kind]}"
        yield f"{held}, above {what}: {bound[row, kind]}"


def wrong_evictions(now: Snapshot, plan: Plan) -> Iterator[str]:
    """Evictions of gangs that are not preemptible, or for their own job."""
    for one in plan.evictions:
        run = one.run
        if not run.preemptible:
            why = eviction_text(one.grounds)
            yield f"{run.job_id} of {now.tree.paths[one.pool]} is not preemptible, and was evicted: {why}"
        if one.grounds.for_job == run.job_id and one.grounds.is_inside:
            yield f"{run.job_id} of {now.tree.paths[one.pool]} was evicted for itself"
