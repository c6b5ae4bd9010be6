"""Usage limits above which the container of a task is destroyed."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from services.lab.mesos.agents.usage_monitor import limit_fault
from services.lab.mesos.resources import DISK, MEM, THOUSAND, Resources
from tests.unit.lab.mesos.conftest import Start
from tests.unit.lab.mesos.scheduler import WAIT_S, sandbox, scalar, written

_MB = 1024 * 1024


@pytest.mark.parametrize(
    ("asked_mb", "limit_mb"),
    [
        pytest.param(1, 64, id="no container is limited to less than 32 MB, and the executor has 32"),
        pytest.param(32, 64, id="the least"),
        pytest.param(100, 132, id="what the task asks for, and the executor's"),
    ],
)
def test_a_memory_limit_has_a_floor_and_a_margin_for_the_executor(asked_mb: int, limit_mb: int) -> None:
    """The limit is computed as in Mesos's isolator."""
    allowed: Resources = {MEM: asked_mb * THOUSAND}

    assert None is limit_fault(allowed, limit_mb * _MB, 0)
    assert (
        "REASON_CONTAINER_LIMITATION_MEMORY",
        f"Memory limit exceeded: Requested: {limit_mb}MB Maximum Used: {limit_mb + 1}MB",
    ) == limit_fault(allowed, limit_mb * _MB + 1, 0)


def test_a_task_may_have_another_limit_than_it_takes() -> None:
    """The limit of a task, as ``limits`` of Mesos 1.10, replaces its allocation in the check."""
    taken: Resources = {MEM: 50 * THOUSAND}
    limit = 100 * THOUSAND

    assert None is not limit_fault(taken, 120 * _MB, 0)
    assert None is limit_fault(taken, 120 * _MB, 0, limit)
    assert None is not limit_fault(taken, 133 * _MB, 0, limit)


def test_a_disk_quota_is_what_was_asked_for() -> None:
    """Disk has no floor."""
    assert None is limit_fault({DISK: 5 * THOUSAND}, 0, 5 * _MB)
    assert ("REASON_CONTAINER_LIMITATION_DISK", "Disk usage (6MB) exceeds quota (5MB)") == limit_fault(
        {DISK: 5 * THOUSAND}, 0, 5 * _MB + 1
    )


async def test_too_much_memory_fails_the_task(start: Start) -> None:
    """The status has the reason and the numbers of a container limitation."""
    _, scheduler = await start(usage_interval_s=0.05)
    await scheduler.launch("t", f'exec {sys.executable} -c "x = bytearray(150_000_000); input()" < /dev/zero', mem=64)

    status = await scheduler.status("t", "TASK_FAILED")

    assert ("SOURCE_AGENT", "REASON_CONTAINER_LIMITATION_MEMORY") == (status["source"], status["reason"])
    assert status["message"].startswith("Memory limit exceeded: Requested: 96MB Maximum Used: ")


_WRITES_4_MB = "dd if=/dev/zero of=big bs=1M count=4 2> /dev/null; echo > written; exec sleep 1000"


async def test_an_enforced_disk_quota_fails_the_task(start: Start) -> None:
    """A sandbox above its disk fails its task if the option is set."""
    _, scheduler = await start(usage_interval_s=0.02, enforce_disk_quota=True)
    await scheduler.launch("t", _WRITES_4_MB, resources=[scalar("cpus", 0.1), scalar("mem", 32), scalar("disk", 1)])

    status = await scheduler.status("t", "TASK_FAILED")

    assert "REASON_CONTAINER_LIMITATION_DISK" == status["reason"]


async def test_a_disk_quota_is_not_enforced_unless_asked_for(start: Start) -> None:
    """A task above its disk runs on after two more checks, as with a real agent's defaults."""
    cluster, scheduler = await start(usage_interval_s=0.02)
    resources = [scalar("cpus", 0.1), scalar("mem", 32), scalar("disk", 1)]
    info = await scheduler.launch("t", _WRITES_4_MB, resources=resources)
    await scheduler.status("t", "TASK_RUNNING")
    await written(sandbox(cluster, scheduler, info) / "written")
    runner: Any = cluster.master.registry.frameworks[scheduler.framework_id].tasks["t"].runner
    async with asyncio.timeout(WAIT_S):
        for _ in range(2):
            before = runner.last_usage
            while runner.last_usage is before:
                await asyncio.sleep(0.01)

    await scheduler.call("KILL", {"task_id": {"value": "t"}})

    assert "TASK_KILLED" == (await scheduler.status("t", "TASK_FAILED", "TASK_KILLED"))["state"]
