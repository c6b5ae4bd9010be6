"""Placement over several clusters: a batch is of one of them, and what fits nowhere says where it was looked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.placement import PlacementActivities
from peloton.errors import Unavailable
from peloton.model.host import (
    ClusterChoice,
    Desired,
    HostLease,
    LaunchResult,
    LeasedHost,
    Placement,
    PlacementBatch,
    ReadyGang,
)
from peloton.model.ids import Hostname, JobId
from peloton.model.pod import PodShape
from peloton.model.resources import Resources
from peloton.scheduling.placement import FirstFitPlacer

JOB = JobId("00000000-0000-4000-8000-000000000001")
ONE = PodShape(Resources(1_000))


class Clusters:
    """Hosts of 1 cpu, so many per cluster, named ``<cluster>0`` and so on. Implements all ports of placement."""

    def __init__(self, **hosts: int) -> None:
        self.hosts = hosts
        self.choice = ClusterChoice(tuple(hosts))
        self.gangs: list[ReadyGang] = []
        self.away: set[str] = set()
        self.acquired: list[tuple[str, int, list[str]]] = []
        self.released: list[str] = []
        self.unplaced: tuple[int, str] = (0, "")
        self.launched: tuple[str, tuple[Placement, ...]] = ("", ())

    def choose_clusters(self, wanted: Any, homes: Mapping[str, int]) -> ClusterChoice:
        return self.choice

    def acquire_hosts(
        self,
        job: JobId,
        gangs: Sequence[tuple[PodShape, int]],
        for_gang: bool,
        desired: Sequence[Desired],
        cluster: str,
    ) -> HostLease:
        self.acquired.append((cluster, sum(count for _, count in gangs), [pod.hostname for pod in desired]))
        if cluster in self.away:
            raise Unavailable(f"{cluster} is away")
        names = [Hostname(f"{cluster}{i}") for i in range(self.hosts[cluster])]
        return HostLease(f"{cluster}/1", tuple(LeasedHost(name, Resources(1_000), Resources()) for name in names))

    def release(self, lease_id: str) -> None:
        self.released.append(lease_id)

    def launch(self, job: JobId, lease_id: str, placements: Sequence[Placement]) -> LaunchResult:
        self.launched = lease_id, tuple(placements)
        return LaunchResult(sum(len(placement.pods) for placement in placements))

    def ready_gangs(self, job: JobId, limit: int) -> list[ReadyGang]:
        return self.gangs

    def ready_gang(self, job: JobId) -> ReadyGang | None:
        return next(iter(self.gangs), None)

    def note_unplaced(self, job: JobId, count: int, reason: str) -> None:
        self.unplaced = count, reason


def activities(clusters: Any) -> PlacementActivities:
    return PlacementActivities(clusters, clusters, clusters, FirstFitPlacer())


def placed(clusters: Clusters) -> PlacementBatch:
    """What was launched, and what is told of the rest."""
    activities(clusters).place_and_launch(JOB, 10)
    lease_id, placements = clusters.launched
    unplaced_count, reason = clusters.unplaced
    return PlacementBatch(JOB, lease_id, placements, unplaced_count=unplaced_count, reason=reason)


def single(instance: int, host: str = "") -> ReadyGang:
    return ReadyGang(ONE, ((instance, 1),), desired_host=host, desired_cluster=host[:1])


def gang(size: int) -> ReadyGang:
    return ReadyGang(ONE, tuple((i, 1) for i in range(size)))


def test_the_next_is_tried_when_nothing_fits() -> None:
    """The first one's lease is given back, and nobody is told of unplaced pods."""
    clusters = Clusters(a=0, b=2)
    clusters.gangs = [single(0), single(1)]

    batch = placed(clusters)

    assert ("b/1", ["b0", "b1"]) == (batch.lease_id, [p.hostname for p in batch.placements])
    assert (["a/1"], (0, "")) == (clusters.released, clusters.unplaced)


def test_a_batch_ends_where_something_fits() -> None:
    """What is left over looks again, and is told with the cluster."""
    clusters = Clusters(a=1, b=2)
    clusters.gangs = [single(0), single(1)]

    batch = placed(clusters)

    assert (["a0"], 1) == ([p.hostname for p in batch.placements], batch.unplaced_count)
    assert (1, batch.reason) == clusters.unplaced
    assert batch.reason.startswith("cluster a: 1 pod without a host")


def test_a_gang_is_never_split() -> None:
    """It goes to the first cluster that takes all of it; with none, nothing is placed though together there is room."""
    clusters = Clusters(a=2, b=3)
    clusters.gangs = [gang(3)]
    assert ["b0", "b1", "b2"] == [p.hostname for p in activities(clusters).place_gang(JOB).placements]

    clusters.gangs = [gang(4)]
    batch = activities(clusters).place_gang(JOB)

    assert ((), 4, "") == (batch.placements, batch.unplaced_count, batch.lease_id)
    assert "cluster a: gang of 4 without a host (2 hosts: " in batch.reason
    assert "; cluster b: gang of 4 without a host (3 hosts: " in batch.reason
    assert ["a/1", "a/1", "b/1"] == clusters.released


def test_pods_that_come_back_wait_for_the_turn_of_their_cluster() -> None:
    """Others fill the batch; a cluster that is not there has no claim to them any more."""
    clusters = Clusters(a=2, b=2)
    clusters.gangs = [single(0, "a1"), single(1, "b0"), single(2), single(3, "c0")]

    batch = placed(clusters)

    assert [("a", 3, ["a1", "c0"])] == clusters.acquired
    assert {"a1": 0, "a0": 2} == {p.hostname: p.pods[0].instance_id for p in batch.placements}


def test_a_cluster_that_is_away_is_passed_over() -> None:
    """Its reason is told with those of others; only when no cluster answers is it an error."""
    clusters = Clusters(a=2, b=0)
    clusters.gangs, clusters.away = [single(0)], {"a"}
    clusters.choice = ClusterChoice(("a", "b"), (("c", "not for you"),))

    reason = placed(clusters).reason

    assert "cluster a: a is away; cluster b: 1 pod without a host (no host offered); cluster c: not for you" == reason
    assert (1, reason) == clusters.unplaced
    clusters.away = {"a", "b"}
    with pytest.raises(ApplicationError, match="a is away"):
        placed(clusters)


def test_no_cluster_may_take_them() -> None:
    """Nobody is asked, and the reason says why."""
    clusters = Clusters(a=2)
    clusters.gangs, clusters.choice = [single(0)], ClusterChoice((), (("a", "not for you"),))

    batch = placed(clusters)

    assert ([], 1, "cluster a: not for you") == (clusters.acquired, batch.unplaced_count, batch.reason)


def test_one_cluster_is_as_ever() -> None:
    """Reasons do not name it, and its errors are those of the step."""
    clusters = Clusters(a=1)
    clusters.gangs = [single(0), single(1)]

    batch = placed(clusters)

    assert "1 pod without a host (1 host: cpu 1.0 wanted, at most 0.0 free)" == batch.reason
    clusters.away = {"a"}
    with pytest.raises(ApplicationError, match="a is away"):
        placed(clusters)
