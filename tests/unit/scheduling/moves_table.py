"""Clusters for plans of moves, which they also carry out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.layout import Domains, Layout, Spread
from peloton.model.pod import Label, PodShape, Strategy
from peloton.model.rebalance import Goal, JobSpread, Move, PodCensus, PodNow, RebalancePlan, WaitingPods
from peloton.model.resources import Resources, compute_needed
from peloton.scheduling.fit import HostView, misfit
from peloton.scheduling.rebalance import plan
from peloton.scheduling.relocation import HostNow
from tests.present import require

FREE, SPREAD, EMPTY = [Goal.FREE], [Goal.SPREAD], [Goal.EMPTY]
PLENTY = 100


@dataclass(frozen=True)
class Cluster:
    """The parts of a snapshot, kept separately so that moves can be carried out."""

    capacities: Mapping[str, Resources]
    pods: Sequence[PodNow]
    waiting: Sequence[WaitingPods] = ()
    labels: Mapping[str, Mapping[str, str]] | None = None
    grants: int = PLENTY
    reserved: Mapping[str, tuple[JobId, PodShape]] | None = None
    held: Collection[str] = ()
    elsewhere: Collection[str] = ()  # jobs that have pods in other clusters

    def on(self, host: str) -> list[PodNow]:
        return [pod for pod in self.pods if pod.hostname == host]

    def free(self, host: str) -> Resources:
        return self.capacities[host] - sum((compute_needed(pod.shape.resources) for pod in self.on(host)), Resources())

    def host(self, host: str) -> HostNow:
        counts = Counter(label for pod in self.on(host) for label in set(pod.labels))
        view = HostView(self.labels_of(host), self.free(host), port_count=9)
        reserved_for = (self.reserved or {}).get(host)
        is_held = host in self.held
        takes_pods = not is_held and reserved_for is None
        name = Hostname(host)
        return HostNow(name, self.capacities[host], view, counts, 0, takes_pods, reserved_for, is_held)

    def labels_of(self, host: str) -> dict[str, str]:
        return {"hostname": host, **(self.labels or {}).get(host, {})}

    def census(self, drained: Collection[str] = ()) -> PodCensus:
        jobs = {pod.pod_id.job_id for pod in self.pods}
        return PodCensus(self.pods, {}, self.waiting, dict.fromkeys(jobs, self.grants), self.spread(drained))

    def spread(self, drained: Collection[str] = ()) -> dict[JobId, JobSpread]:
        """Return the spread of each job with a shape that spreads."""
        shapes: dict[JobId, dict[PodShape, None]] = {}
        pods = [(pod.pod_id.job_id, pod.shape) for pod in self.pods]
        for job_id, shape in pods + [(one.job_id, one.shape) for one in self.waiting]:
            if shape.layout:
                shapes.setdefault(job_id, {})[shape] = None
        return {
            job_id: JobSpread(
                {
                    one: [Domains(self.domains(job_id, one, rule, drained)) for rule in require(one.layout).spread]
                    for one in own
                },
                job_id not in self.elsewhere,
            )
            for job_id, own in shapes.items()
        }

    def domains(self, job_id: JobId, shape: PodShape, rule: Spread, drained: Collection[str] = ()) -> dict[str, int]:
        """Pods of the job in each open domain."""
        hosts = {name: self.labels_of(name) for name in self.capacities}
        whole = {name: HostView(labels, self.capacities[name], port_count=9) for name, labels in hosts.items()}
        values = {name: labels[rule.label] for name, labels in hosts.items() if rule.label in labels}
        left = {name: value for name, value in values.items() if name not in drained}
        found = {value: 0 for name, value in left.items() if misfit(shape, whole[name], None) is None}
        for pod in self.pods:
            if pod.pod_id.job_id == job_id and (value := values.get(pod.hostname)) in found:
                found[value] += 1
        return found

    def plan(self, goals: Collection[Goal], moves_max: int = PLENTY) -> RebalancePlan:
        return plan([self.host(name) for name in self.capacities], self.census(), goals, moves_max)

    def after(self, moves: Sequence[Move]) -> Cluster:
        targets = {move.pod_id: move.target for move in moves}
        return replace(self, pods=[replace(p, hostname=targets.get(p.pod_id, p.hostname)) for p in self.pods])


def cpu(cores: int, **more: Any) -> PodShape:
    return PodShape(Resources(cores * 1000), strategy=Strategy.EMPTIEST_HOST, **more)


def over(label: str, max_skew: int = 1, is_hard: bool = False) -> Layout:
    return Layout((Spread(label, max_skew, is_hard),))


def pods_on(job: str, host: str, shape: PodShape, count: int = 1, labels: tuple[Label, ...] = ()) -> list[PodNow]:
    """Instances by the name of the host, so that calls for several hosts do not meet."""
    first = sum(map(ord, host)) * 100
    return [PodNow(PodId(JobId(job), first + i, 1), Hostname(host), shape, labels) for i in range(count)]


def hosts_of(*names: str, cores: int = 8) -> dict[str, Resources]:
    return {name: Resources(cores * 1000) for name in names}


def waits(cores: int, count: int = 1, **more: object) -> list[WaitingPods]:
    return [WaitingPods(JobId("big"), cpu(cores, **more), count)]


def ways(moves: Sequence[Move]) -> list[tuple[str, str, str]]:
    return [(move.pod_id.job_id, move.source, move.target) for move in moves]
