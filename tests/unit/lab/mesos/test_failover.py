"""Failover of the master as schedulers and operators see it, compared with the recording 11_master_restart."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from services.lab.mesos.server import Minicluster
from tests.conformance.minicluster.recording import load
from tests.unit.lab.mesos.conftest import Start
from tests.unit.lab.mesos.scheduler import Scheduler, request, sandbox, task_info, written

pytestmark = pytest.mark.slow

PATH = "/minicluster/master/failover"


async def fail_over(cluster: Minicluster, scheduler: Scheduler, agents_back_s: float = 0.0) -> None:
    status, answer = await request(cluster.port, "POST", PATH, {"agents_back_s": agents_back_s})
    assert (200, cluster.master.registry.id) == (status, answer["master"])
    await scheduler.lost()
    scheduler.events.clear()


async def agents(cluster: Minicluster) -> tuple[list[str], list[str]]:
    """Return the names of the registered agents and of the agents that the master waits for."""
    body = (await request(cluster.port, "POST", "/api/v1", {"type": "GET_AGENTS"}))[1]["get_agents"]
    names = sorted(agent["agent_info"]["hostname"] for agent in body["agents"])
    return names, sorted(info["hostname"] for info in body["recovered_agents"])


async def test_tasks_come_back_with_their_agents(start: Start) -> None:
    """The framework keeps its id and its tasks, receives their status only on reconciliation, and is offered the rest
    of the agent.
    """
    cluster, scheduler = await start(simulate=True)
    await scheduler.launch("t", "sleep 1000")
    await scheduler.status("t", "TASK_RUNNING")
    before, agent = cluster.master.registry.id, next(iter(cluster.master.registry.agents))

    await fail_over(cluster, scheduler)
    await scheduler.subscribe()
    offer = await scheduler.offer()

    assert before != cluster.master.registry.id
    assert offer["id"]["value"].startswith(f"{cluster.master.registry.id}-O")
    assert agent == offer["agent_id"]["value"]
    assert 3.9 == next(r["scalar"]["value"] for r in offer["resources"] if r["name"] == "cpus")
    assert [] == scheduler.states("t")
    await scheduler.call("RECONCILE", {"tasks": []})
    assert "REASON_RECONCILIATION" == (await scheduler.status("t", "TASK_RUNNING"))["reason"]
    await scheduler.call("KILL", {"task_id": {"value": "t"}})
    await scheduler.status("t", "TASK_KILLED")


async def test_nothing_is_said_of_agents_that_are_not_back(start: Start) -> None:
    """Tasks of missing agents are reported neither lost nor running; the operator sees the agents that the master waits
    for.
    """
    cluster, scheduler = await start(simulate=True, hosts=2)
    await scheduler.launch("t", "sleep 1000")
    at = (await scheduler.status("t", "TASK_RUNNING"))["agent_id"]
    await fail_over(cluster, scheduler, agents_back_s=600.0)
    await scheduler.subscribe()

    asked = [{"task_id": {"value": "t"}, "agent_id": at}, {"task_id": {"value": "other"}}]
    await scheduler.call("RECONCILE", {"tasks": asked})

    assert ([], ["a0", "a1"]) == await agents(cluster)
    for name in ("a0", "a1"):
        assert 200 == (await request(cluster.port, "POST", f"/minicluster/agents/{name}/start"))[0]
    while (await agents(cluster))[1]:
        pass
    await scheduler.call("RECONCILE", {"tasks": asked})
    await scheduler.status("t", "TASK_RUNNING")
    await scheduler.status("other", "TASK_UNKNOWN")
    assert (["TASK_RUNNING"], ["TASK_UNKNOWN"]) == (scheduler.states("t"), scheduler.states("other"))


async def test_what_was_not_acknowledged_comes_again(start: Start) -> None:
    """Agents keep unacknowledged updates and send them again, even for events without a master."""
    cluster, scheduler = await start(simulate=True, acknowledge=False)
    await scheduler.launch("t", "sleep 0.01")
    await scheduler.status("t", "TASK_RUNNING")

    await fail_over(cluster, scheduler)
    scheduler.acknowledge = True
    await scheduler.subscribe()

    await scheduler.status("t", "TASK_FINISHED")
    assert ["TASK_RUNNING", "TASK_FINISHED"] == list(dict.fromkeys(scheduler.states("t")))


async def test_a_framework_that_stays_away_is_removed(start: Start) -> None:
    """The failover timeout of a missing framework starts when an agent with its tasks registers."""
    cluster, scheduler = await start(simulate=True, time_scale=1000.0)
    await scheduler.launch("t", "sleep 1000000")
    await scheduler.status("t", "TASK_RUNNING")

    await fail_over(cluster, scheduler)

    while not cluster.master.registry.removed_frameworks:
        await agents(cluster)
    assert {} == cluster.master.registry.frameworks
    assert all(not agent.tasks for agent in cluster.master.registry.agents.values())


async def test_an_agent_that_does_not_come_back_is_unreachable(start: Start) -> None:
    """An agent is unreachable after ten minutes; when it returns the framework receives an update of its task."""
    cluster, scheduler = await start(simulate=True, time_scale=1000.0, agent_timeout_s=10_000.0)
    await scheduler.launch("t", "sleep 1000000")
    await scheduler.status("t", "TASK_RUNNING")
    await request(cluster.port, "POST", "/minicluster/agents/a0/stop")
    await fail_over(cluster, scheduler)
    await scheduler.subscribe(failover_timeout=1e6)

    while (await request(cluster.port, "GET", "/minicluster/agents"))[1]["agents"][0]["state"] != "UNREACHABLE":
        pass
    await request(cluster.port, "POST", "/minicluster/agents/a0/start")

    assert "Unreachable agent re-reregistered" == (await scheduler.status("t", "TASK_RUNNING"))["message"]


@pytest.mark.parametrize("body", [{"agents_back_s": -1}, {"agents_back_s": "1"}, {"agents_back_s": True}, [], b"{"])
async def test_bad_input_replaces_no_master(start: Start, body: Any) -> None:
    """A malformed request changes nothing, and the answer names the rule."""
    cluster, scheduler = await start(simulate=True)
    before = cluster.master.registry.id

    status, _ = await request(cluster.port, "POST", PATH, body)

    assert (400, before) == (status, cluster.master.registry.id)
    assert 405 == (await request(cluster.port, "GET", PATH))[0]
    await scheduler.launch("t", "true")
    await scheduler.status("t", "TASK_FINISHED")


async def test_tasks_run_on_while_the_master_is_away(start: Start) -> None:
    """The port refuses connections; the agent still shows its tasks, and later reports tasks that ended meanwhile."""
    cluster, scheduler = await start()
    info = await scheduler.launch("t", "echo > here; while [ -e here ]; do sleep 0.05; done; echo > done; exit 3")
    await scheduler.status("t", "TASK_RUNNING")
    folder = sandbox(cluster, scheduler, info)
    await written(folder / "here")
    before, agent = cluster.master.registry.id, cluster.master.registry.by_host["a0"]

    cluster.stop_master()
    cluster.stop_master()
    await scheduler.lost()
    scheduler.events.clear()

    with pytest.raises(ConnectionRefusedError):
        await request(cluster.port, "GET", "/health")
    assert [info["task_id"]["value"]] == [
        executor["id"]
        for framework in (await request(agent.port, "GET", "/state"))[1]["frameworks"]
        for executor in framework["executors"]
    ]
    (folder / "here").unlink()
    await written(folder / "done")

    await cluster.start_master()
    await cluster.start_master()
    await scheduler.subscribe()

    assert "Command exited with status 3" == (await scheduler.status("t", "TASK_FAILED"))["message"]
    assert before != cluster.master.registry.id
    assert 200 == (await request(cluster.port, "GET", "/health"))[0]


async def test_an_agent_that_starts_searches_for_a_master_until_there_is_one(start: Start) -> None:
    """The agent was stopped before the master and registers when the master is back."""
    cluster, _ = await start(simulate=True, hosts=2, agent_timeout_s=1000.0, agent_recovery_s=0.0)
    for verb in ("stop", "start"):
        await request(cluster.port, "POST", f"/minicluster/agents/a1/{verb}")
    cluster.stop_master()
    while not cluster.master.registry.by_host["a1"].returns:
        await asyncio.sleep(0)

    await cluster.start_master()

    while await agents(cluster) != (["a0", "a1"], []):
        pass


async def test_task_info_is_as_it_was_sent(start: Start) -> None:
    """The message equals the original, however the master stores it."""
    cluster, scheduler = await start(simulate=True)
    await scheduler.launch("t", "sleep 1000")
    await scheduler.status("t", "TASK_RUNNING")
    (task,) = next(iter(cluster.master.registry.frameworks.values())).tasks.values()

    assert task_info("t", task.agent.id, "sleep 1000").items() <= task.info.items()


async def test_a_master_with_an_empty_registry_knows_no_agent(start: Start) -> None:
    """The master waits for no agent, calls tasks unknown, and sends updates for the tasks of agents that register
    again, as in the recording.
    """
    cluster, scheduler = await start(simulate=True, hosts=2)
    await scheduler.launch("t", "sleep 1000")
    at = (await scheduler.status("t", "TASK_RUNNING"))["agent_id"]
    agent = cluster.master.registry.agents[at["value"]]
    body = {"empty_registry": True, "agents_back_s": 600.0}
    status, answer = await request(cluster.port, "POST", PATH, body)
    assert (200, 2) == (status, answer["agents"])
    await scheduler.lost()
    scheduler.events.clear()
    await scheduler.subscribe()

    assert ([], []) == await agents(cluster)
    await scheduler.call("RECONCILE", {"tasks": [{"task_id": {"value": "t"}, "agent_id": at}]})
    unknown = await scheduler.status("t", "TASK_UNKNOWN")
    assert "Reconciliation: Task is unknown" == unknown["message"]

    cluster.master.agents.register(agent)
    back = await scheduler.status("t", "TASK_RUNNING")
    (recorded,) = [
        line["event"]["update"]["status"]
        for line in load("11").lines
        if line.get("event", {}).get("update", {}).get("status", {}).get("message") == "Unknown agent reregistered"
        and line["event"]["update"]["status"]["task_id"]["value"] == "t1"
    ]
    for key in ("message", "source", "reason"):
        assert recorded[key] == back[key]
    assert at == (await scheduler.offer(agent.spec.name))["agent_id"]


async def test_whether_the_registry_is_empty_is_a_truth_value(start: Start) -> None:
    """A value other than true and false is rejected."""
    cluster, _ = await start(simulate=True)

    assert 400 == (await request(cluster.port, "POST", PATH, {"empty_registry": 1}))[0]
