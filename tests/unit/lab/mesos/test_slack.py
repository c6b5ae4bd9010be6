"""Slack: estimates of real and simulated tasks, and their effect on offers."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any, cast

from services.lab.mesos.agents.usage_monitor import CpuCount
from services.lab.mesos.resources import CPUS, REVOCABLE_CPUS, parse
from services.lab.mesos.server import Minicluster
from tests.unit.lab.mesos.conftest import Start
from tests.unit.lab.mesos.scheduler import CAPABILITIES, Scheduler, request, scalar, task_info

REVOCABLE = (*CAPABILITIES, "REVOCABLE_RESOURCES")
FAST: dict[str, Any] = {"capabilities": REVOCABLE, "usage_interval_s": 0.05, "slack_interval_s": 0.1}
RECORDINGS = Path(__file__).parents[3] / "conformance" / "minicluster" / "recordings"
RECORDING = RECORDINGS / "13_operator_api_and_events.jsonl.gz"


def test_what_ended_processes_used_stays_counted() -> None:
    """A child whose parent does not wait for it leaves /proc; its seconds stay counted."""
    count = CpuCount()

    assert [count.add(now) for now in ((1.0, 0.5), (3.0, 0.5), (0.5, 0.5), (1.0, 0.75))] == [
        (1.0, 0.5),
        (3.0, 0.5),
        (3.0, 0.5),
        (3.5, 0.75),
    ]


def revocable(cluster: Minicluster, host: str = "a0") -> int:
    amount = cluster.master.registry.by_host[host].total.get(REVOCABLE_CPUS, 0)
    assert isinstance(amount, int)
    return amount


async def until(cluster: Minicluster, low: int, high: int) -> None:
    async with asyncio.timeout(120):
        while not low <= revocable(cluster) <= high:
            await asyncio.sleep(0.02)


async def launch(scheduler: Scheduler, task_id: str, command: Any, cpus: float, is_revocable: bool = False) -> None:
    """Launch a task on the first offer with this many CPUs, and wait until it runs."""
    kind = REVOCABLE_CPUS if is_revocable else CPUS
    amount = 0
    while amount < cpus * 1000:
        offer = await scheduler.offer()
        amount = cast(int, parse(offer["resources"]).get(kind, 0))
    info = task_info(task_id, offer["agent_id"]["value"], command)
    info["resources"] = [{**scalar("cpus", cpus), **({"revocable": {}} if is_revocable else {})}]
    await scheduler.accept(offer, info)
    await scheduler.status(task_id, "TASK_RUNNING")


async def test_an_idle_process_leaves_slack_and_a_busy_one_none(start: Start, tmp_path: Any) -> None:
    """Real processes are measured: nine tenths of an idle task's allocation are offered, until the task is busy."""
    cluster, scheduler = await start(**FAST)
    busy = tmp_path / "busy"
    os.mkfifo(busy)
    wait = f"open({str(busy)!r}).read()\nwhile True: pass"  # the task waits without using anything
    await launch(scheduler, "t", f"{shlex.quote(sys.executable)} -S -c {shlex.quote(wait)}", cpus=0.1)
    await until(cluster, 90, 90)
    await scheduler.wait(lambda event: event["type"] == "OFFERS" and _count_offered(event) == 90)

    busy.write_text("work")

    await until(cluster, 0, 0)
    await scheduler.wait(lambda event: event["type"] == "RESCIND")
    agent = cluster.master.registry.by_host["a0"]
    _, rows = await request(agent.port, "GET", "/slave(1)/monitor/statistics")
    (row,) = rows
    assert (row["executor_id"], row["statistics"]["cpus_soft_limit"]) == ("t", 0.1)
    assert row["statistics"]["cpus_user_time_secs"] > 0
    assert row["statistics"]["mem_rss_bytes"] > 1_000_000


def _count_offered(event: dict[str, Any]) -> int:
    """Revocable cpu in all offers of an event."""
    amounts = (parse(offer["resources"]).get(REVOCABLE_CPUS, 0) for offer in event["offers"]["offers"])
    return sum(amount for amount in amounts if isinstance(amount, int))


def make_labels(share: float) -> dict[str, Any]:
    variables = [{"name": "SIMULATE_SHARE", "value": str(share)}]
    return {"value": "sleep 1000", "environment": {"variables": variables}}


