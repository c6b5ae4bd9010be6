"""In which order clusters are asked for hosts, and how a silent cluster counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from peloton.lifecycle.constraints import may_hold_in
from peloton.model.host import Capacity, ClusterChoice, HostPoolCapacity
from peloton.model.pod import PodShape
from peloton.model.reason import ClusterReason, ClusterRule
from peloton.model.resources import Resources

CAPACITY_KEPT_S = 300.0
"""A silent cluster counts with its last capacity for so long: longer than a change of leaders or a reboot takes."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    name: str
    free: Resources = Resources()  # noqa: RUF009 - frozen
    is_silent: bool = False
    kind: str = ""  # empty: not known

    def may_take(self, shape: PodShape) -> bool:
        return may_hold_in(shape.constraint, self.name, self.kind)


def order_clusters(
    clusters: Sequence[ClusterView], wanted: Sequence[tuple[PodShape, int]], homes: Mapping[str, int]
) -> ClusterChoice:
    """First the clusters to which most pods come back (``homes``: pods by cluster), then those with room for most of
    the wanted pods, then by name. Silent clusters, and those that every wanted pod's constraint excludes, are passed
    over."""
    passed: list[ClusterReason] = []
    tried: list[ClusterView] = []
    for cluster in sorted(clusters, key=lambda one: one.name):
        if cluster.is_silent:
            passed.append(ClusterReason(cluster.name, ClusterRule.SILENT))
        elif not any(cluster.may_take(shape) for shape, _ in wanted):
            passed.append(ClusterReason(cluster.name, ClusterRule.ELSEWHERE, detail=cluster.kind))
        else:
            tried.append(cluster)
    tried.sort(key=lambda one: (-homes.get(one.name, 0), -_room(one, wanted), one.name))
    return ClusterChoice(tuple(one.name for one in tried), tuple(passed))


def _room(cluster: ClusterView, wanted: Sequence[tuple[PodShape, int]]) -> int:
    """How often all wanted pods that may go there fit into its free resources, in thousandths, whatever its hosts."""
    asked = Resources()
    for shape, count in wanted:
        if cluster.may_take(shape):
            cpu, *rest = shape.resources * count
            asked += Resources(0 if shape.revocable else cpu, *rest)
    shares = [have * 1000 // need for have, need in zip(cluster.free, asked, strict=True) if need > 0]
    return min(shares, default=0)


@dataclass(frozen=True, slots=True)
class Known:
    """The last capacity that a cluster reported."""

    capacity: Capacity
    said_s: float


def counts_as_known(known: Known | None, now_s: float) -> bool:
    """Whether a silent cluster still counts with it; else with what its pods hold: they keep that, and no pod is
    added."""
    return known is not None and now_s - known.said_s <= CAPACITY_KEPT_S


def total_of(clusters: Sequence[Capacity]) -> Capacity:
    """Of all clusters. By host pool only if the hosts of each are in host pools: others take pods of any workload."""
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
