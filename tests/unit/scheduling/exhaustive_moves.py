"""Exhaustive search for the smallest number of moves that makes a pod fit, by the rules and without the planner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, product

from peloton.lifecycle.constraints import matches
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.pod import Label, PodShape, Strategy
from peloton.model.rebalance import PodNow, WaitingPods
from peloton.model.resources import compute_needed
from peloton.scheduling.fit import by_key
from tests.unit.scheduling.moves_table import Cluster


def broken(cluster: Cluster) -> set[tuple[PodId, Hostname]]:
    """Pods whose constraint does not hold on their host."""
    found: set[tuple[PodId, Hostname]] = set()
    for pod in cluster.pods:
        host = cluster.host(pod.hostname)
        others = Counter(host.pods) - Counter(set(pod.labels))
        if not matches(pod.shape.constraint, host.view.labels, by_key(others.items())):
            found.add((pod.pod_id, pod.hostname))
    return found


def takes(cluster: Cluster, host: str, shape: PodShape, labels: tuple[Label, ...]) -> bool:
    """Return whether the host fits the pod by free resources and constraint, and by the constraints of its pods."""
    if not compute_needed(shape.resources).fits_in(cluster.free(host)):
        return False
    newcomer = PodNow(PodId(JobId("newcomer"), 0, 1), Hostname(host), shape, labels)
    after = replace(cluster, pods=[*cluster.pods, newcomer])
    return broken(after) <= broken(cluster)


def fewest_moves(cluster: Cluster) -> int | None:
    """Return the number of moves for the one pod that waits: 0 when it fits, None when no moves off one host make it
    fit.
    """
    (waiting,) = cluster.waiting
    if any(takes(cluster, host, waiting.shape, waiting.labels) for host in cluster.capacities):
        return 0
    for count in range(1, len(cluster.pods) + 1):
        for host in cluster.capacities:
            movable = [pod for pod in cluster.on(host) if not pod.stays]
            for leaving in filter(partial(may_leave, cluster), combinations(movable, count)):
                if any(lets_in(cluster, host, moved, waiting) for moved in assignments(cluster, host, leaving)):
                    return count
    return None


def may_leave(cluster: Cluster, leaving: Sequence[PodNow]) -> bool:
    """Return whether any subset of the pods may leave without breaking a constraint of the remaining ones."""
    parts = (gone for count in range(1, len(leaving) + 1) for gone in combinations(leaving, count))
    return all(
        broken(replace(cluster, pods=[pod for pod in cluster.pods if pod not in gone])) <= broken(cluster)
        for gone in parts
    )


def assignments(cluster: Cluster, host: str, leaving: Sequence[PodNow]) -> Iterator[Cluster]:
    """Every distribution of the pods over other hosts that breaks no constraint there, in any order of their
    arrival.
    """
    for targets in product([name for name in cluster.capacities if name != host], repeat=len(leaving)):
        after = cluster
        for pod, target in zip(leaving, targets, strict=True):
            there = sum(other.pod_id.job_id == pod.pod_id.job_id for other in after.on(target))
            here = sum(other.pod_id.job_id == pod.pod_id.job_id for other in cluster.on(host))
            gang_incomplete = pod.shape.strategy is Strategy.SPREAD_JOB and there >= here
            if gang_incomplete or not all(takes(one, target, pod.shape, pod.labels) for one in (cluster, after)):
                break
            after = replace(after, pods=[*after.pods, replace(pod, hostname=Hostname(target))])
        else:
            gone = {pod.pod_id for pod in leaving}
            yield replace(after, pods=[p for p in after.pods if p.pod_id not in gone or p.hostname != host])


def lets_in(cluster: Cluster, host: str, moved: Cluster, waiting: WaitingPods) -> bool:
    return broken(moved) <= broken(cluster) and takes(moved, host, waiting.shape, waiting.labels)
