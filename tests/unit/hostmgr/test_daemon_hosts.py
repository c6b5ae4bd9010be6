"""Resources that hosts reserve for daemons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from peloton.model.daemon import Daemon, DaemonReach, WaitingDaemonPod
from peloton.model.host import HostState, PlacedPod, Placement
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.maintenance import HostMaintenance
from peloton.model.misfit import HostRule, LackingAmount, UnmetConstraint
from peloton.model.pod import HostLabel, PodShape
from peloton.model.reason import RefusingHosts
from peloton.model.resources import Resources
from services.hostmgr.driver import RegisteredHost
from services.hostmgr.hosts.host_cache import HostCache
from tests.unit.hostmgr.test_hosts import LEASE_S, free_part, shape

LOGS, PROXY, JOB = (JobId(f"00000000-0000-4000-8000-00000000000{number}") for number in (1, 2, 3))
ON_RACK_B = HostLabel("rack", "b")
WHOLE = Resources.of(4, 2048, 20_000)


def a_host(name: str, rack: str = "a", capacity: Resources = WHOLE) -> RegisteredHost:
    return RegisteredHost(f"{name}-S", Hostname(name), "", capacity, Resources(), {"hostname": name, "rack": rack})


def a_cache(*daemons: Daemon, **racks: str) -> HostCache:
    """Return a book of hosts with 4 cpus."""
    cache = HostCache(LEASE_S)
    cache.daemons.want(daemons)
    cache.set_hosts([a_host(name, rack) for name, rack in racks.items()])
    cache.add_resources([free_part(name, rack=rack) for name, rack in racks.items()])
    return cache


def a_daemon(job: JobId = LOGS, cpu: float = 1.0, **more: Any) -> Daemon:
    return Daemon(job, shape(cpu, **more))


def free(cache: HostCache) -> dict[str, float]:
    return {host.hostname: host.free.cpu_milli / 1000 for host in cache.hosts()}


def takes(cache: HostCache, cpu: float) -> bool:
    """Return whether a pod of this size finds a host."""
    lease = cache.acquire(JOB, [(PodShape(Resources.of(cpu, 32)), 1)], 0.0)
    cache.release(lease.lease_id)
    return bool(lease.hosts)


def waiting(instance: int, host: str, cpu: float = 1.0) -> WaitingDaemonPod:
    return WaitingDaemonPod(instance, 1, Hostname(host), shape(cpu))


def refusals(cache: HostCache, job: JobId, *pods: WaitingDaemonPod) -> dict[str, HostRule]:
    lease, placed = cache.place_daemon(job, pods, 0.0)
    cache.release(lease.lease_id)
    return {name: misfit.rule for name, misfit in placed.refused.items()}


def test_resources_of_daemons_are_announced_to_no_other_job() -> None:
    """Resources of daemons are reserved on matching hosts as soon as the hosts are known."""
    cache = a_cache(a_daemon(), a_daemon(PROXY, 0.5, constraint=ON_RACK_B), x="a", y="b")
    assert {"x": 3.0, "y": 2.5} == free(cache)
    assert (True, False) == (takes(cache, 3.0), takes(cache, 3.5))


def test_offers_that_come_before_its_host_are_kept_as_well() -> None:
    """A host that joins while a daemon waits offers none of the daemon's resources."""
    cache = HostCache(LEASE_S)
    cache.daemons.want([a_daemon()])
    cache.add_resources([free_part("x")])
    assert {"x"} == set(cache.acquire(JOB, [(shape(3.0), 1)], 0.0).hosts[0].hostname)
    assert not takes(cache, 3.5)


def test_a_daemon_that_is_wanted_later_takes_the_capacity_that_is_free() -> None:
    """A later daemon reserves free resources, and frees them when it is removed."""
    cache = a_cache(x="a")
    cache.daemons.want([a_daemon()])
    assert {"x": 3.0} == free(cache)
    cache.daemons.want([])
    assert {"x": 4.0} == free(cache)


def test_a_pod_that_runs_needs_nothing_kept_until_it_ends() -> None:
    """Resources are reserved again, before other jobs see them, when the pod has ended."""
    cache = a_cache(a_daemon(), x="a")
    cache.pods_launched(LOGS, [(0, 1, "x", ())])
    assert {"x": 4.0} == free(cache)
    cache.pods_ended([PodId(LOGS, 0, 2)])
    assert {"x": 4.0} == free(cache)  # the ended pod was of another run
    cache.pods_ended([PodId(LOGS, 0, 1)])
    assert {"x": 3.0} == free(cache)


def test_pods_of_other_jobs_do_not_stand_for_a_daemon() -> None:
    """Pods of other jobs and of other daemons do not satisfy a daemon."""
    cache = a_cache(a_daemon(), a_daemon(PROXY), x="a")
    cache.pods_launched(JOB, [(0, 1, "x", ())])
    cache.pods_launched(PROXY, [(0, 1, "x", ())])
    assert {"x": 3.0} == free(cache)


