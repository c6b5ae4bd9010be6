"""Placement over several clusters: a batch is of one of them, and pods without a host have the reason of each tried
cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.placement import PlacementActivities
from peloton.errors import Unavailable
from peloton.lifecycle.reason_text import placement_text, requeue_text
from peloton.model.host import (
    ClusterChoice,
    Desired,
    HostLease,
    LaunchedBatch,
    LaunchResult,
    LeasedHost,
    Placement,
    PlacementBatch,
    ReadyGang,
)
from peloton.model.ids import Hostname, JobId
from peloton.model.layout import Layout, Spread
from peloton.model.pod import PodShape
from peloton.model.reason import ClusterReason, ClusterRule, Infeasible, PlacementReason, RequeueReason
from peloton.model.reservation import WaitingPod
from peloton.model.resources import Resources
from peloton.scheduling.placement import FirstFitPlacer, place
from tests.reasons import too_large

JOB = JobId("00000000-0000-4000-8000-000000000001")
ONE = PodShape(Resources(1_000))


class Clusters:
    """Clusters of hosts of 1 cpu, so many per cluster, named ``<cluster>0`` and so on. Implements all ports of
    placement.
    """

    def __init__(self, **hosts: int) -> None:
        self.hosts = hosts
        self.choice = ClusterChoice(tuple(hosts))
        self.gangs: list[ReadyGang] = []
        self.away: set[str] = set()
        self.new: set[str] = set()  # clusters whose host managers place and launch in one call
        self.called: list[tuple[str, list[str], int]] = []  # cluster, the other clusters, number of pods
        self.acquired: list[tuple[str, int, list[str]]] = []
        self.released: list[str] = []
        self.unplaced: tuple[int, PlacementReason] = (0, ())
        self.infeasible: dict[str, Infeasible] = {}  # cluster -> why no host of it fits a pod
        self.awaited: tuple[tuple[int, Hostname], ...] = ()
        self.reserved: dict[str, tuple[tuple[int, Hostname], ...]] = {}  # by cluster
        self.waiting: Sequence[WaitingPod] = ()
        self.kept: list[int] = []  # pods that wait on
        self.turns = 0  # how often the pods in backoff fill the pool
        self.requeued: tuple[list[tuple[int, int]], RequeueReason | None] = ([], None)
        self.launched: tuple[str, tuple[Placement, ...]] = ("", ())

    def choose_clusters(self, wanted: Any, preferred: Mapping[str, int]) -> ClusterChoice:
        return self.choice

    def acquire_hosts(
        self,
        job: JobId,
        gangs: Sequence[tuple[PodShape, int]],
        for_gang: bool,
        desired: Sequence[Desired],
        cluster: str,
        waiting: Sequence[WaitingPod],
    ) -> HostLease:
        self.waiting = waiting
        self.acquired.append((cluster, sum(count for _, count in gangs), [pod.hostname for pod in desired]))
        if cluster in self.away:
            raise Unavailable(f"{cluster} is away")
        names = [Hostname(f"{cluster}{i}") for i in range(self.hosts[cluster])]
        hosts = tuple(LeasedHost(name, Resources(1_000), Resources()) for name in names)
        found = {shape: self.infeasible[cluster] for shape, _ in gangs} if cluster in self.infeasible else {}
        return HostLease(
            f"{cluster}/1", hosts, infeasible=found, awaited=self.awaited, reserved=self.reserved.get(cluster, ())
        )

    def release(self, lease_id: str) -> None:
        self.released.append(lease_id)

    def launch(self, job: JobId, lease_id: str, placements: Sequence[Placement]) -> LaunchResult:
        self.launched = lease_id, tuple(placements)
        return LaunchResult(sum(len(placement.pods) for placement in placements))

    def place_and_launch(
        self,
        job: JobId,
        limit: int,
        for_gang: bool = False,
        cluster: str = "",
        *,
        others: Collection[str] = (),
        wanted: Sequence[tuple[PodShape, int]] = (),
    ) -> LaunchedBatch | None:
        """Place pods in the named cluster, unless its host manager is of the last release."""
        if not cluster or cluster not in self.new:
            return None
        self.called.append((cluster, sorted(others), sum(count for _, count in wanted)))
        if cluster in self.away:
            raise Unavailable(f"{cluster} is away")
        mine = [gang for gang in self.gangs if gang.desired_cluster not in others]
        found = self.infeasible.get(cluster)
        names = [Hostname(f"{cluster}{i}") for i in range(self.hosts[cluster])]
        hosts = tuple(LeasedHost(name, Resources(1_000), Resources()) for name in names)
        lease = HostLease("", hosts, infeasible={ONE: found} if found else {}, reserved=self.reserved.get(cluster, ()))
        batch = place(job, mine, lease)
        self.launched = cluster, batch.placements
        return LaunchedBatch(LaunchResult(batch.placed_count), replace(batch, placements=()))

    def ready_gangs(self, job: JobId, limit: int) -> list[ReadyGang]:
        return self.gangs

    def ready_gang(self, job: JobId) -> ReadyGang | None:
        return next(iter(self.gangs), None)

    def requeue_pods(
        self, job: JobId, instances: Sequence[tuple[int, int]], reason: RequeueReason, but: Sequence[int]
    ) -> int:
        self.requeued, self.kept = ([*instances], reason), [*but]
        return sum(count for _, count in instances)

    def note_unplaced(self, job: JobId, count: int, why: PlacementReason) -> int:
        self.unplaced = count, why
        return self.turns


def activities(clusters: Any) -> PlacementActivities:
    return PlacementActivities(clusters, clusters, clusters, FirstFitPlacer())


def place_in(clusters: Clusters) -> PlacementBatch:
    """Return the launched pods, and the count and reasons of the others."""
    activities(clusters).place_and_launch(JOB, 10)
    lease_id, placements = clusters.launched
    unplaced_count, why = clusters.unplaced
    return PlacementBatch(JOB, lease_id, placements, unplaced_count=unplaced_count, why=why)


def single(instance: int, host: str = "") -> ReadyGang:
    return ReadyGang(ONE, ((instance, 1),), desired_host=host, desired_cluster=host[:1])


def gang(size: int) -> ReadyGang:
    return ReadyGang(ONE, tuple((i, 1) for i in range(size)))


def test_the_next_is_tried_when_nothing_fits() -> None:
    """The first cluster's lease is released, and no unplaced pods are reported."""
    clusters = Clusters(a=0, b=2)
    clusters.gangs = [single(0), single(1)]

    batch = place_in(clusters)

    assert ("b/1", ["b0", "b1"]) == (batch.lease_id, [p.hostname for p in batch.placements])
    assert (["a/1"], (0, ())) == (clusters.released, clusters.unplaced)


