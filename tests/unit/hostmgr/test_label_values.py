"""Hosts with several values of a label, from the attributes of a Mesos agent to the pods that run there."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from peloton.hosts.registered_hosts import RegisteredHosts
from peloton.lifecycle.constraints import HostLabels
from peloton.model.daemon import Daemon
from peloton.model.host import ReadyGang
from peloton.model.ids import Hostname
from peloton.model.layout import Layout, Spread
from peloton.model.pod import HostLabel, PodShape
from peloton.model.resources import Resources
from peloton.scheduling.placement import place
from services.hostmgr.driver import RegisteredHost
from services.hostmgr.hosts.host_cache import HostCache
from services.hostmgr.mesos.agents import AgentReader, labels_of
from services.hostmgr.mesos.offer_cache import OfferCache
from services.hostmgr.messages import lease_from_wire, lease_to_wire
from tests.unit.hostmgr.test_hosts import JOB, LEASE_S, OTHER, refusals_of, shape

CPUS = {"name": "cpus", "type": "SCALAR", "scalar": {"value": 4.0}, "role": "*"}
MEM = {"name": "mem", "type": "SCALAR", "scalar": {"value": 2048.0}, "role": "*"}
DISK = {"name": "disk", "type": "SCALAR", "scalar": {"value": 20_000.0}, "role": "*"}
HARD = Layout((Spread("rack"),))


def text(name: str, value: str) -> dict[str, Any]:
    return {"name": name, "type": "TEXT", "text": {"value": value}}


def items(name: str, *values: str) -> dict[str, Any]:
    return {"name": name, "type": "SET", "set": {"item": list(values)}}


RACKS = {"both": [items("rack", "a", "b")], "left": [text("rack", "a")], "right": [text("rack", "b")]}


def a_cache(**attributes: list[dict[str, Any]]) -> HostCache:
    """Return a book with agents and offers read as the Mesos driver does."""
    agents, offers = [], []
    for name, own in attributes.items():
        about: dict[str, Any] = {"hostname": name, "resources": [CPUS, MEM, DISK], "attributes": own}
        agents.append({"agent_info": {"id": {"value": f"{name}-S"}, **about}, "total_resources": about["resources"]})
        offers.append({"id": {"value": f"{name}-O"}, "agent_id": {"value": f"{name}-S"}, **about})
    cache = HostCache(LEASE_S, cluster_labels={"peloton/cluster": "west"})
    answer = orjson.dumps({"type": "GET_AGENTS", "get_agents": {"agents": agents}})
    cache.set_hosts(agent.host for agent in AgentReader().read([answer]))
    cache.add_resources(OfferCache().receive(offers))
    return cache


def a_registered(name: str, attributes: list[dict[str, Any]]) -> RegisteredHost:
    labels = labels_of(name, attributes)
    return RegisteredHost(f"{name}-S", Hostname(name), "", Resources.of(4), Resources(), labels)


def fitting(cache: HostCache, constraint: HostLabel) -> list[str]:
    """Return the hosts of a lease with this constraint."""
    wanted = shape(4, constraint=constraint)
    lease = cache.acquire(JOB, [(wanted, 3)], 0.0)
    cache.release(lease.lease_id)
    return sorted(host.hostname for host in lease.hosts)


@pytest.mark.parametrize(
    ("attributes", "labels"),
    [
        ([text("rack", "a")], {"rack": "a"}),
        ([items("rack", "a", "b")], {"rack": {"a": 1, "b": 1}}),
        ([items("rack", "a")], {"rack": "a"}),
        ([items("rack")], {}),
        ([items("rack", "a", "a")], {"rack": {"a": 2}}),
        ([text("rack", "a"), text("rack", "b"), text("disk", "ssd")], {"rack": {"a": 1, "b": 1}, "disk": "ssd"}),
        ([text("hostname", "other"), text("zone", "z")], {"zone": "z"}),
    ],
)
def test_each_item_of_an_attribute_is_a_label(attributes: list[dict[str, Any]], labels: HostLabels) -> None:
    """Each attribute of a repeated name is a label too; none replaces the name of the host."""
    assert {"hostname": "h1", **labels} == labels_of("h1", attributes)


def test_constraints_count_each_value() -> None:
    """The values joined by commas are no value."""
    cache = a_cache(**RACKS)

    assert ["both", "left"] == fitting(cache, HostLabel("rack", "a"))
    assert ["both", "right"] == fitting(cache, HostLabel("rack", "b"))
    assert ["right"] == fitting(cache, HostLabel("rack", "a", "<", 1))
    assert [] == fitting(cache, HostLabel("rack", "a,b"))
    assert ["twice"] == fitting(a_cache(once=[items("k", "x")], twice=[items("k", "x", "x")]), HostLabel("k", "x", ">"))


def test_what_no_host_could_take_is_known_by_each_value() -> None:
    """Each value is checked, even of a host whose resources are all in use."""
    cache = a_cache(both=RACKS["both"])
    one, joined = (shape(constraint=HostLabel("rack", value)) for value in ("b", "a,b"))

    assert [joined] == list(cache.evaluate([one, joined]))


def test_a_lease_has_all_values_and_earlier_releases_read_them_joined() -> None:
    """Earlier releases read the values joined, as before: labels with one value are where they were."""
    cache, wanted = a_cache(**RACKS), shape(4)
    lease = cache.acquire(JOB, [(wanted, 3)], 0.0)
    wire = lease_to_wire(lease, [wanted])

    [both, left] = (next(host for host in wire.hosts if host.hostname == name) for name in ("both", "left"))
    assert {"hostname": "both", "peloton/cluster": "west", "rack": "a,b"} == dict(both.labels)
    assert {"hostname": "left", "peloton/cluster": "west", "rack": "a"} == dict(left.labels)
    assert ([("rack", ["a", "b"])], []) == tuple(
        [(key, list(found.values)) for key, found in host.repeated_labels.items()] for host in (both, left)
    )
    assert lease == lease_from_wire(wire, [wanted])
    [host] = (host for host in lease.hosts if host.hostname == "both")
    assert (("hostname", "both"), ("peloton/cluster", "west"), ("rack", "a"), ("rack", "b")) == host.labels


@pytest.mark.parametrize(("value", "hosts"), [("a", ["both", "left"]), ("b", ["both", "right"]), ("a,b", [])])
def test_placement_counts_each_value(value: str, hosts: list[str]) -> None:
    """Placement counts each value of the hosts of a lease that was sent over the wire."""
    cache, wanted = a_cache(**RACKS), shape(4)
    wire = lease_to_wire(cache.acquire(JOB, [(wanted, 3)], 0.0), [wanted])
    pods = [ReadyGang(shape(4, constraint=HostLabel("rack", value)), ((number, 1),)) for number in range(3)]

    batch = place(JOB, pods, lease_from_wire(wire, [wanted]))

    assert hosts == sorted(placement.hostname for placement in batch.placements)


def test_a_host_with_several_values_is_in_no_domain() -> None:
    """Pods that spread are not placed there, and pods there count for neither domain."""
    cache, wanted = a_cache(**RACKS), PodShape(Resources.of(1, 10), layout=HARD)
    counts = cache.domains.count([wanted], {Hostname("both"): 2, Hostname("left"): 1})
    [[rule]] = counts.values()
    assert ({"a": 1}, frozenset("ab")) == (rule.pods, rule.open)

    lease = cache.acquire(JOB, [(wanted, 3)], 0.0, counts=counts)
    assert {"left", "right"} == {host.hostname for host in lease.hosts}
    pods = [ReadyGang(wanted, ((number, 1),)) for number in range(5)]
    assert {"left": 2, "right": 3} == {one.hostname: len(one.pods) for one in place(JOB, pods, lease).placements}


def test_an_exclusive_host_may_be_kept_for_several() -> None:
    """The label of the host has each of the names."""
    cache = a_cache(shared=[items("peloton/exclusive", "ml", "ai")])

    assert ["shared"] == fitting(cache, HostLabel("peloton/exclusive", "ai"))
    assert {"kept for pods that ask for peloton/exclusive": 1} == refusals_of(cache.acquire(JOB, [(shape(), 1)], 0.0))


def test_people_and_rebalancing_see_each_value() -> None:
    """Each value is shown to users, used by rebalancing, and matched by daemons."""
    cache = a_cache(**RACKS)

    assert [("rack", "a"), ("rack", "b")] == [pair for pair in cache.hosts()[0].labels if pair[0] == "rack"]
    seen = {str(host.hostname): host.view.labels for host in cache.census({})}
    assert ({"a": 1, "b": 1}, "a") == (seen["both"]["rack"], seen["left"]["rack"])
    cache.daemons.want([Daemon(OTHER, shape(1, constraint=HostLabel("rack", "b")))])
    assert {"both", "right"} == cache.daemons.hosts_of(OTHER)


def test_a_host_pool_that_an_agent_names_twice_is_none() -> None:
    """The label is an ordinary one while host pools are not in use."""
    answer = {"one": [items("peloton/host-pool", "x", "y")], "other": [text("peloton/host-pool", "x")]}
    hosts = RegisteredHosts()
    hosts.replace(a_registered(name, own) for name, own in answer.items())

    assert {"x": (Resources.of(4), 0)} == hosts.by_host_pool((), {})
    assert {"x": (Resources(), 0)} == hosts.by_host_pool({Hostname("one"), Hostname("other")}, {})
