"""Placement and launch of a job's pods in one call: lease, packing and launch in the process that owns the hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from peloton.lifecycle.reservation import waiting_pods
from peloton.model.host import (
    Desired,
    HostLease,
    LaunchedBatch,
    LaunchResult,
    Placement,
    PlacementBatch,
    ReadyGang,
    count_shapes,
    find_desired,
)
from peloton.model.ids import JobId
from peloton.model.pod import PodShape
from peloton.model.reservation import WaitingPod
from peloton.scheduling.placement import place


class ReadyPods(Protocol):
    def ready_gangs(self, job_id: JobId, limit: int) -> Sequence[ReadyGang]: ...

    def ready_gang(self, job_id: JobId) -> ReadyGang | None: ...


class LeasableHosts(Protocol):
    def acquire_hosts(
        self,
        job_id: JobId,
        gangs: Sequence[tuple[PodShape, int]],
        for_gang: bool = False,
        desired: Sequence[Desired] = (),
        *,
        waiting: Sequence[WaitingPod] = (),
    ) -> HostLease: ...

    def launch(self, job_id: JobId, lease_id: str, placements: Sequence[Placement]) -> LaunchResult: ...

    def release(self, lease_id: str) -> None: ...


def place_and_launch(pods: ReadyPods, hosts: LeasableHosts, job_id: JobId, limit: int, for_gang: bool) -> LaunchedBatch:
    """Place at most ``limit`` READY pods that are not in a gang, or the gang whole, and launch them. Raises Unavailable
    and NotFound; the lease has ended then."""
    gangs = _read_ready(pods, job_id, limit, for_gang)
    if not gangs:
        return LaunchedBatch(LaunchResult(0), PlacementBatch(job_id, ""))
    waiting = () if for_gang else waiting_pods(gangs)
    lease = hosts.acquire_hosts(job_id, count_shapes(gangs), for_gang, find_desired(gangs), waiting=waiting)
    launch = LaunchResult(0)
    try:
        batch = place(job_id, gangs, lease)
        if batch.placements:
            launch = hosts.launch(job_id, lease.lease_id, batch.placements)
    finally:
        hosts.release(lease.lease_id)  # a launch has ended it already
    return LaunchedBatch(launch, replace(batch, lease_id="", placements=()))


def _read_ready(pods: ReadyPods, job_id: JobId, limit: int, for_gang: bool) -> Sequence[ReadyGang]:
    if not for_gang:
        return pods.ready_gangs(job_id, limit)
    gang = pods.ready_gang(job_id)
    return [gang] if gang else []
