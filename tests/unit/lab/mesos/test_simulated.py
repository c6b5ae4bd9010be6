"""Simulated agents: two updates per task, and no process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from services.lab.mesos.agents.task_info import text_of, variables_of
from services.lab.shared.simulation.behaviour import behaviour
from tests.unit.lab.mesos.conftest import Start
from tests.unit.lab.mesos.scheduler import WAIT_S, request, scalar, task_info


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ({"value": "echo x"}, (0.0, 0)),
        ({"value": "sleep 2; echo x && sleep 1.5"}, (3.5, 0)),
        ({"value": "sleep 1; exit 7"}, (1.0, 7)),
        ({"shell": False, "value": "/bin/sh", "arguments": ["sh", "-c", "sleep 4"]}, (4.0, 0)),
        (
            {"value": "sleep 9; exit 1", "environment": {"variables": [{"name": "SIMULATE_SECONDS", "value": "0.5"}]}},
            (0.5, 1),
        ),
    ],
)
def test_a_command_is_its_sleeps_and_its_exit(command: dict[str, Any], expected: tuple[float, int]) -> None:
    """The variable overrides the sleeps; the code is that of a final exit."""
    plan = behaviour(text_of(command), variables_of(command))

    assert expected == (plan.seconds, plan.code)


def test_the_names_of_the_variables_can_be_others() -> None:
    """The variables of duration and of usage can have another prefix; the variables of the usual prefix are ignored
    then.
    """
    rows = [("X_SECONDS", "3"), ("X_SHARE", "0.2"), ("SIMULATE_SECONDS", "7"), ("SIMULATE_SHARE", "0.9")]

    plans = [behaviour("", dict(rows), "X"), behaviour("", dict(rows))]

    assert [(3.0, 0.2), (7.0, 0.9)] == [(plan.seconds, plan.share) for plan in plans]


async def test_a_task_runs_and_ends(start: Start) -> None:
    """The updates are RUNNING and the end, without STARTING."""
    cluster, scheduler = await start(simulate=True)
    await scheduler.launch("ok", "sleep 0.05")
    await scheduler.status("ok", "TASK_FINISHED")
    await scheduler.launch("bad", "exit 3")

    assert "Command exited with status 3" == (await scheduler.status("bad", "TASK_FAILED"))["message"]
    assert ["TASK_RUNNING", "TASK_FINISHED"] == scheduler.states("ok")
    assert 404 == (await request(cluster.port, "GET", "/files/browse?path=/"))[0]


async def test_killing_works(start: Start) -> None:
    """A long task ends as killed and its resources are free again."""
    _, scheduler = await start(simulate=True)
    await scheduler.launch("t", "sleep 1000")
    await scheduler.status("t", "TASK_RUNNING")
    await scheduler.call("KILL", {"task_id": {"value": "t"}})
    await scheduler.status("t", "TASK_KILLED")

    assert ["TASK_RUNNING", "TASK_KILLING", "TASK_KILLED"] == scheduler.states("t")


async def test_a_killed_agent_fails_its_tasks_on_return(start: Start) -> None:
    """The tasks of a killed agent fail when it returns, as with real agents, without processes."""
    cluster, scheduler = await start(simulate=True, agent_timeout_s=0.1)
    await scheduler.launch("t", "sleep 1000")
    await scheduler.status("t", "TASK_RUNNING")
    await request(cluster.port, "POST", "/minicluster/agents/a0/stop", {"now": True})
    await scheduler.status("t", "TASK_UNREACHABLE")
    await request(cluster.port, "POST", "/minicluster/agents/a0/start")

    await scheduler.status("t", "TASK_FAILED")


async def test_all_agents_are_offered_at_once(start: Start) -> None:
    """One OFFERS event has the whole cluster, with every agent at the master's port."""
    cluster, scheduler = await start(simulate=True, hosts=500)

    event = await scheduler.wait(lambda event: event["type"] == "OFFERS")

    offers = event["offers"]["offers"]
    assert 500 == len({offer["hostname"] for offer in offers})
    assert {cluster.port} == {offer["url"]["address"]["port"] for offer in offers}


async def test_unacknowledged_updates_come_again(start: Start) -> None:
    """The oldest update alone is sent again, with the same uuid after the retry time."""
    _, scheduler = await start(simulate=True, acknowledge=False, update_retry_s=0.05)
    await scheduler.launch("t", "true")
    async with asyncio.timeout(120):
        while len(scheduler.states("t")) < 3:
            await asyncio.sleep(0.01)

    updates = [event["update"]["status"] for event in scheduler.events if event["type"] == "UPDATE"]
    assert {"TASK_RUNNING"} == {status["state"] for status in updates}
    assert 1 == len({status["uuid"] for status in updates})


async def test_a_thousand_tasks_end(start: Start) -> None:
    """The tasks are launched in one ACCEPT and acknowledged one by one, and nothing is left."""
    cluster, scheduler = await start(simulate=True)
    offer = await scheduler.offer()
    agent_id = offer["agent_id"]["value"]
    infos = [task_info(f"t{index}", agent_id, "true", mem=0.5) for index in range(1000)]
    for info in infos:
        info["resources"] = [scalar("cpus", 0.001)]
    await scheduler.accept(offer, *infos)
    await scheduler.status("t999", "TASK_FINISHED")

    framework = cluster.master.registry.frameworks[scheduler.framework_id]
    async with asyncio.timeout(WAIT_S):
        while framework.tasks:
            await asyncio.sleep(0.01)
    agent = cluster.master.registry.by_host["a0"]
    assert agent.tasks is None
    assert 1000 == len(framework.completed)
