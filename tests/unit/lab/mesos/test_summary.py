"""Pages of dashboards that the recordings of a real Mesos do not cover."""

from __future__ import annotations

from typing import Any

from tests.unit.lab.mesos.conftest import Start
from tests.unit.lab.mesos.scheduler import request, scalar


async def page(port: int, path: str) -> Any:
    status, body = await request(port, "GET", path)
    assert 200 == status
    return body


async def test_what_a_role_holds_counts_for_the_roles_above_it(start: Start) -> None:
    """The allocation of a role counts for its parent roles, of which no framework is a member."""
    cluster, scheduler = await start(roles=["eng/maps"])
    await scheduler.launch("t", "exec sleep 1000", resources=[scalar("cpus", 0.5), scalar("mem", 64)])
    await scheduler.status("t", "TASK_RUNNING")

    roles = (await page(cluster.port, "/roles"))["roles"]

    assert ["eng", "eng/maps"] == [role["name"] for role in roles]
    assert [{"cpus": 0.5, "mem": 64.0}] * 2 == [role["allocated"] for role in roles]
    assert [[], [scheduler.framework_id]] == [role["frameworks"] for role in roles]


async def test_the_summary_counts_tasks_that_have_ended(start: Start) -> None:
    """Ended tasks are counted by state, for their framework and for their agent."""
    cluster, scheduler = await start()
    await scheduler.launch("t", "exit 3")
    status = await scheduler.status("t", "TASK_FAILED")

    summary = await page(cluster.port, "/state-summary")

    agent = next(row for row in summary["slaves"] if row["id"] == status["agent_id"]["value"])
    framework = summary["frameworks"][0]
    assert [(1, 0), (1, 0)] == [(row["TASK_FAILED"], row["TASK_RUNNING"]) for row in (agent, framework)]
    assert ([framework["id"]], [agent["id"]]) == (agent["framework_ids"], framework["slave_ids"])
