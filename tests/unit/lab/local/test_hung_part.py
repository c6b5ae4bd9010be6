"""A part of `peloton up` that hangs is killed and started again, with a line that says why."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from services.health_file import read
from services.lab.local.part import Part

pytestmark = pytest.mark.slow

BOUND_S = 60.0 * 5


async def next_line(lines: asyncio.Queue[str], beginning: str) -> str:
    """Return the next line that begins so."""
    async with asyncio.timeout(BOUND_S):
        while not (line := await lines.get()).startswith(beginning):
            pass
    return line


async def run_role_web(tmp_path: Path, lines: asyncio.Queue[str]) -> Part:
    """Start a real role, which needs no other process, under a supervisor that is less patient."""
    path = tmp_path / "health" / "web.json"
    environment = {"PELOTON_HEALTH_FILE": str(path), "PELOTON_WEB_PORT": "0"}
    argv = [sys.executable, "-m", "cli.main", "serve", "web"]
    part = Part("web", argv, environment, tmp_path / "log", lambda _, line: lines.put_nowait(line), path)
    part.check_period_s, part.stale_s = 1.0, 10.0
    await part.start()
    await wait_for_health(part)
    return part


async def wait_for_health(part: Part) -> None:
    """Return when the running process has stated its health."""
    assert part.health_path is not None
    async with asyncio.timeout(BOUND_S):
        while (health := read(part.health_path)) is None or part.process is None or health.pid != part.process.pid:
            await asyncio.sleep(0.05)


async def test_a_stopped_role_is_restarted(tmp_path: Path) -> None:
    """A role whose process is stopped is killed and started again, and then states its health again."""
    lines: asyncio.Queue[str] = asyncio.Queue()
    part = await run_role_web(tmp_path, lines)
    try:
        part.send(signal.SIGSTOP)
        why = await next_line(lines, "hung")
        assert why.startswith("hung: no heartbeat for 1")
        assert why.endswith(" s (bound 10 s); killed")
        assert (await next_line(lines, "killed by")).startswith("killed by SIGKILL; started again")
        async with asyncio.timeout(BOUND_S):
            while part.starts < 2:
                await asyncio.sleep(0.05)
        await wait_for_health(part)
    finally:
        await part.stop(now=True)


async def test_a_role_that_waits_for_its_dependencies_is_left_alone(tmp_path: Path) -> None:
    """A process that says what it waits for is not hung; one that says what hangs is killed."""
    lines: asyncio.Queue[str] = asyncio.Queue()
    path = tmp_path / "health.json"
    script = """
import os, sys, time
from pathlib import Path
from services.health_file import Health, write
path, pid = Path(sys.argv[1]), os.getpid()
for count in range(300):
    write(path, Health(pid, "event loop has not ticked" if count > 40 else "", "Temporal does not answer"))
    if count == 40: print("was left alone", flush=True)
    time.sleep(0.1)
"""
    argv = [sys.executable, "-c", script, str(path)]
    part = Part("p", argv, {}, tmp_path / "log", lambda _, line: lines.put_nowait(line), path, 0.2, 60.0)
    await part.start()
    try:
        await next_line(lines, "was left alone")
        assert await next_line(lines, "hung") == "hung: event loop has not ticked; killed"
    finally:
        await part.stop(now=True)
