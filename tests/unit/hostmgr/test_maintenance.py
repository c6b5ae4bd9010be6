"""Hosts in maintenance in the host manager's memory: leases, launches, capacity, and queries of the pods on a host."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from typing import Any

from peloton.hosts.host_table import GOES_NOTICE_NS
from peloton.model.host import CLUSTER_KIND_LABEL, CLUSTER_LABEL, HostState
from peloton.model.ids import Hostname, JobId
from peloton.model.job import JobType
from peloton.model.maintenance import HostedPod, HostMaintenance
from peloton.model.reason import SlaRefusal
from peloton.model.resources import Resources
from services.hostmgr.drain_watch import REFUSAL_S, DrainWatch
from services.hostmgr.driver import FreeResources, RegisteredHost
from services.hostmgr.hosted_pods import AGE_MAX_S, ASKED_WITHIN_S, REST_PER_QUERY, HostedPods
from services.hostmgr.hosts.host_cache import HostCache
from tests.unit.hostmgr.test_hosts import JOB, LEASE_S, OTHER, free_part, lease_hosts, pool_with, refusals_of, shape

UP, DRAINING, DOWN = HostState.UP, HostState.DRAINING, HostState.DOWN


def make_maintenance(name: str, state: HostState, goal: HostState = DOWN) -> HostMaintenance:
    return HostMaintenance("c", Hostname(name), state, goal, "10.0.0.9")


def agent(name: str) -> RegisteredHost:
    return RegisteredHost(f"{name}-S", Hostname(name), "10.0.0.1", Resources.of(4, 2048), Resources.of(1, 0), {})


def test_a_host_that_goes_is_not_leased() -> None:
    """The host is not leased as soon as its maintenance begins; the lease has the reason."""
    pool = pool_with(free_part("h1"), free_part("h2"))
    pool.set_maintained([make_maintenance("h1", DRAINING)])

    lease = pool.acquire(JOB, [(shape(), 100)], 0.0)

    assert [h.hostname for h in lease.hosts] == ["h2"]
    assert refusals_of(lease) == {"in maintenance": 1}


def test_it_is_leased_again_when_it_is_back() -> None:
    """The host is leased again when the maintenance is cancelled, or ended."""
    pool = pool_with(free_part("h1"))
    pool.set_maintained([make_maintenance("h1", DRAINING)])
    pool.set_maintained([])

    assert lease_hosts(pool, shape(), 1) == ["h1"]


def test_a_host_that_will_go_comes_last() -> None:
    """A host that waits for its maintenance is given only the pods that no other host takes."""
    pool = pool_with(free_part("h1"), free_part("h2"))
    pool.set_maintained([make_maintenance("h1", UP)])

    assert lease_hosts(pool, shape(), 1) == ["h2"]
    assert lease_hosts(pool, shape(cpu=4), 2, job=JOB) == ["h2", "h1"]


def test_a_launch_does_not_get_a_host_that_went_meanwhile() -> None:
    """The pods of a host that was leased and is gone at the claim are rejected, the pods of other hosts are not."""
    pool = pool_with(free_part("h1"), free_part("h2"))
    lease = pool.acquire(JOB, [(shape(cpu=4), 2)], 0.0)
    pool.set_maintained([make_maintenance("h1", DRAINING)])

    assert list(pool.claim(lease.lease_id, [Hostname("h1"), Hostname("h2")])) == ["h2"]
    pool.release(lease.lease_id)
    pool.set_maintained([])
    assert lease_hosts(pool, shape(), 1, job=OTHER) == ["h1"]


def test_a_host_is_closed_once_launches_have_ended() -> None:
    """A launch that may have claimed it before keeps it open until its commit, whether that succeeds or not."""
    pool = pool_with(free_part("h1"))

    def fails() -> None:
        with pool.launching(["h1"]):
            pool.set_maintained([make_maintenance("h1", DRAINING)])
            assert not pool.is_closed("h1")
            raise OSError

    assert not pool.is_closed("h1")
    with pool.launching(["h1", "h2"]):
        with suppress(OSError):
            fails()
        assert not pool.is_closed("h1")
    assert pool.is_closed("h1")


def test_capacity_without_those_that_go() -> None:
    """Draining hosts do not count, waiting ones do; all of them are registered, and count for the bound."""
    pool = HostCache(LEASE_S)
    pool.set_hosts([agent("h1"), agent("h2"), agent("h3")])
    gone = replace(make_maintenance("gone", DOWN), capacity=Resources.of(2, 1))
    pool.set_maintained([make_maintenance("h1", DRAINING), make_maintenance("h2", UP), gone])

    assert pool.capacity() == (Resources.of(8, 4096), Resources.of(2, 0), 2)
    assert pool.sum_registered() == Resources.of(4 * 3 + 2, 2048 * 3 + 1)
    assert pool.host_count() == 4


def test_states_of_hosts() -> None:
    """Registered hosts and hosts that are down are listed with their goals."""
    pool = HostCache(LEASE_S)
    pool.set_hosts([agent("h1"), agent("h2"), agent("h3")])
    pool.set_maintained(
        [make_maintenance("h1", DRAINING, UP), make_maintenance("h2", UP), make_maintenance("gone", DOWN)]
    )

    assert [(h.hostname, h.state, h.goal, h.ip) for h in pool.hosts()] == [
        ("gone", DOWN, DOWN, "10.0.0.9"),
        ("h1", DRAINING, UP, "10.0.0.1"),
        ("h2", UP, DOWN, "10.0.0.1"),
        ("h3", UP, UP, "10.0.0.1"),
    ]


def test_a_host_that_is_down_has_the_labels_of_its_cluster() -> None:
    """The labels are the name and kind of the cluster, as for a registered host."""
    labels = {CLUSTER_LABEL: "east", CLUSTER_KIND_LABEL: "kubernetes"}
    pool = HostCache(LEASE_S, cluster_labels=labels)
    pool.set_hosts([])
    pool.set_maintained([make_maintenance("gone", DOWN)])

    assert [labels] == [dict(host.labels) for host in pool.hosts()]


def going(name: str, goes_ns: int, number: int = 1) -> FreeResources:
    return replace(free_part(name, number=number), goes_ns=goes_ns)


NOW_NS = 1_000 * GOES_NOTICE_NS


def test_the_cluster_takes_a_host_away_soon() -> None:
    """An operator's own schedule keeps pods off for the three hours before, however the host was announced."""
    pool = HostCache(LEASE_S, wall_ns=lambda: NOW_NS)
    notice = NOW_NS + GOES_NOTICE_NS
    pool.add_resources(
        [going("soon", notice), going("later", notice + 1), free_part("past"), going("past", 1, number=2)]
    )

    lease = pool.acquire(JOB, [(shape(), 100)], 0.0)

    assert [h.hostname for h in lease.hosts] == ["later"]
    assert refusals_of(lease) == {"scheduled for maintenance in the cluster": 2}
    pool.remove_resources(["past-O2"])
    assert lease_hosts(pool, shape(), 1, job=OTHER) == ["past"]


