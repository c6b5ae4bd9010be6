"""Agents that die, stop and return."""

from __future__ import annotations

import pytest

from services.lab.mesos.resources import CPUS, parse
from tests.unit.lab.mesos.conftest import Start
from tests.unit.lab.mesos.scheduler import Scheduler, alive, request, wait_until_gone


async def test_killed_agent_loses_its_tasks_and_returns(start: Start) -> None:
    """The offers are rescinded at once, TASK_UNREACHABLE and FAILURE follow after the timeout; on return the task has
    failed.
    """
    cluster, scheduler = await start(agent_timeout_s=0.3)
    await scheduler.launch("t", "sleep 1000")
    pid = (await scheduler.status("t", "TASK_RUNNING"))["container_status"]["executor_pid"]
    await scheduler.offer()

    status, row = await request(cluster.port, "POST", "/minicluster/agents/a0/stop", {"now": True})
    assert (200, "DISCONNECTED") == (status, row["state"])
    await scheduler.wait(lambda event: event["type"] == "RESCIND")
    await wait_until_gone(pid)
    assert "health check timed out" == (await scheduler.status("t", "TASK_UNREACHABLE"))["message"]
    await scheduler.wait(lambda event: event["type"] == "FAILURE")

    assert 200 == (await request(cluster.port, "POST", "/minicluster/agents/a0/start"))[0]
    failed = await scheduler.status("t", "TASK_FAILED")
    assert failed["reason"] in ("REASON_EXECUTOR_TERMINATED", "REASON_AGENT_REREGISTERED")
    scheduler.events.clear()
    await scheduler.offer()


async def test_stopped_agent_keeps_its_tasks(start: Start) -> None:
    """Processes run on without `now` and are reported as before."""
    cluster, scheduler = await start(agent_timeout_s=0.2)
    await scheduler.launch("t", "sleep 1000")
    pid = (await scheduler.status("t", "TASK_RUNNING"))["container_status"]["executor_pid"]
    await request(cluster.port, "POST", "/minicluster/agents/a0/stop", {})
    await scheduler.status("t", "TASK_UNREACHABLE")
    assert alive(pid)
    scheduler.events.clear()
    await request(cluster.port, "POST", "/minicluster/agents/a0/start")

    status = await scheduler.status("t", "TASK_RUNNING")

    assert "Unreachable agent re-reregistered" == status["message"]


async def test_teardown_ends_tasks_of_an_unreachable_agent(start: Start) -> None:
    """No process of a removed framework lives on behind a partition."""
    cluster, scheduler = await start(agent_timeout_s=0.1)
    await scheduler.launch("t", "sleep 1000")
    pid = (await scheduler.status("t", "TASK_RUNNING"))["container_status"]["executor_pid"]
    await request(cluster.port, "POST", "/minicluster/agents/a0/stop")
    await scheduler.status("t", "TASK_UNREACHABLE")
    await scheduler.call("TEARDOWN")

    await wait_until_gone(pid)
    await request(cluster.port, "POST", "/minicluster/agents/a0/start")
    again = Scheduler(cluster.port)
    await again.subscribe()
    assert 4_000 == parse((await again.offer())["resources"])[CPUS]
    await again.close()


async def test_drills_answer_in_clear_text(start: Start) -> None:
    """The answer about an unknown host names the hosts of the cluster."""
    cluster, _ = await start(hosts=2)

    assert (404, "Unknown agent 'x'; the agents are a0, a1") == await request(
        cluster.port, "POST", "/minicluster/agents/x/stop"
    )
    _, rows = await request(cluster.port, "GET", "/minicluster/agents")
    assert [("a0", "ACTIVE"), ("a1", "ACTIVE")] == [(row["name"], row["state"]) for row in rows["agents"]]
    assert 409 == (await request(cluster.port, "POST", "/minicluster/agents/a0/start"))[0]


@pytest.mark.parametrize(
    ("simulate", "degrade", "restore"),
    [(False, "degrade", "restore"), (True, "degrade", "restore"), (True, "sicken", "heal")],
)
async def test_tasks_that_start_on_a_degraded_host_fail_at_once(
    simulate: bool, degrade: str, restore: str, start: Start
) -> None:
    """A task that starts on a degraded host exits with 1 until the host is restored; running tasks continue. The old
    names of both verbs work."""
    cluster, scheduler = await start(simulate=simulate)
    await scheduler.launch("before", "sleep 1000")
    await scheduler.status("before", "TASK_RUNNING")

    status, row = await request(cluster.port, "POST", f"/minicluster/agents/a0/{degrade}")
    assert (200, True, ["before"]) == (status, row["degraded"], row["tasks"])
    await scheduler.launch("degraded", "sleep 1000")
    failed = await scheduler.status("degraded", "TASK_FAILED")
    assert "Command exited with status 1" == failed["message"]
    assert "reason" not in failed

    _, row = await request(cluster.port, "POST", f"/minicluster/agents/a0/{restore}")
    assert not row["degraded"]
    assert "before" in row["tasks"]
    await scheduler.launch("well", "true")
    await scheduler.status("well", "TASK_FINISHED")