def test_a_batch_ends_where_something_fits() -> None:
    """Pods that are left over are tried again, and reported with the cluster."""
    clusters = Clusters(a=1, b=2)
    clusters.gangs = [single(0), single(1)]

    batch = place_in(clusters)

    assert (["a0"], 1) == ([p.hostname for p in batch.placements], batch.unplaced_count)
    assert (1, batch.why) == clusters.unplaced
    assert placement_text(batch.why).startswith("cluster a: 1 pod without a host")


def test_a_gang_is_never_split() -> None:
    """A gang is placed in the first cluster that fits all of it; without one, it is not placed even if two clusters
    together would fit it.
    """
    clusters = Clusters(a=2, b=3)
    clusters.gangs = [gang(3)]
    assert ["b0", "b1", "b2"] == [p.hostname for p in activities(clusters).place_gang(JOB).placements]

    clusters.gangs = [gang(4)]
    batch = activities(clusters).place_gang(JOB)

    assert ((), 4, "") == (batch.placements, batch.unplaced_count, batch.lease_id)
    assert "cluster a: gang of 4 without a host (2 hosts: " in placement_text(batch.why)
    assert "; cluster b: gang of 4 without a host (3 hosts: " in placement_text(batch.why)
    assert ["a/1", "a/1", "b/1"] == clusters.released


def test_pods_that_come_back_wait_for_the_turn_of_their_cluster() -> None:
    """Other pods fill the batch; a cluster that is gone has no claim to its pods any more."""
    clusters = Clusters(a=2, b=2)
    clusters.gangs = [single(0, "a1"), single(1, "b0"), single(2), single(3, "c0")]

    batch = place_in(clusters)

    assert [("a", 3, ["a1", "c0"])] == clusters.acquired
    assert {"a1": 0, "a0": 2} == {p.hostname: p.pods[0].instance_id for p in batch.placements}


def test_a_cluster_that_is_away_is_passed_over() -> None:
    """The reason of a cluster that does not respond is reported with others; only when no cluster responds is it an
    error.
    """
    clusters = Clusters(a=2, b=0)
    clusters.gangs, clusters.away = [single(0)], {"a"}
    clusters.choice = ClusterChoice(("a", "b"), (ClusterReason("c", ClusterRule.ELSEWHERE),))

    why = place_in(clusters).why

    reported = "cluster a: a is away; cluster b: 1 pod without a host (no host offered); cluster c: no pod may go there"
    assert f"{reported}: label peloton/cluster=c" == placement_text(why)
    assert (1, why) == clusters.unplaced
    clusters.away = {"a", "b"}
    with pytest.raises(ApplicationError, match="a is away"):
        place_in(clusters)


