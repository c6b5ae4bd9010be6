"""Resources that hosts reserve for daemons."""

from __future__ import annotations

from typing import Any

from peloton.model.daemon import Daemon, DaemonReach, WaitingDaemonPod
from peloton.model.host import HostState
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.maintenance import HostMaintenance
from peloton.model.pod import HostLabel, PodShape
from peloton.model.reason import HostRule, Misfit, RefusingHosts
from peloton.model.resources import Resources
from services.hostmgr.driver import RegisteredHost
from services.hostmgr.hosts.host_book import HostBook
from tests.unit.hostmgr.test_hosts import LEASE_S, room, shape

LOGS, PROXY, JOB = (JobId(f"00000000-0000-4000-8000-00000000000{number}") for number in (1, 2, 3))
ON_RACK_B = HostLabel("rack", "b")
WHOLE = Resources.of(4, 2048, 20_000)


def a_host(name: str, rack: str = "a", capacity: Resources = WHOLE) -> RegisteredHost:
    return RegisteredHost(f"{name}-S", Hostname(name), "", capacity, Resources(), {"hostname": name, "rack": rack})


def a_book(*daemons: Daemon, **racks: str) -> HostBook:
    """Return a book of hosts with 4 cpus."""
    book = HostBook(LEASE_S)
    book.daemons.want(daemons)
    book.set_hosts([a_host(name, rack) for name, rack in racks.items()])
    book.add_room([room(name, rack=rack) for name, rack in racks.items()])
    return book


def a_daemon(job: JobId = LOGS, cpu: float = 1.0, **more: Any) -> Daemon:
    return Daemon(job, shape(cpu, **more))


def free(book: HostBook) -> dict[str, float]:
    return {host.hostname: host.free.cpu_milli / 1000 for host in book.hosts()}


def takes(book: HostBook, cpu: float) -> bool:
    """Return whether a pod of this size finds a host."""
    lease = book.acquire(JOB, [(PodShape(Resources.of(cpu, 32)), 1)], 0.0)
    book.release(lease.lease_id)
    return bool(lease.hosts)


def waiting(instance: int, host: str, cpu: float = 1.0) -> WaitingDaemonPod:
    return WaitingDaemonPod(instance, 1, Hostname(host), shape(cpu))


def refusals(book: HostBook, job: JobId, *pods: WaitingDaemonPod) -> dict[str, HostRule]:
    return {name: misfit.rule for name, misfit in book.daemons.rooms_for(job, pods).refused.items()}


def test_room_of_daemons_is_announced_to_nobody_else() -> None:
    """Resources of daemons are reserved on matching hosts as soon as the hosts are known."""
    book = a_book(a_daemon(), a_daemon(PROXY, 0.5, constraint=ON_RACK_B), x="a", y="b")
    assert {"x": 3.0, "y": 2.5} == free(book)
    assert (True, False) == (takes(book, 3.0), takes(book, 3.5))


def test_room_that_comes_before_its_host_is_kept_as_well() -> None:
    """A host that joins while a daemon waits offers none of the daemon's resources."""
    book = HostBook(LEASE_S)
    book.daemons.want([a_daemon()])
    book.add_room([room("x")])
    assert {"x"} == set(book.acquire(JOB, [(shape(3.0), 1)], 0.0).hosts[0].hostname)
    assert not takes(book, 3.5)


def test_a_daemon_that_is_wanted_later_takes_the_room_that_is_free() -> None:
    """A later daemon reserves free resources, and frees them when it is removed."""
    book = a_book(x="a")
    book.daemons.want([a_daemon()])
    assert {"x": 3.0} == free(book)
    book.daemons.want([])
    assert {"x": 4.0} == free(book)


def test_a_pod_that_runs_needs_nothing_kept_until_it_ends() -> None:
    """Resources are reserved again, before other jobs see them, when the pod has ended."""
    book = a_book(a_daemon(), x="a")
    book.pods_launched(LOGS, [(0, 1, "x", ())])
    assert {"x": 4.0} == free(book)
    book.pods_ended([PodId(LOGS, 0, 2)])
    assert {"x": 4.0} == free(book)  # the ended pod was of another run
    book.pods_ended([PodId(LOGS, 0, 1)])
    assert {"x": 3.0} == free(book)


def test_pods_of_other_jobs_do_not_stand_for_a_daemon() -> None:
    """Pods of other jobs and of other daemons do not satisfy a daemon."""
    book = a_book(a_daemon(), a_daemon(PROXY), x="a")
    book.pods_launched(JOB, [(0, 1, "x", ())])
    book.pods_launched(PROXY, [(0, 1, "x", ())])
    assert {"x": 3.0} == free(book)