def test_a_daemon_sees_what_is_kept_but_for_those_before_it() -> None:
    """Two daemons fill a host with resources for both; with resources for one the first daemon takes it."""
    cache = a_cache(a_daemon(LOGS, 3.0), a_daemon(PROXY, 1.0), x="a")
    assert {"x": 0.0} == free(cache)
    assert {} == refusals(cache, LOGS, waiting(0, "x", 4.0))
    assert {} == refusals(cache, PROXY, waiting(0, "x", 1.0))
    assert {"x": HostRule.FREE_RESOURCES} == refusals(cache, PROXY, waiting(0, "x", 1.5))


def test_each_pod_that_finds_no_free_resources_says_why() -> None:
    """The reason is the first rule that keeps the pod off its host."""
    cache = a_cache(a_daemon(), x="a", y="a")
    cache.set_maintained([HostMaintenance("", Hostname("y"), HostState.DRAINING, HostState.DOWN)])
    lease = cache.acquire(JOB, [(shape(), 1)], 0.0)
    assert ["x"] == [host.hostname for host in lease.hosts]
    pods = [waiting(0, "x"), waiting(1, "y"), waiting(2, "z")]
    rules = {"x": HostRule.LEASED, "y": HostRule.MAINTENANCE, "z": HostRule.FREE_RESOURCES}
    assert rules == refusals(cache, LOGS, *pods)


def test_hosts_of_placed_daemons_are_leased_until_the_launch() -> None:
    """Each pod is placed on its own host, with ports that no other pod there uses. The hosts are kept from other jobs
    until the lease is released, and another placement of the daemon ends it."""
    cache = a_cache(a_daemon(), x="a", y="a")
    cache.pods_launched(JOB, [(0, 1, "x", (("peloton/port", "31000"),))])
    pods = [replace(waiting(0, "x"), shape=shape(port_count=2)), waiting(1, "y"), waiting(2, "z")]

    lost, _ = cache.place_daemon(LOGS, pods, 0.0)
    lease, placed = cache.place_daemon(LOGS, pods, 0.0)

    own = [Placement(Hostname("x"), (PlacedPod(0, 1, (31001, 31002)),)), Placement(Hostname("y"), (PlacedPod(1, 1),))]
    assert (own, ["z"]) == ([*placed.placements], [*placed.refused])
    assert not takes(cache, 1.0)
    assert {} == cache.claim(lost.lease_id, [Hostname("x")])
    cache.release(lease.lease_id)
    assert (True, {"x": 3.0, "y": 3.0}) == (takes(cache, 1.0), free(cache))


def test_daemons_count_as_overhead_of_the_hosts_that_are_there() -> None:
    """Daemons count as overhead, running or not; missing hosts count neither way."""
    cache = a_cache(a_daemon(), a_daemon(PROXY, 0.5, constraint=ON_RACK_B), x="a", y="b", z="b")
    assert 12_000 - 3_000 - 1_000 == cache.capacity()[0].cpu_milli
    cache.pods_launched(LOGS, [(0, 1, "x", ())])
    assert 8_000 == cache.capacity()[0].cpu_milli
    cache.set_maintained([HostMaintenance("", Hostname("z"), HostState.DOWN, HostState.DOWN)])
    assert 8_000 - 2_500 == cache.capacity()[0].cpu_milli


def test_a_pod_that_would_fit_only_without_the_daemon_fits_nowhere() -> None:
    """The pod is reported as unfit at once, and no longer when the daemon is removed."""
    cache = a_cache(a_daemon(), x="a")
    whole = shape(4.0)
    assert {whole} == cache.evaluate([whole]).keys()
    cache.daemons.want([])
    assert {} == cache.evaluate([whole])


def test_a_daemon_is_on_hosts_that_could_take_it_when_empty() -> None:
    """A daemon runs on the hosts that match by labels, by name and by size."""
    named = HostLabel("hostname", "y")
    cache = a_cache(a_daemon(), a_daemon(PROXY, constraint=named), a_daemon(JOB, 5.0), x="a", y="b")
    found = [sorted(cache.daemons.hosts_of(job)) for job in (LOGS, PROXY, JOB)]
    assert [["x", "y"], ["y"], []] == found
    assert ({"x": 3.0, "y": 2.0}, 8_000 - 3_000) == (free(cache), cache.capacity()[0].cpu_milli)