def test_no_cluster_may_take_them() -> None:
    """No cluster is asked for hosts, and the reason says why."""
    clusters = Clusters(a=2)
    clusters.gangs, clusters.choice = [single(0)], ClusterChoice((), (ClusterReason("a", ClusterRule.ELSEWHERE),))

    batch = place_in(clusters)

    assert ([], 1, clusters.choice.passed_over) == (clusters.acquired, batch.unplaced_count, batch.why)


def test_one_cluster_is_as_ever() -> None:
    """Reasons do not name a single cluster, and its errors are those of the step."""
    clusters = Clusters(a=1)
    clusters.gangs = [single(0), single(1)]

    batch = place_in(clusters)

    assert "1 pod without a host (1 host: less than 1 cpu free, 0 at most)" == placement_text(batch.why)
    clusters.away = {"a"}
    with pytest.raises(ApplicationError, match="a is away"):
        place_in(clusters)


def test_the_chosen_cluster_places_and_launches_by_itself() -> None:
    """No host is leased. A cluster without a host is passed over, pods that return to another cluster are left to it,
    and a host manager of the last release gets a lease.
    """
    clusters = Clusters(a=0, b=2, c=1)
    clusters.gangs, clusters.new = [single(0), single(1, "c0"), single(2, "b1")], {"a", "b"}

    batch = place_in(clusters)

    assert [("a", ["b", "c"], 1), ("b", ["a", "c"], 2)] == clusters.called
    assert ("b", {"b0": 0, "b1": 2}) == (batch.lease_id, {p.hostname: p.pods[0].instance_id for p in batch.placements})
    assert ([], []) == (clusters.acquired, clusters.released)
    clusters.away = {"a", "b"}
    assert ("c/1", ["c0"]) == ((batch := place_in(clusters)).lease_id, [p.hostname for p in batch.placements])


def test_no_cluster_has_a_host_by_one_call() -> None:
    """The reasons name the clusters, and pods that fit in none are queued again."""
    clusters = Clusters(a=0, b=0)
    clusters.gangs, clusters.new = [waiting(0)], {"a", "b"}
    clusters.infeasible = {"a": too_large(7), "b": too_large(8)}
    larger = "the largest of 3 hosts has 4"

    reason = f"cluster a: no host has cpu 7: {larger}; cluster b: no host has cpu 8: {larger}"
    assert ([(0, 1)], reason) == requeues_of(clusters)
    assert [] == clusters.acquired


def test_a_gang_is_launched_by_one_call_in_one_cluster() -> None:
    """The first cluster that fits all of it launches it."""
    clusters = Clusters(a=2, b=3)
    clusters.gangs, clusters.new = [gang(3)], {"a", "b"}

    assert 3 == activities(clusters).place_and_launch_gang(JOB).launched_count
    assert (["a", "b"], "b", []) == ([name for name, *_ in clusters.called], clusters.launched[0], clusters.acquired)


def test_pods_that_spread_are_placed_by_lease() -> None:
    """The bound on skew covers all clusters, whose pods are counted between the lease and the launch."""
    clusters = Clusters(a=2, b=2)
    spread = replace(ONE, layout=Layout((Spread("rack", 1, True),)))
    clusters.gangs, clusters.new = [ReadyGang(spread, ((0, 1),))], {"a", "b"}

    place_in(clusters)

    assert ([], ["a", "b"]) == (clusters.called, [cluster for cluster, *_ in clusters.acquired])


LATE_S = 600.0


def waiting(instance: int, waited_s: float = 0.0) -> ReadyGang:
    return ReadyGang(ONE, ((instance, 1),), waited_s=waited_s)


def requeues_of(clusters: Clusters) -> tuple[list[tuple[int, int]], str]:
    """Return the pods that are queued again after a placement, and the reason."""
    result = activities(clusters).place_and_launch(JOB, 10, LATE_S)
    assert result.requeued_count == sum(count for _, count in clusters.requeued[0])
    instances, reason = clusters.requeued
    return instances, requeue_text(reason) if reason else ""


def test_pods_give_up_sooner_when_much_of_their_pool_is_in_backoff() -> None:
    """The resource manager answers a report of unplaced pods with the number in backoff."""
    clusters = Clusters(a=0)
    clusters.gangs = [waiting(0, LATE_S / 4), waiting(1, LATE_S / 4 - 1)]
    assert ([], "") == requeues_of(clusters)
    clusters.turns = 2

    assert [(0, 1)] == requeues_of(clusters)[0]


