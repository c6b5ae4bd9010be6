"""Resources of a host that pods may use, from answers of a real Mesos to operators and to frameworks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from peloton.model.resources import Resources
from services.hostmgr.hosts.host_cache import HostCache
from services.hostmgr.mesos.agents import AgentReader
from services.hostmgr.mesos.offer_cache import OfferCache
from services.hostmgr.mesos.resources import OfferedReader, is_for_pods, roles_above
from tests.conformance.minicluster.recording import load

Json = dict[str, Any]


def lines(name: str) -> dict[int, Json]:
    return {line["seq"]: line for line in load(name).lines}


def capacities(line: Json, role: str) -> dict[str, Resources]:
    """Return the capacities of a recorded GET_AGENTS answer."""
    return {
        agent.host.hostname: agent.host.capacity
        for agent in AgentReader(role=role).read([orjson.dumps(line["response"])])
    }


def offers(*recorded: Json) -> Iterator[Json]:
    for line in recorded:
        yield from line["event"]["offers"]["offers"]


def free(role: str, *recorded: Json) -> dict[str, Resources]:
    """Return the free resources of recorded OFFERS."""
    reader = OfferedReader(role)
    return {offer["hostname"]: reader.read(offer["resources"]).free for offer in offers(*recorded)}


@pytest.mark.parametrize("seq", [12, 34])
def test_capacity_and_offers_agree(seq: int) -> None:
    """A host reserved for the role by its own flags counts; dynamic reservations, their volumes and MOUNT disks do not;
    in the older form of offers (12) and in the refined one (34).
    """
    recorded = lines("20")

    capacity = capacities(recorded[6], "peloton")

    assert capacity["peloton-mesos-agent0"] == Resources.of(4, 2048, 20_000)
    assert capacity["peloton-mesos-agent1"] == Resources.of(4, 2048, 0, 2)
    assert capacity["peloton-mesos-agent2"] == Resources.of(2, 2048, 1_000)
    assert capacity == free("peloton", recorded[seq])


def test_ports_of_a_reserved_host_are_ours() -> None:
    """The ports are reserved like the rest of the host."""
    (offer,) = [one for one in offers(lines("20")[12]) if one["hostname"] == "peloton-mesos-agent0"]

    assert ((31_000, 31_333),) == OfferedReader("peloton").read(offer["resources"]).ports


def test_a_host_reserved_for_others_is_not_ours() -> None:
    """The host is in the answer to operators, and never offered."""
    capacity = capacities(lines("20")[6], "other")

    assert capacity["peloton-mesos-agent0"] == Resources()
    assert capacity["peloton-mesos-agent2"] == Resources.of(2, 2048, 1_000)


def test_an_empty_dynamic_reservation_is_one() -> None:
    """The older form is an empty object without a principal and labels; the refined one names the type."""
    recorded = lines("08")
    reserved = [209, 221]  # to operators, and in an offer to a framework without RESERVATION_REFINEMENT
    capacity, offered = capacities(recorded[reserved[0]], "web"), free("web", recorded[reserved[1]])
    kept = [e for one in offers(recorded[reserved[1]]) for e in one["resources"] if e.get("reservation") == {}]

    assert {"cpus", "mem", "disk"} == {entry["name"] for entry in kept}
    assert offered
    assert offered == {hostname: capacity[hostname] for hostname in offered}


def test_static_reservations_of_single_resources() -> None:
    """The flag ``cpus(web):1`` of an agent reserves for the role web, in addition to unreserved cpus."""
    recorded = lines("14")
    ours, others = capacities(recorded[86], "web"), capacities(recorded[86], "db")
    offered = free("web", recorded[80])

    assert offered
    for hostname, amounts in offered.items():
        assert amounts == ours[hostname]
    assert sum(others.values(), Resources()) != sum(ours.values(), Resources())


def entry(name: str = "cpus", **rest: Any) -> Json:
    return {"name": name, "type": "SCALAR", "scalar": {"value": 1.0}, **rest}


def disk(**info: Any) -> Json:
    return entry("disk", disk=info)


STATIC, DYNAMIC = ({"type": kind, "role": "eng"} for kind in ("STATIC", "DYNAMIC"))


@pytest.mark.parametrize(
    ("resource", "is_managed"),
    [
        (entry(), True),
        (entry(role="*"), True),
        (entry(role="eng"), True),
        (entry(role="eng/maps"), True),
        (entry(role="eng/maps/tiles"), False),
        (entry(role="engine"), False),
        (entry(role="eng/maps", reservation={}), False),
        (entry(role="eng/maps", reservation={"principal": "ops"}), False),
        (entry(reservations=[]), True),
        (entry(reservations=[STATIC]), True),
        (entry(reservations=[{**STATIC, "role": "web"}]), False),
        (entry(reservations=[DYNAMIC]), False),
        (entry(reservations=[STATIC, {**DYNAMIC, "role": "eng/maps"}]), False),
        (entry(role="eng", reservations=[STATIC]), True),
        (entry(role="eng", reservation={}, reservations=[DYNAMIC]), False),
        (entry("disk"), True),
        (disk(source={"type": "MOUNT", "mount": {"root": "/mnt"}}), False),
        (disk(source={"type": "PATH", "path": {"root": "/data"}}), False),
        (disk(source={"type": "BLOCK", "id": "b"}), False),
        (disk(source={"type": "RAW", "profile": "fast"}), False),
        (entry("disk", reservations=[STATIC], disk={"persistence": {"id": "v"}, "volume": {"mode": "RW"}}), False),
    ],
)
def test_whose_a_resource_is(resource: Json, is_managed: bool) -> None:
    """A framework with the role eng/maps may use reservations of its role and of the roles above it."""
    assert is_for_pods(resource, roles_above("eng/maps")) == is_managed


def test_a_reserved_cluster_takes_pods() -> None:
    """The capacity, the free resources and the resources of a launch are the same amounts, and keep
    their reservation.
    """
    recorded = lines("20")
    pool = HostCache(30.0)
    (host,) = [one for one in offers(recorded[12]) if one["hostname"] == "peloton-mesos-agent0"]
    agents = AgentReader(role="peloton").read([orjson.dumps(recorded[6]["response"])])
    pool.set_hosts(agent.host for agent in agents if agent.host.hostname == host["hostname"])
    pool.add_resources(OfferCache(role="peloton").receive([host]))

    assert pool.capacity()[0] == pool.free() == Resources.of(4, 2048, 20_000)