async def test_statistics_resemble_those_of_a_real_agent(start: Start) -> None:
    """The keys equal the recorded ones of a real agent."""
    cluster, scheduler = await start(**FAST)
    await launch(scheduler, "t", "sleep 1000", cpus=0.1)
    port = cluster.master.registry.by_host["a0"].port
    rows: list[Any] = []
    async with asyncio.timeout(120):
        while not rows:
            _, rows = await request(port, "GET", "/monitor/statistics")

    with gzip.open(RECORDING, "rt") as lines:
        calls = (json.loads(line) for line in lines)
        recorded = next(call["response"] for call in calls if call.get("label") == "agent /monitor/statistics")

    assert keys(rows[0]) == keys(recorded[0])


def keys(value: Any) -> Any:
    return {name: keys(each) for name, each in value.items()} if isinstance(value, dict) else type(value).__name__


async def test_simulated_tasks_use_the_share_they_declare(start: Start) -> None:
    """A task that uses a fifth of 2 cpus leaves 1.4 to revocable ones, which the statistics of the agent confirm."""
    cluster, scheduler = await start(simulate=True, **FAST)
    await launch(scheduler, "t", make_labels(0.2), cpus=2)

    await until(cluster, 1400, 1400)

    _, answer = await request(cluster.port, "POST", "/api/v1", {"type": "GET_AGENTS"})
    (agent,) = answer["get_agents"]["agents"]
    assert parse(agent["total_resources"])[REVOCABLE_CPUS] == 1400
    assert REVOCABLE_CPUS not in parse(agent["agent_info"]["resources"])
    _, rows = await request(cluster.port, "GET", "/slave(1)/monitor/statistics")
    assert [row["statistics"]["mem_rss_bytes"] for row in rows] == [0]
    assert (await request(cluster.port, "GET", "/slave(2)/monitor/statistics"))[0] == 404


async def test_what_is_held_beyond_the_slack_stays(start: Start) -> None:
    """Slack that shrinks below the allocation of revocable tasks takes offers away, not tasks; resources that they free
    repay the difference.
    """
    cluster, scheduler = await start(simulate=True, slack_interval_s=None, capabilities=REVOCABLE)
    offers, agent = cluster.master.offers, cluster.master.registry.by_host["a0"]
    offers.set_revocable(agent, 2000)
    for task_id in ("x", "y"):
        await launch(scheduler, task_id, make_labels(1), cpus=0.8, is_revocable=True)

    offers.set_revocable(agent, 1000)
    assert (agent.owed, agent.free.get(REVOCABLE_CPUS)) == (600, None)
    offers.set_revocable(agent, 1200)
    assert agent.owed == 400
    await scheduler.call("KILL", {"task_id": {"value": "x"}})
    await scheduler.status("x", "TASK_KILLED")

    event = await scheduler.wait(lambda event: event["type"] == "OFFERS" and _count_offered(event) == 400)
    assert (agent.owed, CPUS in parse(event["offers"]["offers"][0]["resources"])) == (0, False)
    offers.set_revocable(agent, 0)
    assert (agent.owed, revocable(cluster)) == (800, 0)
    await scheduler.call("KILL", {"task_id": {"value": "y"}})
    await scheduler.status("y", "TASK_KILLED")
    assert (agent.owed, REVOCABLE_CPUS in agent.free) == (0, False)


async def test_an_agent_returns_to_less_slack(start: Start) -> None:
    """Revocable tasks that outlive a partition keep their allocation, even if the slack shrank meanwhile."""
    cluster, scheduler = await start(simulate=True, slack_interval_s=None, capabilities=REVOCABLE, agent_timeout_s=0.1)
    offers, agent = cluster.master.offers, cluster.master.registry.by_host["a0"]
    offers.set_revocable(agent, 1000)
    await launch(scheduler, "x", make_labels(1), cpus=0.8, is_revocable=True)
    await request(cluster.port, "POST", "/minicluster/agents/a0/stop", {})
    await scheduler.status("x", "TASK_UNREACHABLE")
    offers.set_revocable(agent, 300)
    scheduler.events.clear()

    await request(cluster.port, "POST", "/minicluster/agents/a0/start")
    await scheduler.status("x", "TASK_RUNNING")

    assert (agent.owed, agent.total[REVOCABLE_CPUS]) == (500, 300)


async def test_a_fixed_amount_is_no_estimate(start: Start) -> None:
    """A host that says how many revocable cpus it has offers them whatever is measured."""
    cluster, scheduler = await start(simulate=True, revocable_cpus=2, **FAST)
    await launch(scheduler, "t", make_labels(0.1), cpus=4)

    await launch(scheduler, "r", make_labels(1), cpus=2, is_revocable=True)

    assert revocable(cluster) == 2000
