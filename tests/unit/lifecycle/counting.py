"""Pods counted from records, as storage counts them with one statement."""

from __future__ import annotations

from collections.abc import Iterable

from peloton.lifecycle.settle import Counted, Kind, PodCounts, kind_of
from peloton.model.job import JobRecord
from peloton.model.pod import PodRecord


def count_pods(job: JobRecord, pods: Iterable[PodRecord], now_ns: int) -> PodCounts:
    alike: dict[Kind, list[PodRecord]] = {}
    controller = None
    for pod in pods:
        alike.setdefault(kind_of(pod, job.gang_size, now_ns), []).append(pod)
        if job.has_controller and pod.instance_id == 0:
            controller = pod.state
    return PodCounts.of((_count_pod(kind, mine) for kind, mine in alike.items()), controller)


def _count_pod(kind: Kind, pods: list[PodRecord]) -> Counted:
    return Counted(
        kind,
        len(pods),
        min((pod.started_ns for pod in pods if pod.started_ns), default=0),
        max(pod.completed_ns for pod in pods),
        min(pod.due_ns for pod in pods),
        sum(pod.run_seconds for pod in pods),
        max(pod.run_id if pod.instance_id == 0 else 0 for pod in pods),
    )