def test_hosts_that_do_not_match_are_counted_by_rule() -> None:
    """Running pods do not matter, nor does it matter whether the daemon is stored yet."""
    cache = a_cache(a_daemon(JOB, 4.0), v="a", w="b", x="a", y="b", z="b")
    cache.set_hosts([*(a_host(name) for name in "vwx"), a_host("y", "b"), a_host("z", "b", Resources.of(1, 2048, 0))])
    on_b, named = shape(2.0, constraint=ON_RACK_B), shape(1.0, constraint=HostLabel("hostname", "y"))
    other_rack = RefusingHosts.of(3, UnmetConstraint("label rack=b"))
    small = RefusingHosts.of(1, LackingAmount(HostRule.SIZE, "cpu", 2_000, 1_000))
    assert DaemonReach(1, (other_rack, small)) == cache.finder.reach_daemon(on_b)
    not_y = RefusingHosts.of(4, UnmetConstraint("label hostname=y"))
    assert DaemonReach(1, (not_y,)) == cache.finder.reach_daemon(named)
    assert DaemonReach(5) == cache.finder.reach_daemon(shape(1.0))


def test_where_a_daemon_is_to_run_follows_the_hosts() -> None:
    """Hosts that are added, removed, relabelled or resized are matched again, and resources are reserved there."""
    cache = a_cache(a_daemon(), a_daemon(PROXY, constraint=ON_RACK_B), v="a", w="b", x="b", y="a")
    for job in (LOGS, PROXY):
        cache.daemons.hosts_of(job)
    small = a_host("y", "b", Resources.of(0.5, 2048, 20_000))
    cache.set_hosts([a_host("w", "a"), a_host("x", "b"), small, a_host("z", "b")])
    cache.add_resources([free_part("z", rack="b")])
    found = [sorted(cache.daemons.hosts_of(job)) for job in (LOGS, PROXY)]
    assert [["w", "x", "z"], ["x", "z"]] == found
    kept = {name: amount for name, amount in free(cache).items() if name in "wxz"}
    assert {"w": 3.0, "x": 2.0, "z": 2.0} == kept


def news(cache: HostCache) -> list[set[JobId]]:
    """Return the news of two reads."""
    return [cache.daemons.take_news(), cache.daemons.take_news()]


def test_daemons_that_come_change_or_end_are_news_once() -> None:
    """Daemons that are added, changed or removed are reported as news once, and no others."""
    cache = a_cache(a_daemon(), a_daemon(PROXY), x="a")
    assert [{LOGS, PROXY}, set()] == news(cache)
    for wanted in ([a_daemon(), a_daemon(PROXY, 0.5)], [a_daemon()]):
        cache.daemons.want(wanted)
        assert [{PROXY}, set()] == news(cache)


def test_hosts_that_come_or_go_are_news_for_daemons_that_match() -> None:
    """The news is reported once, and not to a daemon that has just read the hosts."""
    cache = a_cache(a_daemon(), a_daemon(PROXY, constraint=ON_RACK_B), x="a", y="b")
    for job in (LOGS, PROXY):
        cache.daemons.hosts_of(job)
    assert [set(), set()] == news(cache)
    for hosts, reported in (("xyz", {LOGS}), ("xyz", set()), ("xz", {LOGS, PROXY})):
        cache.set_hosts([a_host(name, "b" if name == "y" else "a") for name in hosts])
        assert [reported, set()] == news(cache)
    cache.set_hosts([a_host("x")])
    cache.daemons.hosts_of(LOGS)
    assert [set(), set()] == news(cache)


def test_offers_are_news_for_the_pod_that_it_fits() -> None:
    """Fitting resources are news once; fewer resources, and resources on other hosts, are not."""
    cache = HostCache(LEASE_S)
    cache.daemons.want([a_daemon(cpu=3.0)])
    cache.set_hosts([a_host("x"), a_host("y")])
    cache.daemons.hosts_of(LOGS)
    assert {"x": HostRule.FREE_RESOURCES} == refusals(cache, LOGS, waiting(0, "x", 3.0))
    for number, (host, cpu, reported) in enumerate([("x", 1.0, set()), ("y", 4.0, set()), ("x", 2.0, {LOGS})]):
        cache.add_resources([free_part(host, cpu, number=number)])
        assert [reported, set()] == news(cache)


def test_a_lease_that_ends_is_news_for_the_pod_that_waits() -> None:
    """The end of the lease is news if the pod was rejected for the lease alone."""
    cache = a_cache(a_daemon(), x="a")
    lease = cache.acquire(JOB, [(shape(), 1)], 0.0)
    assert {"x": HostRule.LEASED} == refusals(cache, LOGS, waiting(0, "x"))
    news(cache)
    cache.release(lease.lease_id)
    assert [{LOGS}, set()] == news(cache)


