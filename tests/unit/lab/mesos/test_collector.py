"""Sandboxes of ended runs are removed after a while, and the oldest first when they take too much."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from services.lab.mesos.agents.sandbox_collector import Collector
from services.lab.shared.clock import Clock
from tests.unit.lab.mesos.conftest import Start
from tests.unit.lab.mesos.scheduler import WAIT_S, request, sandbox

PATH = "/minicluster/sandboxes"
MB = 1024 * 1024
DAY_S = 86_400.0


def run_of(data_dir: Path, executor: str, size: int = 0, age_s: float = 0.0) -> Path:
    """Create the folder of a run that ended at the given age."""
    folder = data_dir / "slaves" / "S0" / "frameworks" / "F" / "executors" / executor / "runs" / "container"
    folder.mkdir(parents=True)
    (folder / "stdout").write_bytes(b"x" * size)
    (folder.parent / "latest").symlink_to(folder, target_is_directory=True)
    os.utime(folder, (time.time() - age_s,) * 2)
    return folder


async def until_gone(path: Path) -> None:
    async with asyncio.timeout(WAIT_S):
        while path.exists() or path.is_symlink():
            await asyncio.sleep(0.01)


async def test_a_sandbox_goes_some_time_after_the_end_of_its_run(start: Start) -> None:
    """The sandbox is removed with the folder of its executor; the sandbox of a running task stays."""
    cluster, scheduler = await start(time_scale=10.0, sandbox_retention_s=5.0)
    runs = await scheduler.launch("runs", "exec sleep 1000")
    ended = await scheduler.launch("ended", "true")
    await scheduler.status("runs", "TASK_RUNNING")
    await scheduler.status("ended", "TASK_FINISHED")

    await until_gone(sandbox(cluster, scheduler, ended).parent.parent)

    assert (sandbox(cluster, scheduler, runs) / "stdout").exists()


async def test_the_oldest_go_first_when_all_take_too_much(tmp_path: Path) -> None:
    """The oldest sandboxes are removed first, as many as needed."""
    collector = Collector(Clock(), DAY_S, 5 * MB)
    collector.start(tmp_path / "of no predecessor")
    first, second, third = (run_of(tmp_path, name, 2 * MB) for name in ("first", "second", "third"))

    for folder in (first, second, third):
        collector.keep(folder)
    await until_gone(first.parent.parent)
    await collector.close()

    assert [True, True] == [folder.exists() for folder in (second, third)]


async def test_what_a_predecessor_left_counts_from_its_end(tmp_path: Path) -> None:
    """Sandboxes of an earlier minicluster, which can no longer remove them, age from the end of their run."""
    old, young = run_of(tmp_path, "old", age_s=2 * DAY_S), run_of(tmp_path, "young", age_s=DAY_S / 2)
    collector = Collector(Clock(), DAY_S, MB)

    collector.start(tmp_path)
    await until_gone(old.parent.parent)
    await collector.close()

    assert young.exists()


async def test_another_run_of_the_same_executor_stays(tmp_path: Path) -> None:
    """The collector removes the folder of the given run alone."""
    ended = run_of(tmp_path, "executor")
    other = ended.parent / "another container"
    other.mkdir()
    (ended.parent / "latest").unlink()
    (ended.parent / "latest").symlink_to(other, target_is_directory=True)
    collector = Collector(Clock(), 0.0, MB)

    collector.start(tmp_path / "of no predecessor")
    collector.keep(ended)
    await until_gone(ended)
    await collector.close()

    assert other.samefile(ended.parent / "latest")


async def test_sandboxes_go_by_their_executors(start: Start) -> None:
    """Sandboxes of ended runs are removed by the prefix of their executor's id; others stay, and a malformed call
    removes nothing.
    """
    cluster, scheduler = await start()
    by_job = f"{PATH}?cut=2"
    ours = {name: await scheduler.launch(name, "true") for name in ("job-a-0-1", "job-a-1-1", "job-b-0-1")}
    for name in ours:
        await scheduler.status(name, "TASK_FINISHED")
    async with asyncio.timeout(WAIT_S):
        while (await request(cluster.port, "GET", by_job))[1] != {"executors": {"job-a": 2, "job-b": 1}}:
            await asyncio.sleep(0.01)

    wrongs: tuple[Any, ...] = ({}, {"executors": "job-b"}, {"executors": [7]}, [], b"{")
    for wrong in wrongs:
        assert 400 == (await request(cluster.port, "POST", PATH, wrong))[0]
    assert 400 == (await request(cluster.port, "GET", f"{PATH}?cut=11"))[0]
    gone = {"executors": ["job-a", "another"]}
    assert (200, {"removed": 0}) == await request(cluster.port, "POST", PATH, gone)
    assert (200, {"removed": 2}) == await request(cluster.port, "POST", by_job, gone)

    for name in ("job-a-0-1", "job-a-1-1"):
        await until_gone(sandbox(cluster, scheduler, ours[name]).parent.parent)
    assert sandbox(cluster, scheduler, ours["job-b-0-1"]).exists()
    assert (200, {"executors": {"job-b-0-1": 1}}) == await request(cluster.port, "GET", PATH)
