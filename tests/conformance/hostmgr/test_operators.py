"""Operations of Mesos operators on hosts, without Peloton: drain, deactivate, reactivate, and give up."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.model.host import HostState
from peloton.model.ids import JobId
from peloton.model.pod import PodEvent, PodState
from tests.conformance.hostmgr.world import World, wait

SOON = {"agents_period_s": 0.1}


def ask(world: World, call: str, host: str, **body: Any) -> None:
    """Call the operator API of the master about the agent of a host."""
    agent = world.host(host)
    address = f"{world.link.target[0]}:{world.link.target[1]}"
    world.mesos.operator.call(address, {"type": call, call.lower(): {"agent_id": {"value": agent.host_id}, **body}})


def home(world: World, job: JobId) -> str:
    """Return the host of the job's pod, once it is known."""
    return world.host(world.pod(job).host).hostname


def ends(world: World, job: JobId) -> list[PodEvent]:
    """Return the ends of the runs of instance 0."""
    return [e for e in world.storage.pods.events(job, 0, None, 0) if e.state in (PodState.KILLED, PodState.LOST)]


def read_state(world: World, host: str) -> tuple[HostState, bool]:
    """Return the state of the host, and whether placement avoids it."""
    (found,) = (h for h in world.core.cache.hosts() if h.hostname == host)
    return found.state, bool(found.avoided)


def test_pods_of_a_drained_host_run_elsewhere(make: Any) -> None:
    """A batch pod that allows no failure has a new run that counts no failure, with the reason. Its host takes no pods
    and counts no capacity until it is reactivated."""
    world: World = make(**SOON)
    job = world.running()
    host = home(world, job)
    capacity = world.core.cache.capacity()[2]

    ask(world, "DRAIN_AGENT", host, max_grace_period={"seconds": 1})
    wait(lambda: ends(world, job), "the end of the run")
    world.admit(job)
    world.launch(world.place(job))
    world.wait_states(job, {"RUNNING": 1})

    assert [(PodState.KILLED, "REASON_AGENT_DRAINING")] == [(e.state, e.reason) for e in ends(world, job)]
    pod = world.pod(job)
    assert (2, 0) == (pod.run_id, pod.failure_count)
    assert host != pod.host
    wait(lambda: read_state(world, host) == (HostState.DRAINED, True), "a host that is shown as drained")
    assert capacity - 1 == world.core.cache.capacity()[2]

    ask(world, "REACTIVATE_AGENT", host)
    wait(lambda: read_state(world, host) == (HostState.UP, False), "the host to be back")
    assert capacity == world.core.cache.capacity()[2]


def test_pods_of_a_deactivated_host_run_on(make: Any) -> None:
    """The host offers nothing more and is shown as avoided."""
    world: World = make(**SOON)
    job = world.running()
    host = home(world, job)

    ask(world, "DEACTIVATE_AGENT", host)
    wait(lambda: read_state(world, host) == (HostState.UP, True), "a host that is shown as avoided")
    other = world.running()

    assert host != world.pod(other).host
    assert {"RUNNING": 1} == world.states(job)


@pytest.mark.parametrize(("call", "body"), [("MARK_AGENT_GONE", {}), ("DRAIN_AGENT", {"mark_gone": True})])
def test_pods_of_a_host_that_is_given_up_run_elsewhere(call: str, body: dict[str, Any], make: Any) -> None:
    """The operator declares the pods gone. They run again without a wait and without a counted failure."""
    world: World = make(**SOON)
    job = world.running()
    host = home(world, job)

    ask(world, call, host, **body)
    wait(lambda: ends(world, job), "the end of the run")
    world.admit(job)
    world.launch(world.place(job))
    world.wait_states(job, {"RUNNING": 1})

    pod = world.pod(job)
    assert (2, 0) == (pod.run_id, pod.failure_count)
    assert host != pod.host
