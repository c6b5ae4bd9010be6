"""Invariants of evictions in a simulated day."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from peloton.lifecycle.reason_text import eviction_text
from peloton.model.admission import EvictionOrder
from peloton.model.pod import ON_HOST, PodState
from peloton.model.resources import RESOURCE_KINDS
from peloton.scheduling.cycle import Snapshot
from peloton.scheduling.eviction import Eviction
from tests.simulation.invariants import Broken
from tests.simulation.records import Records

STAYING = ON_HOST - {PodState.KILLING, PodState.PREEMPTING}


def check_all_left(records: Records, orders: Iterable[EvictionOrder]) -> None:
    """Check that all pods of the orders leave: a gang leaves whole."""
    for order in orders:
        job = records.jobs[order.job_id]
        own = (job.pods[i] for i in range(order.start, order.start + order.count))
        here = [pod for pod in own if pod.state in (*STAYING, PodState.READY) and pod.goal is PodState.SUCCEEDED]
        stays = [pod.instance_id for pod in here if pod.desired_run_id <= pod.run_id]
        if stays:
            raise Broken(f"of {order.count} evicted pods of {job.record.name} from {order.start} on {stays} stay")


def check_storm(now: Snapshot, chosen: Sequence[Eviction]) -> None:
    """Check that evictions are needed: no more of each kind than waits, than is already lacking (hosts were lost,
    limits were cut), and than one gang more for each that is served, as gangs leave whole.
    """
    waits = (now.demand + now.slack_demand).sum(axis=0)
    held = now.usage.physical(now.tree)
    limit = np.minimum(now.tree.limit, now.capacity)
    lacking = np.maximum(held - limit, 0).sum(axis=0)
    taken, largest = np.zeros_like(waits), np.zeros_like(waits)
    for one in chosen:
        kind = RESOURCE_KINDS.index(one.grounds.kind)
        taken[kind] += one.run.need[kind] * one.run.gang_count
        largest[kind] = max(largest[kind], one.run.need[kind])
    served = len({(one.grounds.for_job, one.grounds.kind, one.pool) for one in chosen})
    if (taken > waits + lacking + served * largest).any():
        wanted = f"{waits.tolist()} waits, {lacking.tolist()} is lacking"
        raise Broken(f"{taken.tolist()} was evicted in one round, {wanted}: {eviction_text(chosen[0].grounds)}")
