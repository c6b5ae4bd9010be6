"""A master returns without memory of agents and pods, which continue to run and register with it later."""

from __future__ import annotations

import pytest

from peloton.model.pod import PodState
from services.hostmgr import manager, reconcile
from tests.conformance.hostmgr.conftest import Make
from tests.conformance.hostmgr.world import World, wait

HOSTS = ("h0", "h1", "h2")


@pytest.fixture(autouse=True)
def quick_follow_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the intervals: pods without an answer are asked about again soon, and kills are sent soon after an agent
    returns."""
    monkeypatch.setattr(manager, "HOST_BACK_REST_S", 0.1)
    monkeypatch.setattr(reconcile, "FOLLOW_UPS_S", (0.2, 0.4, 0.6, 0.8))


def wait_for_reconciliation(world: World, after: int) -> None:
    """Report that Mesos was asked about all pods, and again about the ones that it did not know."""
    wait(lambda: world.link.calls[after:].count("RECONCILE") >= 3, "questions after the first")


def test_pods_outlive_a_master_that_lost_its_registry(world: World) -> None:
    """The master calls all pods unknown, yet none is lost, killed or run again. Meanwhile pods stay RUNNING and hosts
    stay listed."""
    job = world.running(3)
    for name in HOSTS:
        world.host(name)
    capacity, calls = world.core.cache.capacity(), len(world.link.calls)
    tasks = world.tasks()

    world.lose_registry()
    wait(lambda: "SUBSCRIBE" in world.link.calls[calls:], "another subscription")
    wait_for_reconciliation(world, calls)

    assert [] == world.tasks()
    assert {"RUNNING": 3} == world.states(job)
    assert capacity == world.core.cache.capacity()
    assert 3 == len(world.core.cache.hosts())

    for name in HOSTS:
        world.cluster.agent(name, "start")
    wait(lambda: world.tasks() == tasks, "the pods of the agents")
    assert {"RUNNING": 3} == world.states(job)
    assert [1] == [run for run, state in world.history(job) if state is PodState.RUNNING]
    assert "KILL" not in world.link.calls[calls:]
    assert world.running(1)


def test_pods_of_agents_that_never_come_are_lost(make: Make) -> None:
    """Pods of an agent that does not register in time are lost. Pods of an agent that registered stay."""
    world = make(agent_reregister_timeout_s=1.5)
    job = world.running(6)
    pods = world.pods(job)
    stays = pods[0].host

    world.lose_registry()
    world.cluster.agent(stays, "start")

    lost = sum(pod.host != stays for pod in pods)
    assert lost
    world.wait_states(job, {"RUNNING": 6 - lost, "LOST": lost})
    wait(lambda: [host.hostname for host in world.core.cache.hosts()] == [stays], "the hosts that are left")


def test_a_kill_meanwhile_waits_for_the_agent(make: Make) -> None:
    """A pod with a pending kill is not taken for ended because the master does not know it. The kill is sent when the
    pod is known again."""
    world = make(agents_period_s=0.1)
    job = world.running(1)
    host = world.pod(job).host
    calls = len(world.link.calls)
    world.lose_registry()
    wait(lambda: "SUBSCRIBE" in world.link.calls[calls:], "another subscription")
    wait(lambda: world.mesos.is_connected, "the subscription")

    world.kill(job)
    wait_for_reconciliation(world, calls)
    assert {"KILLING": 1} == world.states(job)

    world.cluster.agent(host, "start")
    world.wait_states(job, {"KILLED": 1})
    assert [] == world.tasks()
