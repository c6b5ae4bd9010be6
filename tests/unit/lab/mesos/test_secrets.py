"""Secrets of tasks: no answer of the lab has their text, and their files are for the task alone."""

from __future__ import annotations

import asyncio
import stat
from base64 import b64encode
from pathlib import Path
from typing import Any

import orjson
import pytest

from services.lab.mesos.api.redaction import without_secrets
from services.lab.mesos.server import Minicluster
from tests.unit.lab.mesos.conftest import Start
from tests.unit.lab.mesos.scheduler import WAIT_S, Scheduler, request, sandbox, scalar, task_info, written

TEXT = "swordfish-7f3a"
ENCODED = b64encode(TEXT.encode()).decode()
SECRET = {"type": "VALUE", "value": {"data": ENCODED}}
IMAGE = {"type": "DOCKER", "docker": {"name": "app", "config": SECRET}}
CONTAINER = {
    "type": "MESOS",
    "mesos": {"image": IMAGE},
    "volumes": [
        {"mode": "RO", "container_path": "/run/key", "source": {"type": "SECRET", "secret": SECRET}},
        {"mode": "RO", "container_path": "by-name", "source": {"type": "SECRET", "secret": {"type": "REFERENCE"}}},
    ],
}
ENVIRONMENT = {"variables": [{"name": "KEY", "type": "SECRET", "secret": SECRET}, {"name": "PLAIN", "value": "shown"}]}
CHECK = {"type": "COMMAND", "command": {"value": "true", "environment": ENVIRONMENT}, "interval_seconds": 0.05}
LONG = {"value": "sleep 600", "environment": ENVIRONMENT}
V0_PAGES = [
    "/state",
    "/state-summary",
    "/frameworks",
    "/roles",
    "/quota",
    "/weights",
    "/slaves",
    "/flags",
    "/tasks",
    "/version",
    "/maintenance/schedule",
    "/maintenance/status",
    "/minicluster/agents",
    "/minicluster/images",
    "/minicluster/sandboxes",
]
V1_CALLS = [
    "GET_AGENTS",
    "GET_EXECUTORS",
    "GET_FLAGS",
    "GET_FRAMEWORKS",
    "GET_MAINTENANCE_SCHEDULE",
    "GET_MAINTENANCE_STATUS",
    "GET_MASTER",
    "GET_OPERATIONS",
    "GET_QUOTA",
    "GET_ROLES",
    "GET_STATE",
    "GET_TASKS",
    "GET_VERSION",
]
AGENT_PAGES = ("/state", "/flags", "/monitor/statistics", "/health", "/version")


async def answers(cluster: Minicluster) -> dict[str, str]:
    """Return all answers of master and agents, by request."""
    port = cluster.port
    found = {path: await request(port, "GET", path) for path in V0_PAGES}
    found |= {name: await request(port, "POST", "/api/v1", {"type": name}) for name in V1_CALLS}
    for agent in cluster.master.registry.by_host.values():
        prefix = f"/slave({agent.pid.partition('(')[2].partition(')')[0]})" if cluster.settings.simulate else ""
        pages = AGENT_PAGES[1:3] if cluster.settings.simulate else AGENT_PAGES
        found |= {f"{agent.id}{path}": await request(agent.port, "GET", prefix + path) for path in pages}
        for file in cluster.settings.data_dir.glob(f"slaves/{agent.id}/**/*"):
            for verb in ("browse", "read", "download"):
                url = f"/files/{verb}?path={file}&offset=0"
                found[f"{agent.id}{url}"] = await request(agent.port, "GET", url)
    assert {200, 404, 400} >= {status for status, _ in found.values()}, found
    assert {200} == {status for name, (status, _) in found.items() if "/files/" not in name}
    return {name: orjson.dumps(answer).decode() for name, (_, answer) in found.items()}


def those_that_show(found: dict[str, str]) -> list[str]:
    return [name for name, text in found.items() if TEXT in text or ENCODED in text]


