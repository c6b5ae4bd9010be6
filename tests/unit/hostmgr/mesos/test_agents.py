"""The agents of a master: read in pieces, compared with the last read, and not read too often."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.errors import Unavailable
from peloton.model.ids import Hostname
from peloton.model.resources import Resources
from services.hostmgr.hosts.host_cache import HostCache
from services.hostmgr.mesos.agents import REST_PER_POLL, AgentPoller, AgentReader
from tests.unit.hostmgr.test_hosts import LEASE_S, agent


def entry(name: str, cpus: float = 4.0, **rest: Any) -> dict[str, Any]:
    resources = [{"name": "cpus", "type": "SCALAR", "scalar": {"value": cpus}}]
    info = {"hostname": name, "id": {"value": f"{name}-S"}, "resources": resources}
    return {"agent_info": info, "active": True, "pid": "slave(1)@10.0.0.1:5051", "total_resources": resources, **rest}


def answer(*agents: dict[str, Any], recovered: Iterable[dict[str, Any]] = ()) -> bytes:
    body = {"agents": list(agents), "recovered_agents": list(recovered)}
    return orjson.dumps({"type": "GET_AGENTS", "get_agents": body})


def pieces(text: bytes, size: int) -> list[bytes]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@given(st.lists(st.sampled_from(['a"', '{"agent_info":', "b,", "h"]), max_size=4), st.integers(1, 40))
def test_an_answer_may_be_cut_anywhere(names: list[str], size: int) -> None:
    """Each agent is found once, whatever its texts contain."""
    texts = [f"{name}{number}" for number, name in enumerate(names)]

    found = AgentReader().read(pieces(answer(*map(entry, texts)), size))

    assert texts == [each.host.hostname for each in found]


def test_an_answer_with_spaces_is_read_too() -> None:
    """Mesos writes none; a stand-in for it may."""
    text = orjson.dumps(orjson.loads(answer(entry("a"), entry("b"))), option=orjson.OPT_INDENT_2)

    assert ["a", "b"] == [each.host.hostname for each in AgentReader().read(pieces(text, 100))]


def test_agents_that_a_new_master_waits_for_are_there() -> None:
    """The cluster does not shrink while its master is replaced."""
    found = AgentReader().read([answer(entry("a"), recovered=[entry("b")["agent_info"]])])

    assert [("a", 4_000, "10.0.0.1"), ("b", 4_000, "")] == [
        (each.host.hostname, each.host.capacity.cpu_milli, each.host.ip) for each in found
    ]


def test_an_agent_that_is_there_stands_for_its_host() -> None:
    """A host whose agent lost its disk while the master was replaced has a new one; the master waits for the old one
    for minutes."""
    old = {**entry("a")["agent_info"], "id": {"value": "old"}}
    pool = HostCache(LEASE_S)

    pool.set_hosts(agent.host for agent in AgentReader().read([answer(entry("a"), recovered=[old])]))

    found = pool.host("a")
    assert found is not None
    assert ("a-S", "10.0.0.1") == (found.host_id, found.ip)


def test_what_has_not_changed_is_the_same_object() -> None:
    """Unchanged agents keep their objects, so that the next read costs next to nothing for them."""
    reader = AgentReader()
    before = reader.read([answer(entry("a"), entry("b"))])

    after = reader.read([answer(entry("a"), entry("b", 5.0))])

    assert before[0].host is after[0].host
    assert [4_000, 5_000] == [before[1].host.capacity.cpu_milli, after[1].host.capacity.cpu_milli]


def test_reads_take_a_bounded_part_of_the_time() -> None:
    """A slow read is followed by a long pause, or by a short one if an agent was added or removed; a quick read by the
    period.
    """
    now_s, took_s = 100.0, 2.0

    def ask(master: str, body: object) -> list[bytes]:
        nonlocal now_s
        now_s += took_s
        return [answer(entry("a"))]

    poller = AgentPoller(10.0, ask, clock=lambda: now_s)
    assert poller.is_due
    poller.poll("m")
    assert poller.due_in_s == REST_PER_POLL * 2.0
    poller.want()
    assert poller.due_in_s == 2.0
    took_s = 0.0
    poller.poll("m")
    assert poller.due_in_s == 10.0


def test_a_read_that_fails_is_wanted_again() -> None:
    """The read is repeated soon, not after the period."""

    def ask(master: str, body: object) -> list[bytes]:
        raise OSError("away")

    poller = AgentPoller(10.0, ask, clock=lambda: 0.0)
    with pytest.raises(OSError, match="away"):
        poller.poll("m")

    assert poller.is_due


def test_the_capacity_is_not_reported_before_the_agents_are_known() -> None:
    """A new host manager must not seem a cluster without hosts."""
    pool = HostCache(LEASE_S)
    with pytest.raises(Unavailable, match="not known yet"):
        pool.capacity()

    pool.set_hosts([agent("a", 0, 0)])
    assert (Resources.of(4, 2048), Resources(), 1) == pool.capacity()


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.tuples(st.integers(0, 3), st.integers(0, 3))), max_size=5))
def test_sums_are_those_of_the_agents(poller: list[dict[str, tuple[int, int]]]) -> None:
    """The sums are kept from read to read, and equal the sum of all agents."""
    pool = HostCache(LEASE_S)
    pool.set_hosts([])
    for poll in poller:
        pool.set_hosts([agent(name, slack, held) for name, (slack, held) in poll.items()])
        slack, held = (sum(amounts) for amounts in zip(*poll.values(), strict=True)) if poll else (0, 0)

        assert pool.capacity() == (Resources.of(4, 2048) * len(poll), Resources(cpu_milli=slack), len(poll))
        assert pool.sums.slack() == (slack, held)
        holders = sorted(name for name, (_, held) in poll.items() if held)
        assert [Hostname(name) for name in holders] == [each.hostname for each in pool.revocable_holders()]
