"""Pods that no registered host could take even if it were empty: the reason in a lease, and what ``evaluate``
returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import hypothesis.strategies as st
import pytest
from hypothesis import given

from peloton.errors import Unavailable
from peloton.hosts.feasibility_cache import EVALUATED_MAX
from peloton.hosts.registered_hosts import RegisteredHosts
from peloton.lifecycle.reason_text import infeasible_text
from peloton.model.ids import Hostname
from peloton.model.pod import HostLabel, PodShape
from peloton.model.reason import Infeasible
from peloton.model.resources import Resources
from services.hostmgr.driver import RegisteredHost
from services.hostmgr.hosts.host_cache import HostCache
from services.hostmgr.messages import lease_from_wire, lease_to_wire
from tests.unit.hostmgr.test_hosts import JOB, LEASE_S, free_part, pool_with, shape

TOO_LARGE = "no host has cpu 7: the largest of 2 hosts has 4"


def agent(name: str, cpu: float = 4, rack: str = "a") -> RegisteredHost:
    return RegisteredHost(
        f"{name}-S", Hostname(name), "", Resources.of(cpu, 2_048), Resources(), {"hostname": name, "rack": rack}
    )


def texts(found: Mapping[PodShape, Infeasible]) -> dict[PodShape, str]:
    return {shape: infeasible_text((why,)) for shape, why in found.items()}


def make_cache(*agents: RegisteredHost) -> HostCache:
    pool = HostCache(LEASE_S)
    pool.set_hosts(agents)
    return pool


def test_a_lease_that_is_too_little_says_what_no_host_could_take() -> None:
    """A pod that waits for hosts to become free is not among them; the answer survives the wire."""
    pool = pool_with(free_part("h1", cpus=1))
    pool.set_hosts([agent("h1"), agent("h2")])
    wanted = [(shape(3), 1), (shape(7), 2), (shape(1), 1)]
    lease = pool.acquire(JOB, wanted, 0.0)
    shapes = [one for one, _ in wanted]

    assert {shape(7): TOO_LARGE} == texts(lease.infeasible)
    assert lease == lease_from_wire(lease_to_wire(lease, shapes), shapes)


def test_hosts_that_come_are_read() -> None:
    """Results for earlier hosts are dropped; a host that stays unchanged has no effect."""
    pool = make_cache(agent("h1"), agent("h2"))
    assert {shape(7): TOO_LARGE} == texts(pool.evaluate([shape(7), shape(2)]))
    assert {shape(7): TOO_LARGE} == texts(pool.evaluate([shape(7)]))

    pool.set_hosts([agent("h1"), agent("h2"), agent("h3", cpu=8)])
    assert {} == pool.evaluate([shape(7)])
    pool.set_hosts([agent("h1"), agent("h2")])
    assert {shape(7): TOO_LARGE} == texts(pool.evaluate([shape(7)]))


@pytest.mark.parametrize(
    ("name", "cpu", "why"),
    [
        ("h1", 1, ""),
        (
            "h1",
            7,
            "no host has cpu 7: the largest of the 1 of 2 hosts that meet the constraint label hostname=h1 has 4",
        ),
        ("h9", 1, "0 of 2 hosts meet the constraint label hostname=h9"),
    ],
)
def test_pods_that_name_a_host(name: str, cpu: float, why: str) -> None:
    """Equal hosts are evaluated together, except for named ones."""
    wanted = shape(cpu, constraint=HostLabel("hostname", name))

    assert ({wanted: why} if why else {}) == texts(make_cache(agent("h1"), agent("h2")).evaluate([wanted]))


def test_before_the_hosts_are_known() -> None:
    """A lease says nothing of pods that fit no host, and ``evaluate`` is Unavailable."""
    pool = pool_with(free_part("h1"))

    assert {} == pool.acquire(JOB, [(shape(7), 1)], 0.0).infeasible
    with pytest.raises(Unavailable):
        pool.evaluate([shape(7)])


def test_a_call_finds_out_about_a_bounded_number_of_shapes() -> None:
    """The next call continues with the remaining shapes."""
    pool = make_cache(agent("h1"))
    shapes: list[PodShape] = [shape(5 + number) for number in range(EVALUATED_MAX + 1)]

    assert EVALUATED_MAX == len(pool.evaluate(shapes))
    assert EVALUATED_MAX + 1 == len(pool.evaluate(shapes))


AGENTS = st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(1, 2), st.sampled_from("xy")))


@given(steps=st.lists(AGENTS, min_size=1, max_size=5))
def test_hosts_are_counted_by_kind_as_they_come_and_go(steps: list[dict[str, tuple[int, str]]]) -> None:
    """The counts equal a full count; a named host is its own kind."""
    agents = RegisteredHosts()
    for step in steps:
        agents.replace([agent(name, cpu, rack) for name, (cpu, rack) in step.items()])
    found = Counter({(k.capacity.cpu_milli, k.labels["rack"], "hostname" in k.labels): k.count
                     for k in agents.kinds([Hostname("a")])})  # fmt: skip

    expected = Counter((cpu * 1_000, rack, name == "a") for name, (cpu, rack) in steps[-1].items())
    assert expected == found
