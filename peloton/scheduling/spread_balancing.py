"""Moves that make a job's pods spread more evenly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from peloton.model.ids import JobId
from peloton.model.rebalance import PodNow, SpreadExcess
from peloton.model.resources import UNLIMITED
from peloton.scheduling.relocation import Relocation, TargetOrder
from peloton.scheduling.spreading import Rule
from peloton.scheduling.tree import Flags


def balance_spread(
    hosts: Relocation, job_id: JobId, sources: Mapping[int, Sequence[PodNow]], tries_max: int
) -> tuple[PodNow, int, SpreadExcess] | None:
    """Choose a pod to move and the host that it moves to, or None if no rule is violated or no move is possible.

    A domain with more than ``max_skew`` pods above another gives a pod: the fullest one that has a pod for it; the
    lowest domain with free resources takes it. ``sources``: hosts with pods of the job that may leave.
    """
    loads = hosts.loads()
    for most, least in hosts.spread.jobs[job_id].rules():
        lowest = int(most.counts[most.is_open].min(initial=UNLIMITED))
        counts = {at: int(least.counts[most.at[at]]) for at in sources if most.at[at] >= 0}
        uneven = [at for at, count in counts.items() if count > lowest + most.spread.max_skew]
        for source in sorted(uneven, key=lambda at: (-counts[at], -loads[at], at))[:tries_max]:
            for pod in sources[source]:
                order = _lowest_first(hosts, most, counts[source] - most.spread.max_skew)
                if hosts.may_leave(source, [pod]) and (target_rows := hosts.find_targets([pod], order)):
                    return pod, target_rows[0], _make_excess(hosts, most, source, target_rows[0], counts[source])
    return None


def _lowest_first(hosts: Relocation, rule: Rule, below: int) -> TargetOrder:
    """Return an order of target hosts: domains with fewer pods than ``below``, lowest first, in each the emptiest
    host."""
    on_rows, loads = rule.on_rows(), hosts.loads()

    def order(pod: PodNow, open_to: Flags) -> list[int]:
        found = np.flatnonzero(open_to & (rule.at >= 0) & (on_rows < below) & _may_go_to(hosts, rule, pod))
        return [int(at) for at in found[np.lexsort((found, loads[found], on_rows[found]))]]

    return order


def _may_go_to(hosts: Relocation, rule: Rule, pod: PodNow) -> Flags:
    """Return a flag ``[H]`` for hosts to which the pod may go by its preferences, to which a soft rule yields."""
    return np.ones(len(rule.at), np.bool_) if rule.spread.is_hard else hosts.find_preferred(pod)


def _make_excess(hosts: Relocation, rule: Rule, source: int, target: int, source_count: int) -> SpreadExcess:
    at, values = hosts.values_of(rule.spread.label)
    counts = source_count, int(rule.counts[rule.at[target]])
    return SpreadExcess(rule.spread.label, values[at[source]], values[at[target]], *counts, rule.spread.max_skew)
