"""Plans of moves, in the pure core: 50,000 hosts and their pods."""

from __future__ import annotations

from random import Random
from time import process_time
from typing import Any

from peloton.lifecycle.constraints import Labels
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.pod import PodShape, Strategy
from peloton.model.rebalance import Goal, PodCensus, PodNow, WaitingPods
from peloton.model.resources import Resources
from peloton.scheduling.fit import HostView
from peloton.scheduling.rebalance import plan
from peloton.scheduling.relocation import HostNow

CAPACITY = Resources(16_000, 64_000, 100_000)
SHAPES = [
    PodShape(Resources(cores * 1_000, cores * gib * 1_000), strategy=Strategy.EMPTIEST_HOST)
    for cores in (1, 2, 3)
    for gib in (1, 2, 4)
]
SERVICES = 500
GRANTS = 5
"""Unavailable instances that each service permits."""
MOVES_MAX = 100
FEW_PODS = 2


def rebalance(host_count: int = 50_000) -> dict[str, Any]:
    """Seconds of a core, and moves, of a plan for each goal. For FREE, unplaceable pods of ten shapes wait."""
    full, mixed = _cluster(host_count, is_full=True), _cluster(host_count, is_full=False)
    waiting = [
        WaitingPods(JobId(f"waiting-{sort}"), PodShape(Resources(12_000, 16_000 + sort)), 3) for sort in range(10)
    ]
    found = {goal: _plan(*(full if goal is Goal.FREE else mixed), goal, waiting) for goal in Goal}
    return {"hosts": host_count, "pods": len(full[1]), **{goal.lower(): figures for goal, figures in found.items()}}


def _plan(hosts: list[HostNow], pods: list[PodNow], goal: Goal, waiting: list[WaitingPods]) -> dict[str, Any]:
    grants = dict.fromkeys((pod.pod_id.job_id for pod in pods), GRANTS)
    census = PodCensus(pods, {}, waiting if goal is Goal.FREE else (), grants)
    begun_s = process_time()
    moves = plan(hosts, census, [goal], MOVES_MAX).moves
    assert moves, f"no moves for {goal}"
    return {"seconds": round(process_time() - begun_s, 2), "moves": len(moves)}


def _cluster(host_count: int, is_full: bool) -> tuple[list[HostNow], list[PodNow]]:
    """Return hosts with as many pods as fit in some tries; a tenth of the hosts is new, and a seventh has few pods."""
    random, hosts, pods = Random(1), list[HostNow](), list[PodNow]()
    for at in range(host_count):
        name, free = Hostname(f"host{at:05d}"), CAPACITY
        tries = 10 if is_full or at % 7 else FEW_PODS
        for _ in range(tries if is_full or at % 10 else 0):
            shape = random.choice(SHAPES)
            if shape.resources.fits_in(free):
                free -= shape.resources
                job_id = JobId(f"service-{len(pods) % SERVICES}")
                pods.append(PodNow(PodId(job_id, len(pods), 1), name, shape))
        labels: Labels = {"hostname": {name: 1}, "rack": f"rack{at % 50}"}
        hosts.append(HostNow(name, CAPACITY, HostView(labels, free, port_count=1_000)))
    return hosts, pods
