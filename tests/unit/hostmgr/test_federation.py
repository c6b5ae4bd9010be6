"""The host managers of several clusters, seen as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import pytest

from peloton.errors import Unavailable, Unimplemented
from peloton.model.daemon import DaemonPlan, DaemonReach
from peloton.model.host import (
    CLUSTER_KIND_LABEL,
    Capacity,
    ClusterChoice,
    HostLease,
    HostPoolCapacity,
    LaunchedBatch,
    LaunchResult,
    LeasedHost,
    PlacedPod,
    Placement,
    PlacementBatch,
    Prefetched,
)
from peloton.model.host_pool import Workload
from peloton.model.ids import Hostname, JobId
from peloton.model.layout import DomainCount, Layout, Spread
from peloton.model.misfit import HostRule, Refused
from peloton.model.planned_capacity import FoundCapacity, PlannedPods
from peloton.model.pod import AnyOf, HostLabel, PodShape
from peloton.model.reason import ClusterReason, ClusterRule, Infeasible, RefusingHosts
from peloton.model.resources import Resources
from peloton.scheduling.clusters import CAPACITY_KEPT_S
from services.hostmgr.client import HostManagerClient
from services.hostmgr.federation import FREE_AGE_MAX_S, HELD_AGE_MAX_S, HostManagers

JOB = JobId("00000000-0000-4000-8000-000000000001")
ONE = PodShape(Resources(1_000, 10))
LEASED = Refused(HostRule.LEASED)


class HostManager:
    """The host manager of one cluster, which counts its calls."""

    def __init__(self, cpu: int) -> None:
        self.cpu, self.is_unavailable = cpu, False
        self.places = True  # in one call
        self.cpus_come = 0  # with each count
        self.kind = "mesos"
        self.asked: Counter[str] = Counter()
        self.images: Mapping[str, Sequence[str]] = {}
        self.lease_ids: list[str] = []
        self.elsewhere: Mapping[PodShape, Sequence[DomainCount]] = {}
        self.host_pools: list[HostPoolCapacity] = []

    def _note(self, what: str) -> None:
        self.asked[what] += 1
        if self.is_unavailable:
            raise Unavailable("away")

    def free(self) -> tuple[Resources, str]:
        self._note("free")
        return Resources(self.cpu * 1_000, 1_000), self.kind

    def capacity(self) -> Capacity:
        self._note("capacity")
        up, revocable, registered = Resources(self.cpu * 1_000), Resources(self.cpu), Resources(self.cpu * 2_000)
        return Capacity(up, revocable, registered, tuple(self.host_pools))

    def evaluate(self, shapes: Sequence[PodShape]) -> dict[PodShape, Infeasible]:
        self._note("judge")
        return {
            shape: Infeasible(host_count=self.cpu) for shape in shapes if shape.resources.cpu_milli > self.cpu * 1_000
        }

    def find_capacity(self, pods: Sequence[PlannedPods]) -> list[FoundCapacity]:
        """Place one pod per cpu, and a gang whole."""
        self._note("room")
        left, found = self.cpu, []
        for each in pods:
            count = 0 if each.is_gang and each.count > left else min(each.count, left)
            left -= count
            found.append(FoundCapacity(count, () if count == each.count else (RefusingHosts.of(self.cpu, LEASED),)))
        return found

    def plan_daemon(self, shape: PodShape) -> DaemonPlan:
        self._note("plan")
        return DaemonPlan(DaemonReach(self.cpu))

    def reach(self, shape: PodShape) -> DaemonReach:
        self._note("reach")
        return DaemonReach(self.cpu)

    def acquire_hosts(self, *given: Any) -> HostLease:
        self._note("acquire")
        self.elsewhere = given[-2]
        return HostLease("lease1", (LeasedHost(Hostname("h"), Resources(), Resources()),))

    def count_domains(self, job_id: JobId, shapes: Sequence[PodShape], *_: Any) -> dict[PodShape, list[DomainCount]]:
        self._note("count")
        self.cpu += self.cpus_come
        return {shape: [DomainCount({"x": self.cpu}, frozenset("x"))] for shape in shapes}

    def launch(self, job_id: JobId, lease_id: str, placements: Any) -> LaunchResult:
        self._note("launch")
        self.lease_ids.append(lease_id)
        return LaunchResult(1)

    def place_and_launch(self, job_id: JobId, limit: int, for_gang: bool, others: Sequence[str]) -> LaunchedBatch:
        self._note("place")
        self.others = others
        if not self.places:
            raise Unimplemented("unknown method PlaceAndLaunch")
        return LaunchedBatch(LaunchResult(limit), PlacementBatch(job_id, ""))

    def release(self, lease_id: str) -> None:
        self._note("release")
        self.lease_ids.append(lease_id)

    def kill_running(self, job_id: JobId) -> int:
        self._note("kill")
        return self.cpu

    def prefetch(self, images: Mapping[str, Sequence[Hostname]]) -> Prefetched:
        self._note("prefetch")
        self.images = images
        return Prefetched(sum(map(len, images.values())))


class World:
    """A federation of scripted host managers; it implements ``ports.ClusterOfHosts`` and
    ``ports.HeldResources`` too.
    """

    def __init__(self, **cpus: int) -> None:
        self.managers = {name: HostManager(cpu) for name, cpu in cpus.items()}
        self.addresses = dict.fromkeys(cpus, "host:1")
        self.now_s = 1_000.0
        self.looks = 0
        self.all = HostManagers(
            lambda: self.addresses,
            lambda name: cast(HostManagerClient, self.managers[name]),
            self,
            self,
            lambda: self.now_s,
        )

    def sum_held(self, cluster: str) -> tuple[Resources, Resources]:
        self.looks += 1
        return Resources(2_000), Resources(1)

    def clusters_of(self, hostnames: Collection[str]) -> dict[str, str]:
        return {name: name[0] for name in hostnames if name[0] in self.managers}

    def silence(self, name: str) -> None:
        self.addresses[name], self.managers[name].is_unavailable = "", True

    def asked(self) -> dict[str, dict[str, int]]:
        return {name: dict(manager.asked) for name, manager in self.managers.items() if manager.asked}


def test_one_cluster_costs_no_more_calls() -> None:
    """A placement and its launch are one call each, a kill and a prefetch too."""
    world = World(a=4)

    choice = world.all.choose_clusters([(ONE, 1)], {})
    lease = world.all.acquire_hosts(JOB, [(ONE, 1)], cluster=choice.order[0])
    world.all.launch(JOB, lease.lease_id, [])
    world.all.kill_running(JOB)
    world.all.prefetch({"image": [Hostname("elsewhere")]})

    assert {"a": dict.fromkeys(("acquire", "launch", "kill", "prefetch"), 1)} == world.asked()
    assert ["lease1"] == world.managers["a"].lease_ids


def test_pods_bound_to_a_kind_of_cluster_are_tried_in_no_other() -> None:
    """The kind of a cluster is in its answer about free resources, so a cluster of another kind is
    not even tried first.
    """
    world = World(a=9, b=1)
    world.managers["b"].kind = "kubernetes"
    bound = PodShape(ONE.resources, constraint=HostLabel(CLUSTER_KIND_LABEL, "kubernetes", "=", 1))

    assert ClusterChoice(
        ("b",), (ClusterReason("a", ClusterRule.ELSEWHERE, detail="mesos"),)
    ) == world.all.choose_clusters([(bound, 1)], {})


def test_leases_know_their_cluster() -> None:
    """Launches and returns are sent to the cluster of the lease; a lease without a cluster belongs to the first."""
    world = World(a=4, b=4)
    lease = world.all.acquire_hosts(JOB, [(ONE, 1)], cluster="b")

    world.all.launch(JOB, lease.lease_id, [])
    world.all.release(lease.lease_id)
    world.all.release("old")

    assert {"a": {"release": 1}, "b": {"acquire": 1, "launch": 1, "release": 1}} == world.asked()
    assert (["old"], ["lease1", "lease1"]) == (world.managers["a"].lease_ids, world.managers["b"].lease_ids)


def spread(is_hard: bool = True, **more: Any) -> PodShape:
    return PodShape(ONE.resources, layout=Layout((Spread("rack", is_hard=is_hard),)), **more)


def test_pods_that_spread_are_counted_in_the_other_clusters() -> None:
    """Pods that spread, and no others, are counted in each other cluster where they may run."""
    world = World(a=4, b=3, c=2)
    here = spread(constraint=AnyOf(tuple(HostLabel("peloton/cluster", each) for each in "ab")))

    world.all.acquire_hosts(JOB, [(spread(), 1), (here, 1), (ONE, 1)], cluster="a")

    both = DomainCount({"x": 5}, frozenset("x")), DomainCount({"x": 3}, frozenset("x"))
    assert {spread(): [both[0]], here: [both[1]]} == world.managers["a"].elsewhere
    assert {"a": {"acquire": 1}, "b": {"count": 2}, "c": {"count": 2}} == world.asked()
    world.all.acquire_hosts(JOB, [(spread(is_hard=False), 1)], cluster="a")
    assert ({"count": 3}, {"count": 3}) == (world.asked()["b"], world.asked()["c"])


def test_a_lease_under_a_hard_bound_stands_if_nothing_was_placed_elsewhere_meanwhile() -> None:
    """The lease is released otherwise, as its counts are outdated."""
    world = World(a=4, b=3)
    world.managers["b"].cpus_come = 1

    with pytest.raises(Unavailable, match=f"other pods of job {JOB} were placed meanwhile"):
        world.all.acquire_hosts(JOB, [(spread(), 1)], cluster="a")

    assert {"a": {"acquire": 1, "release": 1}, "b": {"count": 2}} == world.asked()
    world.all.acquire_hosts(JOB, [(spread(is_hard=False), 1)], cluster="a")
    assert ["lease1"] == world.managers["a"].lease_ids


def test_a_hard_bound_waits_for_a_cluster_that_is_silent() -> None:
    """The pods might exceed a hard bound; for a soft one the answer is not required."""
    world = World(a=4, b=3)
    world.silence("b")

    with pytest.raises(Unavailable, match="how pods spread in cluster b is not known: away"):
        world.all.acquire_hosts(JOB, [(spread(), 1)], cluster="a")
    world.all.acquire_hosts(JOB, [(spread(is_hard=False), 1)], cluster="a")

    assert 1 == world.managers["a"].asked["acquire"]


def test_what_is_free_is_asked_once_in_a_while() -> None:
    """Leased resources are subtracted between two reads, so that batches are distributed over the clusters."""
    world = World(a=4, b=3)
    chosen = []
    for _ in range(4):
        chosen.append(world.all.choose_clusters([(ONE, 2)], {}).order[0])
        world.all.acquire_hosts(JOB, [(ONE, 2)], cluster=chosen[-1])

    assert (["a", "b", "a", "b"], 1) == (chosen, world.managers["a"].asked["free"])
    world.now_s += FREE_AGE_MAX_S
    assert ("a", 2) == (world.all.choose_clusters([(ONE, 2)], {}).order[0], world.managers["a"].asked["free"])


def test_a_silent_cluster_is_passed_over() -> None:
    """Others are tried; the call is Unavailable when none is left."""
    world = World(a=4, b=3)
    world.silence("a")

    choice = world.all.choose_clusters([(ONE, 2)], {})

    assert (("b",), (ClusterReason("a", ClusterRule.SILENT),)) == (choice.order, choice.passed_over)
    world.silence("b")
    with pytest.raises(Unavailable, match="no hostmgr leads"):
        world.all.choose_clusters([(ONE, 2)], {})


def test_a_launch_in_a_cluster_without_a_leader_is_refused() -> None:
    """The pods of the launch may run elsewhere; the call is retried while no cluster has a leader, or the leader should
    answer.
    """
    world = World(a=4, b=3)
    world.silence("b")
    placed = [Placement(Hostname("b1"), (PlacedPod(0, 1), PlacedPod(1, 1)))]

    assert LaunchResult(0, refused_count=2) == world.all.launch(JOB, "b/lease1", placed)

    world.addresses["b"] = "host:1"
    with pytest.raises(Unavailable):
        world.all.launch(JOB, "b/lease1", placed)
    world.silence("a")
    world.silence("b")
    with pytest.raises(Unavailable):
        world.all.launch(JOB, "b/lease1", placed)


def test_the_only_cluster_places_and_launches_in_one_call() -> None:
    """The activity names one of several clusters; a host manager of the last release needs leases."""
    alone, two = World(a=4), World(a=4, b=3)

    assert LaunchedBatch(LaunchResult(7), PlacementBatch(JOB, "")) == alone.all.place_and_launch(JOB, 7)
    assert two.all.place_and_launch(JOB, 7) is None
    assert {} == two.asked()
    assert two.all.place_and_launch(JOB, 7, False, "b", others={"a"}) == alone.all.place_and_launch(JOB, 7)
    assert ({"b": {"place": 1}}, ["a"]) == (two.asked(), two.managers["b"].others)
    alone.managers["a"].places = False
    assert alone.all.place_and_launch(JOB, 7) is None
    alone.silence("a")
    with pytest.raises(Unavailable, match="no hostmgr leads"):
        alone.all.place_and_launch(JOB, 7)


def test_kills_go_to_all_that_answer() -> None:
    """A kill of an unavailable cluster is retried later; it is an error if no cluster answers."""
    world = World(a=4, b=3)
    assert 7 == world.all.kill_running(JOB)

    world.managers["a"].is_unavailable = True
    assert 3 == world.all.kill_running(JOB)

    world.managers["b"].is_unavailable = True
    with pytest.raises(Unavailable):
        world.all.kill_running(JOB)


def test_images_go_to_the_clusters_of_their_hosts() -> None:
    """Clusters without any of the hosts are not called; unknown hosts are left out."""
    world = World(a=1, b=1, c=1)

    done = world.all.prefetch({"x": [Hostname("a1"), Hostname("b1")], "y": [Hostname("a2"), Hostname("?")]})

    assert Prefetched(3) == done
    assert {"x": ["a1"], "y": ["a2"]} == world.managers["a"].images
    assert {"x": ["b1"]} == world.managers["b"].images
    assert {"a", "b"} == world.asked().keys()


def test_capacity_is_that_of_all_clusters() -> None:
    """An unavailable cluster counts with its last capacity, later with the allocation of its pods, until it answers
    again; its hosts count as registered all the time.
    """
    world = World(a=4, b=3)
    assert (Resources(7_000), Resources(7), Resources(14_000)) == world.all.capacity()[:3]

    world.silence("b")
    world.now_s += CAPACITY_KEPT_S
    assert (Resources(7_000), Resources(7), Resources(14_000)) == world.all.capacity()[:3]
    for _ in range(3):
        world.now_s += HELD_AGE_MAX_S * 0.6
        assert (Resources(6_000), Resources(5), Resources(14_000)) == world.all.capacity()[:3]
    assert 2 == world.looks

    world.addresses["b"], world.managers["b"].is_unavailable = "host:2", False
    assert (Resources(7_000), Resources(7), Resources(14_000)) == world.all.capacity()[:3]
    world.silence("a")
    world.silence("b")
    with pytest.raises(Unavailable):
        world.all.capacity()


def test_host_pools_span_clusters() -> None:
    """Host pools are added up by name, but not while hosts of a cluster are in no host pool: such
    hosts take any pod.
    """
    world, serves = World(a=4, b=3), frozenset({Workload.BATCH})
    world.managers["a"].host_pools = [HostPoolCapacity("batch", serves, Resources(4_000), 4)]
    assert () == world.all.capacity().host_pools

    world.managers["b"].host_pools = [
        HostPoolCapacity("batch", serves, Resources(1_000), 1),
        HostPoolCapacity("default", frozenset(), Resources(2_000), 2),
    ]
    assert {("batch", 5_000, 5), ("default", 2_000, 2)} == {
        (pool.name, pool.up.cpu_milli, pool.slack_cpu_milli) for pool in world.all.capacity().host_pools
    }


def test_a_cluster_that_never_answered_counts_with_what_is_held() -> None:
    """The cluster counts with the allocation of its pods, for example after a restart of the resource manager."""
    world = World(a=4, b=3)
    world.silence("b")

    assert (Resources(6_000), Resources(5), Resources(10_000)) == world.all.capacity()[:3]


def test_pods_that_no_host_of_any_cluster_could_take() -> None:
    """Each cluster gives its reason, without a name if it is the only one. No answer is given while one cluster does
    not answer, as its hosts might fit.
    """
    world, large = World(a=1, b=2), PodShape(Resources(2_000))
    huge = PodShape(Resources(3_000))

    assert {huge: (Infeasible("a", 1), Infeasible("b", 2))} == world.all.evaluate([ONE, large, huge])
    assert {large: (Infeasible("", 1),)} == World(a=1).all.evaluate([ONE, large])
    world.managers["b"].is_unavailable = True
    with pytest.raises(Unavailable):
        world.all.evaluate([huge])


def test_hosts_of_a_daemon_are_counted_by_cluster() -> None:
    """The answer counts all clusters or none; a single cluster has no name."""
    world = World(a=1, b=2)

    assert [DaemonReach(1, cluster="a"), DaemonReach(2, cluster="b")] == world.all.reach(ONE)
    assert [DaemonReach(1)] == World(a=1).all.reach(ONE)
    world.managers["b"].is_unavailable = True
    with pytest.raises(Unavailable):
        world.all.reach(ONE)