def test_the_end_of_maintenance_is_news_for_the_pod_that_waits() -> None:
    """The end of maintenance is news, but not for a pod that was removed with its daemon."""
    cache = a_cache(a_daemon(), a_daemon(PROXY), x="a")
    cache.set_maintained([HostMaintenance("", Hostname("x"), HostState.DRAINING, HostState.DOWN)])
    for job in (LOGS, PROXY):
        assert {"x": HostRule.MAINTENANCE} == refusals(cache, job, waiting(0, "x"))
    cache.daemons.want([a_daemon()])
    news(cache)
    cache.set_maintained([])
    assert [{LOGS}, set()] == news(cache)


def test_a_pod_of_a_host_that_is_gone_waits_no_more() -> None:
    """Resources that are offered before their host registers again are no news."""
    cache = a_cache(a_daemon(), x="a")
    cache.remove_resources(["x-O1"])
    assert {"x": HostRule.FREE_RESOURCES} == refusals(cache, LOGS, waiting(0, "x"))
    cache.set_hosts([])
    news(cache)
    cache.add_resources([free_part("x")])
    assert [set(), set()] == news(cache)


def test_pods_of_a_daemon_that_has_ended_are_overhead_until_they_end() -> None:
    """Resources of a removed daemon can be allocated when its pods have ended, and not before."""
    cache = a_cache(a_daemon(cpu=3.0), a_daemon(PROXY), x="a", y="a")
    cache.pods_launched(LOGS, [(0, 1, "x", ()), (1, 1, "y", ())])
    cache.daemons.want([a_daemon(PROXY)])
    left = []
    for ended in ([], [PodId(LOGS, 0, 1)], [PodId(LOGS, 1, 1)]):
        cache.pods_ended(ended)
        left.append(cache.capacity()[0].cpu_milli)
    assert [8_000 - 2_000 - held for held in (6_000, 3_000, 0)] == left


def test_a_daemon_that_runs_again_counts_once() -> None:
    """A daemon counts the same when it is added again and while it runs."""
    cache = a_cache(a_daemon(cpu=3.0), x="a")
    cache.pods_launched(LOGS, [(0, 1, "x", ())])
    for wanted in ([], [a_daemon(cpu=3.0)]):
        cache.daemons.want(wanted)
        assert 1_000 == cache.capacity()[0].cpu_milli


def test_idle_offers_that_are_kept_do_not_go_back_to_the_cluster() -> None:
    """Other users of the cluster would take it."""
    cache = a_cache(a_daemon(constraint=ON_RACK_B), x="a", y="b")
    assert ["x-O1"] == cache.take_idle(float("inf"), 0.0, 0, 10)


def plan_hosts(cache: HostCache, cpu: float, **more: Any) -> dict[str, str]:
    """Return the hosts that match a planned daemon, and whether each has resources for it."""
    found = cache.finder.for_daemon(shape(cpu, **more))
    return {host.hostname: "away" if host.is_unavailable else "room" if host.has_capacity else "full" for host in found}


def test_hosts_of_a_daemon_that_is_planned() -> None:
    """Every matching host is listed, free or not; resources reserved for other daemons are not free for it, leased ones
    are.
    """
    cache = a_cache(a_daemon(PROXY, 1.0), x="b", y="b", z="a")
    cache.set_maintained([HostMaintenance("", Hostname("y"), HostState.DRAINING, HostState.DOWN)])
    cache.acquire(JOB, [(shape(1), 1)], 0.0)

    assert {"x": "room", "y": "away", "z": "room"} == plan_hosts(cache, 3.0)
    assert {"x": "full", "y": "away", "z": "full"} == plan_hosts(cache, 3.5)
    assert {"x": "room", "y": "away"} == plan_hosts(cache, 1.0, constraint=ON_RACK_B)
    assert {"z": "room"} == plan_hosts(cache, 1.0, constraint=HostLabel("hostname", "z"))
    assert {} == plan_hosts(cache, 5.0)


def test_a_planned_daemon_on_hosts_without_an_announcement() -> None:
    """Free resources are the cluster's figure, less the reservations of daemons that do not run there yet."""
    cache = HostCache(LEASE_S)
    cache.daemons.want([a_daemon(PROXY, 1.0)])
    cache.set_hosts([a_host("x")])

    assert ["room", "full"] == [plan_hosts(cache, cpu)["x"] for cpu in (3.0, 3.5)]
    cache.pods_launched(PROXY, [(0, 1, "x", ())])
    assert {"x": "room"} == plan_hosts(cache, 3.5)


def test_what_other_daemons_leave_of_a_host() -> None:
    """The rest of a host's capacity excludes other daemons, running or not."""
    cache = a_cache(a_daemon(PROXY, 1.0, constraint=ON_RACK_B), x="b", z="a")

    found = cache.finder.for_daemon(shape(1))
    assert [("x", 4_000, 3_000), ("z", 4_000, 4_000)] == [
        (host.hostname, host.capacity.cpu_milli, host.left.cpu_milli) for host in found
    ]
