"""Secrets of tasks: no answer of the lab has their text, and their files are for the task alone."""

from __future__ import annotations

import stat
from base64 import b64encode
from pathlib import Path

import orjson
import pytest

from services.lab.mesos.server import Minicluster
from tests.unit.lab.mesos.conftest import Start
from tests.unit.lab.mesos.scheduler import request, sandbox, written

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
PAGES = ("/version", "/minicluster/agents", "/minicluster/images", "/minicluster/sandboxes")
V1_CALLS = ("GET_AGENTS", "GET_FRAMEWORKS", "GET_MAINTENANCE_SCHEDULE", "GET_MAINTENANCE_STATUS", "GET_TASKS")
AGENT_PAGES = ("/state", "/flags", "/monitor/statistics", "/health", "/version")


async def answers(cluster: Minicluster) -> dict[str, str]:
    """Return all answers of master and agents, by request."""
    port = cluster.port
    found = {path: await request(port, "GET", path) for path in PAGES}
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


@pytest.mark.parametrize("simulate", [False, True])
async def test_no_answer_shows_a_secret(start: Start, simulate: bool) -> None:
    """Secrets of running and ended tasks are in no view and in no file."""
    cluster, scheduler = await start(simulate=simulate)
    await scheduler.launch("t", LONG, container=CONTAINER, health_check=CHECK)
    await scheduler.status("t", "TASK_RUNNING")

    live = await answers(cluster)
    assert [] == those_that_show(live)
    assert '"t"' in live["GET_TASKS"]

    await scheduler.call("KILL", {"task_id": {"value": "t"}})
    await scheduler.status("t", "TASK_KILLED")
    assert [] == those_that_show(await answers(cluster))


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
