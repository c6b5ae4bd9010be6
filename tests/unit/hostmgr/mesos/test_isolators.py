"""Isolators of agents: read from their flags once, before the launch that depends on them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from peloton.api.cluster_kinds import MOUNTS_SECRETS
from peloton.lifecycle.constraints import matches
from services.hostmgr.mesos import isolators
from services.hostmgr.mesos.agents import Agent, agent_of
from services.hostmgr.mesos.isolators import ALL, ASK_AGAIN_S, AgentIsolators, Isolators
from tests.unit.hostmgr.mesos.test_agents import entry

POSIX = "posix/cpu,posix/mem,filesystem/posix"


class Agents:
    """Agents by address that answer with their isolation flag, or not at all."""

    def __init__(self) -> None:
        self.flags: dict[str, str] = {}
        self.asked: list[str] = []
        self.now_s = 0.0
        self.hangs = threading.Event()
        self.hangs.set()
        self.isolators = AgentIsolators(self.read, lambda: self.now_s)

    def read(self, address: str, process: str) -> dict[str, Any]:
        assert "slave(1)" == process
        self.asked.append(address)
        self.hangs.wait()
        if address not in self.flags:
            raise OSError("connection refused")
        return {"isolation": self.flags[address]}

    def agent(self, name: str, flag: str | None = None, registered: int = 1) -> Agent:
        address = f"{name}:5051"
        if flag is not None:
            self.flags[address] = flag
        found = agent_of(entry(name, pid=f"slave(1)@{address}", registered_time={"nanoseconds": registered}))
        assert found is not None
        return found


@pytest.fixture
def agents() -> Iterator[Agents]:
    made = Agents()
    yield made
    made.hangs.set()
    made.isolators.close()


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("cgroups/cpu,cgroups/mem,volume/secret", (True, True, True)),
        ("cgroups/all, volume/secret", (True, True, True)),
        ("cgroups/cpu", (True, False, False)),
        ("cgroups/mem,cgroups/cpuset", (False, True, False)),
        (POSIX, (False, False, False)),
        ("", (False, False, False)),
    ],
)
def test_the_flag_says_what_an_agent_does(flag: str, expected: tuple[bool, bool, bool]) -> None:
    """``cgroups/all`` stands for all of them."""
    found = Isolators.read(flag)
    assert expected == (found.limits_cpu, found.limits_memory, found.mounts_secrets)


def test_an_agent_is_asked_once_until_it_registers_again(agents: Agents) -> None:
    """An agent is read again after it has registered again, as its flags may have changed."""
    before, other = agents.agent("a", POSIX), agents.agent("b", "cgroups/all")
    for _ in range(2):
        found = agents.isolators.of([before, other])
        assert [False, True] == [found["a-S"].limits_cpu, found["b-S"].limits_cpu]
    assert ["a:5051", "b:5051"] == sorted(agents.asked)

    after = agents.agent("a", "cgroups/all", registered=2)
    assert agents.isolators.of([after])["a-S"].limits_cpu
    assert 3 == len(agents.asked)


def test_an_agent_that_does_not_answer_counts_as_one_that_has_all(agents: Agents) -> None:
    """The agent is asked again after a while, not by each launch."""
    silent = agents.agent("a")
    assert {"a-S": ALL} == agents.isolators.of([silent]) == agents.isolators.of([silent])
    assert 1 == len(agents.asked)

    agents.agent("a", POSIX)
    agents.now_s += ASK_AGAIN_S + 1
    assert not agents.isolators.of([silent])["a-S"].limits_cpu


def test_a_launch_does_not_wait_for_an_agent_that_hangs(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent is asked once, and its answer is for later launches."""
    monkeypatch.setattr(isolators, "WAIT_S", 0.01)
    slow = agents.agent("a", POSIX)
    agents.hangs.clear()
    assert {"a-S": ALL} == agents.isolators.of([slow]) == agents.isolators.of([slow])
    agents.hangs.set()
    monkeypatch.setattr(isolators, "WAIT_S", 30.0)
    assert not agents.isolators.of([slow])["a-S"].limits_cpu
    assert 1 == len(agents.asked)


def test_a_refusal_says_which_isolator_an_agent_lacks(agents: Agents) -> None:
    """Later launches leave that limit out, although the agent does not show its flags."""
    silent = agents.agent("a")
    agents.isolators.of([silent])
    agents.isolators.record_refusal(silent, "CPU limits can only be set on tasks launched in Mesos containers when ...")
    found = agents.isolators.of([silent])["a-S"]
    assert (False, True, True) == (found.limits_cpu, found.limits_memory, found.mounts_secrets)


def test_nothing_is_asked_once_it_is_closed(agents: Agents) -> None:
    """Flags of an agent count as unknown to a launch that is under way when the host manager stops."""
    agents.isolators.close()
    assert {"a-S": ALL} == agents.isolators.of([agents.agent("a", POSIX)])
    assert [] == agents.asked


def test_known_agents_are_bounded(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent that was used longest ago is forgotten, and asked again."""
    monkeypatch.setattr(isolators, "KNOWN_MAX", 2)
    first, *rest = (agents.agent(name, POSIX) for name in "abc")
    for one in (first, *rest, first):
        agents.isolators.of([one])
    assert ["a:5051", "b:5051", "c:5051", "a:5051"] == agents.asked


def test_hosts_without_the_isolator_for_secrets_are_labelled(agents: Agents) -> None:
    """Pods with secrets go elsewhere. The same agent has the same host each time, so that nothing seems to change."""
    without, other, unknown = agents.agent("a", POSIX), agents.agent("b", "volume/secret"), agents.agent("c")
    agents.isolators.of([without, other])

    found = agents.isolators.label([without, other, unknown])

    assert [False, True, True] == [matches(MOUNTS_SECRETS, one.host.labels) for one in found]
    assert (other, unknown) == (found[1], found[2])
    again = agents.isolators.label([without, other, unknown])
    assert all(one is same for one, same in zip(found, again, strict=True))
    assert matches(MOUNTS_SECRETS, without.host.labels)
