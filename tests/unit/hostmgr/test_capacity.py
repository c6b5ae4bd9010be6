"""Free resources for planned pods, on the current hosts of a cluster; a query changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.hosts.domain_counts import NO_COUNTS, Counts
from peloton.lifecycle.reason_text import hosts_text
from peloton.model.daemon import DaemonPlan, DaemonReach
from peloton.model.host import ComingBack, HostState
from peloton.model.ids import Hostname
from peloton.model.layout import Layout, Spread
from peloton.model.maintenance import HostMaintenance
from peloton.model.misfit import UnmetConstraint
from peloton.model.planned_capacity import FoundCapacity, PlannedPods
from peloton.model.pod import HostLabel, PodLabel, PodShape
from peloton.model.reason import RefusingHosts
from peloton.model.resources import Resources
from services.hostmgr.capacity_messages import (
    capacity_from_wire,
    capacity_to_wire,
    daemon_plan_from_wire,
    daemon_plan_to_wire,
    pods_from_wire,
    pods_to_wire,
)
from services.hostmgr.hosts.host_cache import HostCache
from tests.unit.hostmgr.test_hosts import JOB, LEASE_S, OTHER, free_part, shape
from tests.unit.hostmgr.test_unfit import agent


def cache(*names: str, cpus: float = 4) -> HostCache:
    """Return a book with hosts that have announced their resources."""
    made = HostCache(LEASE_S)
    made.set_hosts([agent(name) for name in names])
    made.add_resources([free_part(name, cpus) for name in names])
    return made


def find_hosts(
    cache: HostCache, count: int, cpu: float = 1, counts: Counts = NO_COUNTS, **more: Any
) -> tuple[int, list[str]]:
    """Return the number of pods that find a host, and the rules of the hosts for the others."""
    (answer,) = cache.finder.find([PlannedPods(shape(cpu, **more), count)], counts)
    return answer.count, [hosts_text(one) for one in answer.refusing]


def test_free_hosts_take_what_fits() -> None:
    """Free resources are the same before and after a query."""
    hosts = cache("h1", "h2")

    assert (8, []) == find_hosts(hosts, 8)
    assert (2, ["2 hosts: less than 3 cpu free, 1 at most"]) == find_hosts(hosts, 5, cpu=3)
    assert (8, []) == find_hosts(hosts, 8)
    assert 8_000 == hosts.free().cpu_milli


def test_what_is_leased_counts_as_free() -> None:
    """A lease is short, and stays with its holder."""
    hosts = cache("h1", "h2")
    lease = hosts.acquire(JOB, [(shape(4), 1)], 0.0)

    assert (2, []) == find_hosts(hosts, 2, cpu=4)
    assert 1 == len(hosts.claim(lease.lease_id, [host.hostname for host in lease.hosts]))


def test_hosts_without_an_announcement_count_with_what_their_cluster_says() -> None:
    """The figures of the cluster apply, as on an idle Mesos cluster; a constraint is met by the labels of the host, and
    leases of the host are not subtracted.
    """
    hosts = HostCache(LEASE_S)
    hosts.set_hosts([agent("h1"), agent("h2", rack="b")])

    assert (2, []) == find_hosts(hosts, 2, cpu=4)
    only = HostLabel("rack", "b")
    refused = ["1 host: label rack=b not met", "1 host: less than 4 cpu free, 0 at most"]
    assert (1, refused) == find_hosts(hosts, 2, cpu=4, constraint=only)
    hosts.add_resources([free_part("h2", 1)])
    assert (5, ["2 hosts: less than 1 cpu free, 0 at most"]) == find_hosts(hosts, 9)


def test_a_host_that_was_filled_is_full() -> None:
    """The host is full whatever the cluster, which is polled, reported before."""
    hosts = cache("h1", "h2")
    lease = hosts.acquire(JOB, [(shape(4), 1)], 0.0)
    hosts.claim(lease.lease_id, [host.hostname for host in lease.hosts])

    assert 4_000 == hosts.free().cpu_milli
    assert (4, ["2 hosts: less than 1 cpu free, 0 at most"]) == find_hosts(hosts, 5)
    assert [False, True] == sorted(host.has_capacity for host in hosts.finder.for_daemon(shape(1)))


def test_hosts_in_maintenance_take_none() -> None:
    """A host in maintenance takes no pods, free or not."""
    hosts = cache("h1", "h2")
    hosts.set_maintained([HostMaintenance("", Hostname("h1"), HostState.DRAINING, HostState.DOWN)])

    assert (4, ["1 host: less than 1 cpu free, 0 at most", "1 host: in maintenance"]) == find_hosts(hosts, 5)


def test_offers_that_are_held_are_not_there_for_new_pods() -> None:
    """The reason says that it is held."""
    hosts = cache("h1")
    hosts.hold([ComingBack(OTHER, 0, Hostname("h1"), Resources(3_000), 0)], 0.0)

    assert (1, []) == find_hosts(hosts, 1)
    assert (0, ["1 host: resources reserved for returning pods"]) == find_hosts(hosts, 1, cpu=2)


def test_labels_of_pods_that_are_planned_count_too() -> None:
    """The number of pods that find a host follows the constraints on each other."""
    label = ("app", "web")
    apart = PlannedPods(shape(1, constraint=PodLabel(*label)), 5, (label,))
    (answer,) = cache("h1", "h2").finder.find([apart], NO_COUNTS)

    assert 2 == answer.count
    assert ["2 hosts: pods with app=web < 1 not met"] == [hosts_text(one) for one in answer.refusing]


def test_a_bound_on_skew_holds() -> None:
    """The bound on skew counts the hosts of the cluster."""
    hosts = HostCache(LEASE_S)
    hosts.set_hosts([agent("h1", 9), agent("h2", rack="b")])
    hosts.add_resources([free_part("h1", 9), free_part("h2", 1, rack="b")])
    layout = Layout((Spread("rack", is_hard=True),))
    counts = hosts.domains.count([shape(1, layout=layout)], {})

    full = "1 host: less than 1 cpu free, 0 at most"
    skew = "1 host: at most 2 pods of the job in a rack: rack=b has 1, max skew 1"
    assert (3, [full, skew]) == find_hosts(hosts, 6, 1, counts, layout=layout)


@pytest.mark.parametrize("wanted", [shape(1), PodShape(Resources(1_000), volume_mib=5, constraint=HostLabel("a", "b"))])
def test_question_and_answer_survive_the_wire(wanted: PodShape) -> None:
    """Query and answer are equal after the wire, with all of their parts."""
    asked = [PlannedPods(wanted, 7, (("app", "web"),), True, 1), PlannedPods(wanted, 1)]
    free_resources = [*cache("h1").finder.find(asked, NO_COUNTS), FoundCapacity(3)]

    assert asked == pods_from_wire(pods_to_wire(asked).pods)
    assert free_resources == capacity_from_wire(capacity_to_wire(free_resources))


def test_what_a_planned_daemon_finds_survives_the_wire() -> None:
    """The answer is equal after the wire, with all of its numbers."""
    refusing = RefusingHosts.of(4, UnmetConstraint("label role=edge"))
    free_part = DaemonPlan(DaemonReach(9, (refusing,)), 1, 2, 3, 4, 5, 6, Resources.of(7, 8), Resources.of(9, 10))

    assert free_part == daemon_plan_from_wire(daemon_plan_to_wire(free_part))