# Pods on a host.

POD = HostedPod(JOB, 1, JobType.BATCH, False)


class Storage:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.took_s = 0.0
        self.looks: list[set[str]] = []

    def hosted_pods(self, hostnames: Collection[str]) -> dict[Hostname, list[HostedPod]]:
        self.looks.append(set(hostnames))
        self.now_s += self.took_s
        return {Hostname(name): [POD] for name in hostnames}


def looking() -> tuple[Storage, HostedPods]:
    storage = Storage()
    return storage, HostedPods(storage.hosted_pods, lambda: storage.now_s)


H1, H2 = Hostname("h1"), Hostname("h2")


def test_one_read_serves_all_hosts() -> None:
    """One query serves all hosts for a moment; a host that was not in it is queried with the others."""
    storage, hosted_pods = looking()
    assert [POD] == hosted_pods.of(H1) == hosted_pods.of(H2) == hosted_pods.of(H1)
    storage.now_s += AGE_MAX_S
    hosted_pods.of(H1)
    hosted_pods.of(H2)

    assert storage.looks == [{"h1"}, {"h1", "h2"}, {"h1", "h2"}]


def test_a_slow_read_serves_longer() -> None:
    """Queries take a bounded part of the time, however long one query takes."""
    storage, hosted_pods = looking()
    storage.took_s = 2.0
    hosted_pods.of(H1)
    storage.now_s += REST_PER_QUERY * 2.0 - 0.1
    hosted_pods.of(H1)
    assert len(storage.looks) == 1
    storage.now_s += 0.1
    hosted_pods.of(H1)

    assert len(storage.looks) == 2


