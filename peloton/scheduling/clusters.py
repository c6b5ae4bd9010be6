"""The order in which clusters are asked for hosts, and the capacity counted for a silent cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from peloton.lifecycle.constraints import may_hold_in
from peloton.model.host import Capacity, ClusterChoice, HostPoolCapacity
from peloton.model.pod import PodShape
from peloton.model.reason import ClusterReason, ClusterRule
from peloton.model.resources import Resources, ordinary, pair_amounts

CAPACITY_KEPT_S = 300.0
"""Seconds for which a silent cluster counts with its last capacity: longer than a change of leaders or a reboot
takes."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    name: str
    free: Resources = Resources()  # noqa: RUF009 - frozen
    is_silent: bool = False
    kind: str = ""  # empty: unknown

    def may_take(self, shape: PodShape) -> bool:
        return may_hold_in(shape.constraint, self.name, self.kind)


def order_clusters(
    clusters: Sequence[ClusterView], wanted: Sequence[tuple[PodShape, int]], preferred: Mapping[str, int]
) -> ClusterChoice:
    """Sort the clusters in which to look for hosts for the wanted pods.

    Clusters that most pods return to (``preferred``: pods by cluster) come first, then the ones that the preferences of
    the pods favour, then the ones with free resources for most of the wanted pods, then the rest by name. Silent
    clusters are left out, and so are clusters that the constraint of every wanted pod excludes.
    """
    passed: list[ClusterReason] = []
    tried: list[ClusterView] = []
    for cluster in sorted(clusters, key=lambda one: one.name):
        if cluster.is_silent:
            passed.append(ClusterReason(cluster.name, ClusterRule.SILENT))
        elif not any(cluster.may_take(shape) for shape, _ in wanted):
            passed.append(ClusterReason(cluster.name, ClusterRule.ELSEWHERE, detail=cluster.kind))
        else:
            tried.append(cluster)
    tried.sort(
        key=lambda one: (-preferred.get(one.name, 0), -_score(one, wanted), -_count_fitting(one, wanted), one.name)
    )
    return ClusterChoice(tuple(one.name for one in tried), tuple(passed))


def _score(cluster: ClusterView, wanted: Sequence[tuple[PodShape, int]]) -> int:
    """Return the sum of the weights of preferences that hosts of the cluster may meet, over all wanted pods."""
    return sum(
        each.weight * count
        for shape, count in wanted
        for each in shape.preferences
        if may_hold_in(each.constraint, cluster.name, cluster.kind)
    )


def _count_fitting(cluster: ClusterView, wanted: Sequence[tuple[PodShape, int]]) -> int:
    """Return how often all wanted pods allowed there fit into the cluster's free resources, in thousandths.

    It compares totals and leaves aside how they are divided among hosts.
    """
    asked = Resources()
    for shape, count in wanted:
        if cluster.may_take(shape):
            asked += ordinary(shape.resources, shape.revocable) * count
    shares = [have * 1000 // need for _, have, need in pair_amounts(cluster.free, asked) if need > 0]
    return min(shares, default=0)


@dataclass(frozen=True, slots=True)
class Known:
    """The last capacity that a cluster reported, and when."""

    capacity: Capacity
    said_s: float


def counts_as_known(known: Known | None, now_s: float) -> bool:
    """Return whether a silent cluster still counts with its last capacity.

    After that it counts with the resources that its pods hold: they keep these, and no pod is added.
    """
    return known is not None and now_s - known.said_s <= CAPACITY_KEPT_S


def total_of(clusters: Sequence[Capacity]) -> Capacity:
    """Add up the capacity of all clusters.

    The sums by host pool are kept only if each cluster has all of its hosts in host pools: hosts outside of one take
    pods of any workload.
    """
    columns = zip(*((one.up, one.revocable, one.registered) for one in clusters), strict=True)
    up, revocable, registered = (sum(amounts, Resources()) for amounts in columns)
    if not all(one.host_pools or not any(one.up) for one in clusters):
        return Capacity(up, revocable, registered)
    found: dict[str, HostPoolCapacity] = {}
    for pool in (pool for one in clusters for pool in one.host_pools):
        known = found.get(pool.name, HostPoolCapacity(pool.name, frozenset(), Resources()))
        slack = known.slack_cpu_milli + pool.slack_cpu_milli
        found[pool.name] = HostPoolCapacity(pool.name, known.serves | pool.serves, known.up + pool.up, slack)
    return Capacity(up, revocable, registered, tuple(found.values()))