def test_pods_that_waited_for_too_long_are_queued_again() -> None:
    """Placed pods, and pods whose timeout is not reached, are not queued again; the job is one call."""
    clusters = Clusters(a=1)
    clusters.gangs = [waiting(0, LATE_S), waiting(1, LATE_S), waiting(2, LATE_S), waiting(3, LATE_S - 1)]

    instances, reason = requeues_of(clusters)

    assert [(1, 2)] == instances
    assert reason.startswith("no host found in 600 s: 3 pods without a host")


def test_pods_that_no_host_could_take_are_queued_again_at_once() -> None:
    """The reason is that of the host manager."""
    clusters = Clusters(a=0)
    clusters.gangs, clusters.infeasible = [waiting(0), waiting(2)], {"a": too_large(7)}

    assert ([(0, 1), (2, 1)], "no host has cpu 7: the largest of 3 hosts has 4") == requeues_of(clusters)


@pytest.mark.parametrize("is_unfit_for_b", [True, False])
def test_no_host_of_any_cluster(is_unfit_for_b: bool) -> None:
    """A pod that a host of another cluster could fit waits."""
    clusters = Clusters(a=0, b=0)
    clusters.gangs = [waiting(0)]
    clusters.infeasible = {"a": too_large(7)} | ({"b": too_large(8)} if is_unfit_for_b else {})
    larger = "the largest of 3 hosts has 4"
    reason = f"cluster a: no host has cpu 7: {larger}; cluster b: no host has cpu 8: {larger}"

    assert (([(0, 1)], reason) if is_unfit_for_b else ([], "")) == requeues_of(clusters)


@pytest.mark.parametrize("is_unavailable", [True, False])
def test_a_cluster_that_does_not_answer_might_have_a_host(is_unavailable: bool) -> None:
    """A cluster that does not respond, before or during the call, leaves the question open."""
    clusters = Clusters(a=0, b=0)
    clusters.gangs, clusters.infeasible = [waiting(0)], {"a": too_large(7)}
    if is_unavailable:
        clusters.away = {"b"}
    else:
        clusters.choice = ClusterChoice(("a",), (ClusterReason("b", ClusterRule.SILENT),))

    assert ([], "") == requeues_of(clusters)


def test_what_one_cluster_left_is_tried_in_the_others_first() -> None:
    """Pods left over from one cluster are tried in the others."""
    clusters = Clusters(a=1, b=1)
    clusters.gangs = [waiting(0, LATE_S), waiting(1, LATE_S)]

    assert ([], "") == requeues_of(clusters)


def test_placement_does_not_wait_for_the_resource_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launched pods count, and pods without a host wait."""

    def is_unavailable(*_: Any) -> int:
        raise Unavailable("resmgr is away")

    clusters = Clusters(a=1)
    clusters.gangs = [waiting(0, LATE_S), waiting(1, LATE_S)]
    monkeypatch.setattr(clusters, "requeue_pods", is_unavailable)
    result = activities(clusters).place_and_launch(JOB, 10, LATE_S)

    assert (1, 0) == (result.launched_count, result.requeued_count)


def test_pods_that_wait_for_their_host_keep_what_they_have() -> None:
    """A pod that comes back is not without a host while resources are held for it."""
    clusters = Clusters(a=0)
    comes_back = ReadyGang(ONE, ((0, 1),), desired_host="a7", desired_cluster="a", waited_s=LATE_S)
    clusters.gangs, clusters.awaited = [comes_back], ((0, Hostname("a7")),)

    assert ([], "") == requeues_of(clusters)


def test_a_pod_for_which_a_host_is_reserved_waits_on() -> None:
    """A host is reserved for the pod in one of the clusters; similar pods that have waited for too long are queued
    again without it.
    """
    clusters = Clusters(a=0, b=0)
    clusters.gangs, clusters.reserved = [waiting(0, LATE_S), waiting(1, LATE_S)], {"b": ((0, Hostname("b7")),)}

    assert ([(1, 1)], [0]) == (requeues_of(clusters)[0], clusters.kept)
    assert [(0, LATE_S), (1, LATE_S)] == [(pod.instance_id, pod.waited_s) for pod in clusters.waiting]


def test_a_gang_that_no_host_could_take() -> None:
    """The placement of the gang has the reason."""
    clusters = Clusters(a=0, b=0)
    clusters.gangs, clusters.infeasible = [gang(3)], {"a": too_large(7), "b": too_large(8)}

    batch = activities(clusters).place_gang(JOB)

    assert [(too_large(7, "a"), too_large(8, "b"))] == [left.infeasible for left in batch.unplaced]