def test_hosts_without_requests_are_forgotten() -> None:
    """Hosts without a request are no longer queried."""
    storage, hosted_pods = looking()
    hosted_pods.of(H1)
    storage.now_s += ASKED_WITHIN_S
    hosted_pods.of(H2)

    assert storage.looks == [{"h1"}, {"h2"}]


def test_who_was_notified_is_not_asked_again() -> None:
    """A leaving pod is marked even if the query is older; the next query overrides the mark."""
    storage, hosted_pods = looking()
    hosted_pods.of(H1)
    hosted_pods.note_leaving(H1, JOB, [1])
    hosted_pods.note_leaving(H2, JOB, [1])
    assert hosted_pods.of(H2) == [POD]
    hosted_pods.note_leaving(H1, JOB, [1])

    assert hosted_pods.of(H1) == [replace(POD, is_leaving=True)]
    hosted_pods.note_leaving(H1, OTHER, [1])
    storage.now_s += AGE_MAX_S
    assert hosted_pods.of(H1) == [POD]


def test_now_means_now() -> None:
    """The decision that a host is empty never uses an old query."""
    storage, hosted_pods = looking()
    hosted_pods.of(H1)
    hosted_pods.now_of([H1])

    assert storage.looks == [{"h1"}, {"h1"}]


class Woken:
    def __init__(self) -> None:
        self.jobs: list[set[JobId]] = []
        self.hosts: list[list[Hostname]] = []
        self.now_s = 50.0

    def jobs_changed(self, job_ids: Any, cause: str = "") -> None:
        self.jobs.append(set(job_ids))

    pods_changed = jobs_changed

    def hosts_changed(self, hostnames: Any) -> None:
        self.hosts.append(sorted(hostnames))


def watching() -> tuple[Woken, DrainWatch]:
    woken = Woken()
    return woken, DrainWatch(woken, woken, lambda: woken.now_s)


def test_drains_wake_with_the_jobs_they_wait_for() -> None:
    """A change of a job wakes the drains of hosts that its pods leave, and no others."""
    woken, watch = watching()
    watch.watch(H1, [JOB])
    watch.watch(H2, [JOB, OTHER])

    watch.jobs_changed(iter([JOB]))
    watch.pods_changed(iter([OTHER]))
    watch.watch(H2)
    watch.jobs_changed([OTHER])

    assert woken.jobs == [{JOB}, {OTHER}, {OTHER}]
    assert woken.hosts == [["h1", "h2"], ["h2"]]


def test_one_of_those_that_were_refused_is_woken() -> None:
    """The first host that waits for the SLA of a changed job is woken."""
    woken, watch = watching()
    watch.watch(H2, [], [JOB, OTHER])
    watch.watch(H1, [], [JOB])

    watch.jobs_changed([JOB])
    watch.jobs_changed([OTHER])
    watch.jobs_changed([JOB, OTHER])
    watch.watch(H1, [JOB])
    watch.jobs_changed([JOB])

    assert woken.hosts == [["h1"], ["h2"], ["h1", "h2"], ["h1", "h2"]]


FULL, MORE = SlaRefusal(1, 1, 1), SlaRefusal(2, 2, 1)


def test_a_refusal_holds_until_the_job_changes() -> None:
    """The rejection is reused for a bounded time; other jobs are asked."""
    woken, watch = watching()
    assert watch.refusal(JOB) is None
    watch.note_refusal(JOB, FULL)

    assert (watch.refusal(JOB), watch.refusal(OTHER)) == (FULL, None)
    watch.jobs_changed([JOB])
    assert watch.refusal(JOB) is None
    watch.note_refusal(JOB, MORE)
    woken.now_s += REFUSAL_S - 0.1
    assert watch.refusal(JOB) == MORE
    woken.now_s += 0.1
    assert watch.refusal(JOB) is None


def test_an_answer_that_came_too_late_is_not_kept() -> None:
    """The job changed between the question and the answer."""
    _, watch = watching()
    watch.refusal(JOB)
    watch.jobs_changed([JOB])
    watch.note_refusal(JOB, FULL)

    assert watch.refusal(JOB) is None
