"""The ledger of free resources on nodes."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.model.ids import Hostname
from peloton.model.resources import Resources
from services.hostmgr.driver import Claim, FreeResources
from services.hostmgr.kubernetes.nodes.ledger import FORMER_MAX, Ledger
from services.hostmgr.kubernetes.nodes.node_line import Demand
from services.hostmgr.kubernetes.nodes.nodes import DOWN, DRAINING, Node

ONE = Demand(Resources.of(1, 100))
FOREIGN = ONE._replace(is_foreign=True)
CAPACITY = Resources.of(4, 1_000, 10_000)
PORTS = ((25_000, 25_003),)


def node(name: str = "n1", **more: Any) -> Node:
    known = {
        "name": Hostname(name),
        "uid": f"uid-{name}",
        "ip": "",
        "capacity": CAPACITY,
        "pods_max": 10,
        "ports": PORTS,
    }
    return Node(**{**known, "labels": {"zone": "a"}, **more})


def ledger(*nodes: Node) -> Ledger:
    made = Ledger(lambda: 7)
    for each in nodes or (node(),):
        made.put_node(each)
    return made


def free_resources(made: Ledger) -> dict[str, FreeResources]:
    """Return the announced resources by node."""
    return {on_node.hostname: on_node for on_node in made.changes().announced}


def claim(on_node: FreeResources) -> Claim:
    return Claim(on_node.hostname, on_node.host_id, (on_node.resources_id,))


def make_demands(*names: str, demand: Demand = ONE) -> list[tuple[str, Demand]]:
    return [(name, demand) for name in names]


def test_free_resources_are_what_no_live_pod_asks_for() -> None:
    """Live pods of all origins count; ended pods take nothing."""
    made = ledger()
    made.put_pod("a", "n1", ONE)
    made.put_pod("b", "n1", FOREIGN)
    made.put_pod("c", "n1", FOREIGN)
    made.drop_pod("c")

    assert Resources.of(2, 800, 10_000) == free_resources(made)["n1"].free


def test_a_host_has_what_others_leave_of_its_node() -> None:
    """The capacity excludes external pods; the pods of Peloton count as held."""
    made = ledger()
    made.put_pod("a", "n1", ONE)
    made.put_pod("b", "n1", FOREIGN)

    [host] = made.hosts()

    assert (CAPACITY - ONE.held, ONE.held, CAPACITY - ONE.held * 2) == (host.capacity, host.held, host.free)


def test_hosts_that_have_not_changed_are_the_same_objects() -> None:
    """Unchanged hosts keep their objects, so that thousands of them cost little."""
    made = ledger(node("n1"), node("n2"))
    before = made.hosts()
    made.put_pod("a", "n2", ONE)
    made.put_node(node("n1"))

    now = made.hosts()

    assert before[0] is now[0]
    assert before[1] is not now[1]


def test_offers_are_announced_again_when_they_have_changed() -> None:
    """The earlier announcement is withdrawn; unchanged resources stay announced."""
    made = ledger(node("n1"), node("n2"))
    first = free_resources(made)
    made.put_pod("a", "n1", ONE)
    made.put_pod("b", "n2", ONE)
    made.drop_pod("b")

    changes = made.changes()

    assert [first["n1"].resources_id] == changes.withdrawn
    assert ["n1"] == [on_node.hostname for on_node in changes.announced]
    assert ([], []) == made.changes()


def test_a_launch_takes_what_fits_and_the_rest_is_announced() -> None:
    """A pod that does not fit is named with the reason."""
    made = ledger()

    refused = made.use(claim(free_resources(made)["n1"]), make_demands("a", "b", "c", "d", "e"))

    assert ["e"] == list(refused)
    assert "node n1 has too few free resources" in refused["e"]
    assert {} == free_resources(made)  # no cpu is left
    made.drop_pod("a")
    assert Resources.of(1, 700, 10_000) == free_resources(made)["n1"].free


def test_offers_are_used_once() -> None:
    """A second launch on the same resources is rejected, and so is one on resources of another process."""
    made = ledger()
    on_node = free_resources(made)["n1"]
    made.use(claim(on_node), make_demands("a"))

    assert ["b"] == list(made.use(claim(on_node), make_demands("b")))
    assert ["c"] == list(Ledger(lambda: 8).use(claim(on_node), make_demands("c")))


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made.put_node(node(uid="another")),
        lambda made: made.put_node(node(is_ready=False)),
        lambda made: made.put_node(node(withdrawn="cordoned")),
        lambda made: made.put_node(node(maintenance=DOWN)),
        lambda made: made.drop_node("n1"),
        lambda made: made.void_resources(),
        lambda made: (made.put_node(node(labels={"disk": "ssd"})), made.changes()),
        lambda made: (made.put_node(node(withdrawn="cordoned")), made.changes(), made.put_node(node())),
        lambda made: (made.put_pod("x", "n1", FOREIGN), made.changes(), made.put_node(node(labels={"disk": "ssd"}))),
    ],
    ids=["replaced", "not ready", "withdrawn", "down", "gone", "another session", "relabelled", "back", "both"],
)
def test_a_launch_on_capacity_that_is_gone_gets_nothing(change: Any) -> None:
    """The launch is rejected for every reason for which the resources are gone."""
    made = ledger()
    on_node = free_resources(made)["n1"]
    change(made)

    refused = made.use(claim(on_node), make_demands("a"))

    assert "the claim on n1 is stale" in refused["a"]


def test_a_pod_that_is_launched_again_counts_once() -> None:
    """The pod counts on the node of its last launch."""
    made = ledger(node("n1"), node("n2"))
    first = free_resources(made)
    made.use(claim(first["n1"]), make_demands("a"))
    made.use(claim(first["n2"]), make_demands("a"))
    made.use(claim(free_resources(made)["n2"]), make_demands("a"))

    made.void_resources()
    left = {on_node.hostname: on_node.free for on_node in made.changes().announced}

    assert {"n1": CAPACITY, "n2": CAPACITY - ONE.held} == left


@pytest.mark.parametrize("announced_count", [0, 1, FORMER_MAX])
def test_pods_of_others_that_came_meanwhile_are_counted(announced_count: int) -> None:
    """External pods count before and after the resources are announced again: a launch takes the rest of the node."""
    made = ledger()
    on_node = free_resources(made)["n1"]
    made.put_pod("x", "n1", Demand(Resources.of(2.5), is_foreign=True))
    for number in range(announced_count):
        made.put_pod(f"x{number}", "n1", Demand(Resources.of(0.01), is_foreign=True))
        made.changes()

    assert ["b"] == list(made.use(claim(on_node), make_demands("a", "b")))
    assert ["c"] == list(made.use(claim(on_node), make_demands("c")))  # the id was used


def test_offers_that_were_announced_again_too_often_are_gone() -> None:
    """The number of earlier ids is limited to the need of a launch on its way."""
    made = ledger()
    on_node = free_resources(made)["n1"]
    for number in range(FORMER_MAX + 1):
        made.put_pod(f"x{number}", "n1", Demand(Resources.of(0.01), is_foreign=True))
        made.changes()

    assert ["a"] == list(made.use(claim(on_node), make_demands("a")))


def test_a_host_is_what_others_leave_of_its_machine() -> None:
    """The capacity is the rest of the machine, even if external pods exceed it."""
    made = ledger()
    made.put_pod("x", "n1", Demand(Resources.of(3, 2_000), is_foreign=True))

    (host,) = made.hosts()

    assert (Resources.of(1, 0, 10_000), Resources.of(3, 1_000)) == (host.capacity, host.held_by_others)


def test_offers_that_were_not_used_come_again() -> None:
    """Unused resources are announced under another id."""
    made = ledger()
    on_node = free_resources(made)["n1"]
    made.give_back([on_node.resources_id])

    again = free_resources(made)["n1"]

    assert (on_node.free, False) == (again.free, on_node.resources_id == again.resources_id)


def test_a_node_takes_as_many_pods_as_it_says() -> None:
    """The limit holds for pods of every size and origin; a full node has free resources, and no slot."""
    made = ledger(node(pods_max=3))
    small = Demand(Resources.of(0.01))
    made.put_pod("x", "n1", small._replace(is_foreign=True))
    on_node = free_resources(made)["n1"]

    refused = made.use(claim(on_node), make_demands("a", "b", "c", demand=small))

    assert {"c": "node n1 takes 3 pods, and has them"} == refused
    full = free_resources(made)["n1"]
    assert (2, 0, CAPACITY - small.held * 3) == (on_node.pod_slots, full.pod_slots, full.free)
    made.drop_pod("x")
    assert 1 == free_resources(made)["n1"].pod_slots


def test_ports_are_assigned_once() -> None:
    """Ports of external pods count, too; the middle of a range may be taken."""
    made = ledger()
    made.put_pod("x", "n1", Demand(Resources.of(0.1), ports=(25_001, 80), is_foreign=True))
    on_node = free_resources(made)["n1"]

    assert ((25_000, 25_000), (25_002, 25_003)) == on_node.ports
    taken = Demand(Resources.of(0.1), ports=(25_001,))
    assert {"a": "ports [25001] of node n1 are taken"} == made.use(claim(on_node), make_demands("a", demand=taken))


def test_revocable_resources_is_what_was_measured() -> None:
    """A node without a measurement has no revocable resources."""
    made = ledger()
    borrower = Demand(Resources(memory_mib=10), slack_milli=1_500)
    assert Resources() == free_resources(made)["n1"].revocable
    made.set_slack("n1", 2_000)

    refused = made.use(claim(free_resources(made)["n1"]), make_demands("a", "b", demand=borrower))

    assert {"b": "node n1 has 500m of revocable cpu left for 1500m"} == refused
    left = free_resources(made)["n1"]
    assert (Resources(cpu_milli=500), CAPACITY - Resources(memory_mib=10)) == (left.revocable, left.free)
    assert (2_000, 1_500) == (made.hosts()[0].revocable.cpu_milli, made.hosts()[0].revocable_held.cpu_milli)


def test_an_offer_says_when_its_node_goes() -> None:
    """The time is set while the node drains; a node that is down is no host."""
    made = ledger()
    made.put_node(node(maintenance=DRAINING))
    assert 7 == free_resources(made)["n1"].goes_ns

    made.put_node(node(maintenance=DOWN))

    assert ({}, []) == (free_resources(made), made.hosts())
    made.put_node(node())
    assert 0 == free_resources(made)["n1"].goes_ns


def test_a_node_that_others_withdrew_is_a_host_without_free_resources() -> None:
    """The host has no free resources, and the reason."""
    made = ledger(node(withdrawn="an operator of the cluster has cordoned it"))

    assert {} == free_resources(made)
    assert ["an operator of the cluster has cordoned it"] == [host.withdrawn for host in made.hosts()]


def test_a_lost_node_is_no_host_until_it_is_ready() -> None:
    """A node that is only not ready is a host without free resources."""
    made = ledger()
    made.put_node(node(is_ready=False))
    assert ({}, 1) == (free_resources(made), len(made.hosts()))
    made.lose_node("n1")
    assert [] == made.hosts()

    made.put_node(node())

    assert (1, ["n1"]) == (len(made.hosts()), list(free_resources(made)))


def test_a_new_list_keeps_launches_that_it_does_not_show_yet() -> None:
    """Launched pods are kept; all other pods that the list lacks are removed."""
    made = ledger()
    made.put_pod("old", "n1", FOREIGN)
    made.use(claim(free_resources(made)["n1"]), make_demands("a"))

    assert {"a"} == made.keep_pods({"new"})

    made.put_pod("new", "n1", FOREIGN)
    assert Resources.of(2, 800, 10_000) == free_resources(made)["n1"].free
    assert made.is_expected("a")
    made.put_pod("a", "n1", ONE)
    assert not made.is_expected("a")


def test_a_new_list_of_nodes_drops_the_others() -> None:
    """Pods on a removed node stay counted, in case the node returns."""
    made = ledger(node("n1"), node("n2"))
    made.put_pod("a", "n2", ONE)

    made.keep_nodes({"n1"})

    assert [False, True] == [made.node(name) is None for name in ("n1", "n2")]
    made.put_node(node("n2"))
    assert Resources.of(3, 900, 10_000) == free_resources(made)["n2"].free