def test_a_daemon_sees_what_is_kept_but_for_those_before_it() -> None:
    """Two daemons fill a host with resources for both; with resources for one the first daemon takes it."""
    book = a_book(a_daemon(LOGS, 3.0), a_daemon(PROXY, 1.0), x="a")
    assert {"x": 0.0} == free(book)
    first = book.daemons.rooms_for(LOGS, [waiting(0, "x", 3.0)])
    then = book.daemons.rooms_for(PROXY, [waiting(0, "x", 1.0)])
    seen = [rooms.fit[Hostname("x")].free.cpu_milli for rooms in (first, then)]
    assert ({}, {}, [4000, 1000]) == (first.refused, then.refused, seen)
    assert {"x": HostRule.ROOM} == refusals(book, PROXY, waiting(0, "x", 1.5))


def test_each_pod_that_finds_no_room_says_why() -> None:
    """The reason is the first rule that keeps the pod off its host."""
    book = a_book(a_daemon(), x="a", y="a")
    book.set_maintained([HostMaintenance("", Hostname("y"), HostState.DRAINING, HostState.DOWN)])
    lease = book.acquire(JOB, [(shape(), 1)], 0.0)
    assert ["x"] == [host.hostname for host in lease.hosts]
    pods = [waiting(0, "x"), waiting(1, "y"), waiting(2, "z")]
    rules = {"x": HostRule.LEASED, "y": HostRule.MAINTENANCE, "z": HostRule.ROOM}
    assert rules == refusals(book, LOGS, *pods)


def test_a_lease_of_a_daemon_has_its_hosts_as_it_sees_them() -> None:
    """The hosts of the lease are kept from other jobs until it is released."""
    book = a_book(a_daemon(), x="a", y="a")
    rooms = book.daemons.rooms_for(LOGS, [waiting(0, "x"), waiting(1, "y")])
    lease = book.lease_for_daemon(LOGS, rooms.fit, 0.0)
    assert {"x": 4000, "y": 4000} == {host.hostname: host.free.cpu_milli for host in lease.hosts}
    assert not takes(book, 1.0)
    book.release(lease.lease_id)
    assert (True, {"x": 3.0, "y": 3.0}) == (takes(book, 1.0), free(book))


def test_daemons_count_as_overhead_of_the_hosts_that_are_there() -> None:
    """Daemons count as overhead, running or not; missing hosts count neither way."""
    book = a_book(a_daemon(), a_daemon(PROXY, 0.5, constraint=ON_RACK_B), x="a", y="b", z="b")
    assert 12_000 - 3_000 - 1_000 == book.capacity()[0].cpu_milli
    book.pods_launched(LOGS, [(0, 1, "x", ())])
    assert 8_000 == book.capacity()[0].cpu_milli
    book.set_maintained([HostMaintenance("", Hostname("z"), HostState.DOWN, HostState.DOWN)])
    assert 8_000 - 2_500 == book.capacity()[0].cpu_milli


def test_a_pod_that_would_fit_only_without_the_daemon_fits_nowhere() -> None:
    """The pod is reported as unfit at once, and no longer when the daemon is removed."""
    book = a_book(a_daemon(), x="a")
    whole = shape(4.0)
    assert {whole} == book.judge([whole]).keys()
    book.daemons.want([])
    assert {} == book.judge([whole])


def test_a_daemon_is_on_hosts_that_could_take_it_when_empty() -> None:
    """A daemon runs on the hosts that match by labels, by name and by size."""
    named = HostLabel("hostname", "y")
    book = a_book(a_daemon(), a_daemon(PROXY, constraint=named), a_daemon(JOB, 5.0), x="a", y="b")
    found = [sorted(book.daemons.hosts_of(job)) for job in (LOGS, PROXY, JOB)]
    assert [["x", "y"], ["y"], []] == found
    assert ({"x": 3.0, "y": 2.0}, 8_000 - 3_000) == (free(book), book.capacity()[0].cpu_milli)


