"""Placement and launch in one call: what is leased is launched or released, and the answer names the pods left over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from peloton.errors import Unavailable
from peloton.model.host import (
    HostLease,
    LaunchedBatch,
    LaunchResult,
    LeasedHost,
    Placement,
    PlacementBatch,
    ReadyGang,
    Unplaced,
    count_shapes,
    find_desired,
)
from peloton.model.ids import Hostname, JobId
from peloton.model.pod import PodShape
from peloton.model.reason import ClusterReason, Infeasible
from peloton.model.resources import Resources
from peloton.scheduling.placement import place
from services.hostmgr.messages import decode_launched_batch, encode_launched_batch
from services.hostmgr.placing import place_and_launch
from tests.reasons import too_large

JOB = JobId("00000000-0000-4000-8000-000000000001")
ONE = PodShape(Resources(1_000))


class Hosts:
    """Hosts of 1 cpu, all free, and the pods of a job. Implements the ports of a placement."""

    def __init__(self, count: int, gangs: Sequence[ReadyGang]) -> None:
        self.count, self.gangs = count, gangs
        self.infeasible: dict[PodShape, Infeasible] = {}
        self.fault: Exception | None = None
        self.placed: list[tuple[list[tuple[PodShape, int]], bool, list[Hostname]]] = []
        self.launched: list[tuple[str, list[Hostname]]] = []
        self.released: list[str] = []

    def ready_gangs(self, job_id: JobId, limit: int) -> Sequence[ReadyGang]:
        return [gang for gang in self.gangs if len(gang.pods) == 1][:limit]

    def ready_gang(self, job_id: JobId) -> ReadyGang | None:
        return next((gang for gang in self.gangs if len(gang.pods) > 1), None)

    def place_pods(self, job_id: JobId, gangs: Sequence[ReadyGang], for_gang: bool) -> PlacementBatch:
        self.placed.append((count_shapes(gangs), for_gang, [pod.hostname for pod in find_desired(gangs)]))
        hosts = tuple(LeasedHost(Hostname(f"h{i}"), Resources(1_000), Resources()) for i in range(self.count))
        return place(job_id, gangs, HostLease("lease1", hosts, infeasible=self.infeasible))

    def launch(self, job_id: JobId, lease_id: str, placements: Sequence[Placement]) -> LaunchResult:
        if self.fault:
            raise self.fault
        self.launched.append((lease_id, sorted(placement.hostname for placement in placements)))
        return LaunchResult(sum(len(placement.pods) for placement in placements))

    def release(self, lease_id: str) -> None:
        self.released.append(lease_id)

    def run(self, limit: int = 10, for_gang: bool = False) -> LaunchedBatch:
        return place_and_launch(self, self, JOB, limit, for_gang)


def single(instance: int, **more: Any) -> ReadyGang:
    return ReadyGang(ONE, ((instance, 1),), **more)


def gang(size: int) -> ReadyGang:
    return ReadyGang(ONE, tuple((i, 1) for i in range(size)))


def test_pods_of_a_limit_are_launched() -> None:
    """The pods of the batch are placed with the host to which one returns, and launched under the lease. The launch
    releases it: there is no further event."""
    hosts = Hosts(3, [single(0), single(1, desired_host="h2", desired_cluster="a", waited_s=60.0), single(2)])

    launch, left = hosts.run(limit=2)

    assert (LaunchResult(2), 0, ()) == (launch, left.unplaced_count, left.placements)
    assert [([(ONE, 2)], False, ["h2"])] == hosts.placed
    assert ([("lease1", ["h0", "h2"])], []) == (hosts.launched, hosts.released)


def test_pods_without_a_host_are_named() -> None:
    """The answer has their instances and the reason; the others are launched."""
    hosts = Hosts(1, [single(0), single(1), single(2)])

    launch, left = hosts.run()

    assert (LaunchResult(1), 2, (Unplaced((1, 2)),)) == (launch, left.unplaced_count, left.unplaced)
    assert left.why[0].pods[0].pod_count == 2


def test_pods_that_return_to_other_clusters_are_left_to_them() -> None:
    """Pods that return to a cluster that is not tried may go to any host."""
    returning = [single(i, desired_host=host, desired_cluster=host[:1]) for i, host in enumerate(("b0", "c0"))]
    hosts = Hosts(3, returning)

    launch, _ = place_and_launch(hosts, hosts, JOB, 10, False, others={"b"})

    assert (LaunchResult(1), [([(ONE, 1)], False, ["c0"])]) == (launch, hosts.placed)


def test_nothing_is_placed_without_ready_pods() -> None:
    """A repeated call finds the pods of the first no longer READY."""
    hosts = Hosts(1, [])

    assert LaunchedBatch(LaunchResult(0), PlacementBatch(JOB, "")) == hosts.run() == hosts.run(0, for_gang=True)
    assert [] == hosts.placed


def test_a_gang_is_launched_whole_or_not_at_all() -> None:
    """The gang is placed alone, and nothing is launched when the hosts are too few."""
    enough, few = Hosts(2, [gang(2), single(5)]), Hosts(1, [gang(2)])

    assert LaunchResult(2) == enough.run(0, for_gang=True).launch
    assert [([(ONE, 2)], True, [])] == enough.placed
    launch, left = few.run(0, for_gang=True)
    assert (LaunchResult(0), 2, [], []) == (launch, left.unplaced_count, few.launched, few.released)


def test_the_lease_ends_when_the_launch_fails() -> None:
    """Hosts are free for others at once, not after the deadline of the lease."""
    hosts = Hosts(1, [single(0)])
    hosts.fault = Unavailable("launch op is locked")

    with pytest.raises(Unavailable, match="locked"):
        hosts.run()

    assert ["lease1"] == hosts.released


def test_the_answer_crosses_the_wire() -> None:
    """Reasons, pods that no host could take and pods with a reserved host arrive as they were."""
    hosts = Hosts(0, [single(0), single(1)])
    hosts.infeasible = {ONE: too_large(8)}
    found = hosts.run()
    assert found.left.unplaced[0].infeasible
    left = PlacementBatch(
        JOB, "", (), 3, (ClusterReason(pods=found.left.why[0].pods),), (Unplaced((4,)), *found.left.unplaced), (7, 8)
    )

    for result in (found, LaunchedBatch(LaunchResult(5, 2, 1), left)):
        assert result == decode_launched_batch(encode_launched_batch(result), JOB)