async def first_events(port: int) -> str:
    """Return the operator's event stream up to its first heartbeat."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = b'{"type": "SUBSCRIBE"}'
    head = "POST /api/v1 HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    try:
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        async with asyncio.timeout(WAIT_S):
            return (await reader.readuntil(b'"HEARTBEAT"')).decode()
    finally:
        writer.close()


async def launch_group(scheduler: Scheduler) -> None:
    """Launch a task of a group, whose executor and command have the secret, too."""
    offer = await scheduler.offer()
    info = task_info("grouped", offer["agent_id"]["value"], LONG, container=CONTAINER)
    resources = [scalar("cpus", 0.1), scalar("mem", 32), scalar("disk", 1)]
    executor = {"executor_id": {"value": "e"}, "type": "DEFAULT", "resources": resources, "container": CONTAINER}
    executor["framework_id"] = {"value": scheduler.framework_id}
    group = {"executor": executor, "task_group": {"tasks": [info]}}
    operations = [{"type": "LAUNCH_GROUP", "launch_group": group}]
    assert 202 == await scheduler.call("ACCEPT", {"offer_ids": [offer["id"]], "operations": operations})


@pytest.mark.parametrize("simulate", [False, True])
async def test_no_answer_shows_a_secret(start: Start, simulate: bool) -> None:
    """Secrets of running and ended tasks are in no view and in no file."""
    cluster, scheduler = await start(simulate=simulate)
    await scheduler.launch("t", LONG, container=CONTAINER, health_check=CHECK)
    await scheduler.status("t", "TASK_RUNNING")
    await launch_group(scheduler)
    await scheduler.status("grouped", "TASK_RUNNING")

    live = await answers(cluster)
    assert [] == those_that_show(live)
    assert '"/run/key"' in live["/state"]
    assert '"/run/key"' in live["GET_TASKS"]
    assert '"/run/key"' in live["GET_EXECUTORS"]
    assert '"REFERENCE"' in live["/state"]
    events = await first_events(cluster.port)
    assert "grouped" in events
    assert ENCODED not in events

    for task_id in ("t", "grouped"):
        await scheduler.call("KILL", {"task_id": {"value": task_id}})
        await scheduler.status(task_id, "TASK_KILLED")
    async with asyncio.timeout(WAIT_S):
        while '"completed_tasks":[]' in (ended := await answers(cluster))["/state"]:
            await asyncio.sleep(0.01)
    assert [] == those_that_show(ended)
    assert "/run/key" in ended["/state"]


async def test_the_file_of_a_secret_ends_with_its_task(start: Start) -> None:
    """The file is readable by its user alone while the task runs; the rest of the sandbox stays readable."""
    cluster, scheduler = await start()
    info = await scheduler.launch("t", "cat run/key > copy; echo > ready; exec sleep 600", container=CONTAINER)
    await scheduler.status("t", "TASK_RUNNING")
    folder = sandbox(cluster, scheduler, info)
    await written(folder / "ready")
    key = folder / "run" / "key"
    assert (TEXT, 0o600) == (key.read_text(), stat.S_IMODE(key.stat().st_mode))

    await scheduler.call("KILL", {"task_id": {"value": "t"}})
    await scheduler.status("t", "TASK_KILLED")

    assert not key.exists()
    assert TEXT == (folder / "copy").read_text()


async def test_a_minicluster_that_stops_leaves_no_secrets(start: Start) -> None:
    """The tasks of a minicluster and the files of their secrets end with it."""
    cluster, scheduler = await start()
    info = await scheduler.launch("t", LONG, container=CONTAINER)
    await scheduler.status("t", "TASK_RUNNING")
    folder: Path = sandbox(cluster, scheduler, info)
    assert (folder / "run" / "key").exists()
    await cluster.stop()
    assert folder.exists()
    assert not (folder / "run" / "key").exists()


def test_what_is_no_secret_stays() -> None:
    """Values of variables, labels and parameters are no secrets; the message itself is left as it is."""
    message: dict[str, Any] = {
        "a": [{"key": "k", "value": "v"}, {"value": {"data": "x"}, "type": "VALUE"}],
        "value": {},
    }
    assert {"a": [{"key": "k", "value": "v"}, {"type": "VALUE"}], "value": {}} == without_secrets(message)
    assert {"data": "x"} == message["a"][1]["value"]