def test_hosts_that_do_not_match_are_counted_by_rule() -> None:
    """Running pods do not matter, nor does it matter whether the daemon is stored yet."""
    book = a_book(a_daemon(JOB, 4.0), v="a", w="b", x="a", y="b", z="b")
    book.set_hosts([*(a_host(name) for name in "vwx"), a_host("y", "b"), a_host("z", "b", Resources.of(1, 2048, 0))])
    on_b, named = shape(2.0, constraint=ON_RACK_B), shape(1.0, constraint=HostLabel("hostname", "y"))
    other_rack = RefusingHosts(3, Misfit(HostRule.CONSTRAINT, name="label rack=b"))
    small = RefusingHosts(1, Misfit(HostRule.SIZE, "cpu", 2_000, 1_000))
    assert DaemonReach(1, (other_rack, small)) == book.daemons.reach(on_b)
    not_y = RefusingHosts(4, Misfit(HostRule.CONSTRAINT, name="label hostname=y"))
    assert DaemonReach(1, (not_y,)) == book.daemons.reach(named)
    assert DaemonReach(5) == book.daemons.reach(shape(1.0))


def test_where_a_daemon_is_to_run_follows_the_hosts() -> None:
    """Hosts that are added, removed, relabelled or resized are matched again, and resources are reserved there."""
    book = a_book(a_daemon(), a_daemon(PROXY, constraint=ON_RACK_B), v="a", w="b", x="b", y="a")
    for job in (LOGS, PROXY):
        book.daemons.hosts_of(job)
    small = a_host("y", "b", Resources.of(0.5, 2048, 20_000))
    book.set_hosts([a_host("w", "a"), a_host("x", "b"), small, a_host("z", "b")])
    book.add_room([room("z", rack="b")])
    found = [sorted(book.daemons.hosts_of(job)) for job in (LOGS, PROXY)]
    assert [["w", "x", "z"], ["x", "z"]] == found
    kept = {name: amount for name, amount in free(book).items() if name in "wxz"}
    assert {"w": 3.0, "x": 2.0, "z": 2.0} == kept


def news(book: HostBook) -> list[set[JobId]]:
    """Return the news of two reads."""
    return [book.daemons.take_news(), book.daemons.take_news()]


def test_daemons_that_come_change_or_end_are_news_once() -> None:
    """Daemons that are added, changed or removed are reported as news once, and no others."""
    book = a_book(a_daemon(), a_daemon(PROXY), x="a")
    assert [{LOGS, PROXY}, set()] == news(book)
    for wanted in ([a_daemon(), a_daemon(PROXY, 0.5)], [a_daemon()]):
        book.daemons.want(wanted)
        assert [{PROXY}, set()] == news(book)


def test_hosts_that_come_or_go_are_news_for_daemons_that_match() -> None:
    """The news is reported once, and not to a daemon that has just read the hosts."""
    book = a_book(a_daemon(), a_daemon(PROXY, constraint=ON_RACK_B), x="a", y="b")
    for job in (LOGS, PROXY):
        book.daemons.hosts_of(job)
    assert [set(), set()] == news(book)
    for hosts, told in (("xyz", {LOGS}), ("xyz", set()), ("xz", {LOGS, PROXY})):
        book.set_hosts([a_host(name, "b" if name == "y" else "a") for name in hosts])
        assert [told, set()] == news(book)
    book.set_hosts([a_host("x")])
    book.daemons.hosts_of(LOGS)
    assert [set(), set()] == news(book)


def test_room_is_news_for_the_pod_that_it_fits() -> None:
    """Fitting resources are news once; fewer resources, and resources on other hosts, are not."""
    book = HostBook(LEASE_S)
    book.daemons.want([a_daemon(cpu=3.0)])
    book.set_hosts([a_host("x"), a_host("y")])
    book.daemons.hosts_of(LOGS)
    assert {"x": HostRule.ROOM} == refusals(book, LOGS, waiting(0, "x", 3.0))
    for number, (host, cpu, told) in enumerate([("x", 1.0, set()), ("y", 4.0, set()), ("x", 2.0, {LOGS})]):
        book.add_room([room(host, cpu, number=number)])
        assert [told, set()] == news(book)


def test_a_lease_that_ends_is_news_for_the_pod_that_waits() -> None:
    """The end of the lease is news if the pod was rejected for the lease alone."""
    book = a_book(a_daemon(), x="a")
    lease = book.acquire(JOB, [(shape(), 1)], 0.0)
    assert {"x": HostRule.LEASED} == refusals(book, LOGS, waiting(0, "x"))
    news(book)
    book.release(lease.lease_id)
    assert [{LOGS}, set()] == news(book)


def test_the_end_of_maintenance_is_news_for_the_pod_that_waits() -> None:
    """The end of maintenance is news, but not for a pod that was removed with its daemon."""
    book = a_book(a_daemon(), a_daemon(PROXY), x="a")
    book.set_maintained([HostMaintenance("", Hostname("x"), HostState.DRAINING, HostState.DOWN)])
    for job in (LOGS, PROXY):
        assert {"x": HostRule.MAINTENANCE} == refusals(book, job, waiting(0, "x"))
    book.daemons.want([a_daemon()])
    news(book)
    book.set_maintained([])
    assert [{LOGS}, set()] == news(book)


def test_a_pod_of_a_host_that_is_gone_waits_no_more() -> None:
    """Resources that are offered before their host registers again are no news."""
    book = a_book(a_daemon(), x="a")
    book.remove_room(["x-O1"])
    assert {"x": HostRule.ROOM} == refusals(book, LOGS, waiting(0, "x"))
    book.set_hosts([])
    news(book)
    book.add_room([room("x")])
    assert [set(), set()] == news(book)


def test_pods_of_a_daemon_that_has_ended_are_overhead_until_they_end() -> None:
    """Resources of a removed daemon can be allocated when its pods have ended, and not before."""
    book = a_book(a_daemon(cpu=3.0), a_daemon(PROXY), x="a", y="a")
    book.pods_launched(LOGS, [(0, 1, "x", ()), (1, 1, "y", ())])
    book.daemons.want([a_daemon(PROXY)])
    left = []
    for ended in ([], [PodId(LOGS, 0, 1)], [PodId(LOGS, 1, 1)]):
        book.pods_ended(ended)
        left.append(book.capacity()[0].cpu_milli)
    assert [8_000 - 2_000 - held for held in (6_000, 3_000, 0)] == left


def test_a_daemon_that_runs_again_counts_once() -> None:
    """A daemon counts the same when it is added again and while it runs."""
    book = a_book(a_daemon(cpu=3.0), x="a")
    book.pods_launched(LOGS, [(0, 1, "x", ())])
    for wanted in ([], [a_daemon(cpu=3.0)]):
        book.daemons.want(wanted)
        assert 1_000 == book.capacity()[0].cpu_milli


def test_idle_room_that_is_kept_does_not_go_back_to_the_cluster() -> None:
    """Other users of the cluster would take it."""
    book = a_book(a_daemon(constraint=ON_RACK_B), x="a", y="b")
    assert ["x-O1"] == book.take_idle(float("inf"), 0.0, 0, 10)


def planned(book: HostBook, cpu: float, **more: Any) -> dict[str, str]:
    """Return the hosts that match a planned daemon, and whether each has resources for it."""
    found = book.room.for_daemon(shape(cpu, **more))
    return {host.hostname: "away" if host.is_away else "room" if host.has_room else "full" for host in found}


def test_hosts_of_a_daemon_that_is_planned() -> None:
    """Every matching host is listed, free or not; resources reserved for other daemons are not free for it, leased ones
    are.
    """
    book = a_book(a_daemon(PROXY, 1.0), x="b", y="b", z="a")
    book.set_maintained([HostMaintenance("", Hostname("y"), HostState.DRAINING, HostState.DOWN)])
    book.acquire(JOB, [(shape(1), 1)], 0.0)

    assert {"x": "room", "y": "away", "z": "room"} == planned(book, 3.0)
    assert {"x": "full", "y": "away", "z": "full"} == planned(book, 3.5)
    assert {"x": "room", "y": "away"} == planned(book, 1.0, constraint=ON_RACK_B)
    assert {"z": "room"} == planned(book, 1.0, constraint=HostLabel("hostname", "z"))
    assert {} == planned(book, 5.0)


def test_a_planned_daemon_on_hosts_without_an_announcement() -> None:
    """Free resources are the cluster's figure, less the reservations of daemons that do not run there yet."""
    book = HostBook(LEASE_S)
    book.daemons.want([a_daemon(PROXY, 1.0)])
    book.set_hosts([a_host("x")])

    assert ["room", "full"] == [planned(book, cpu)["x"] for cpu in (3.0, 3.5)]
    book.pods_launched(PROXY, [(0, 1, "x", ())])
    assert {"x": "room"} == planned(book, 3.5)


def test_what_other_daemons_leave_of_a_host() -> None:
    """The rest of a host's capacity excludes other daemons, running or not."""
    book = a_book(a_daemon(PROXY, 1.0, constraint=ON_RACK_B), x="b", z="a")

    found = book.room.for_daemon(shape(1))
    assert [("x", 4_000, 3_000), ("z", 4_000, 4_000)] == [
        (host.hostname, host.capacity.cpu_milli, host.left.cpu_milli) for host in found
    ]
