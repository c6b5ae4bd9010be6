"""A process states its health in a file: which of its loops hangs, and what its roles wait for."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.errors import Unavailable
from services import health_file, ticks
from services.election.lease_row import LeaderElection
from services.health import PROBE_PERIOD_S, ProcessHealth, heartbeat, probing
from services.health_file import Health
from services.healthcheck import main
from services.leading import Leading, lead_when_elected
from tests.unit.lease_table import Table


class Clock:
    def __init__(self) -> None:
        self.now_s = time.monotonic()

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def blocked_loop() -> Iterator[str]:
    """A loop in a thread whose round does not end before the test does."""
    release, has_begun = threading.Event(), threading.Event()

    def run() -> None:
        with ticks.ticking("blocked loop") as loop:
            loop.tick()
            has_begun.set()
            release.wait()

    thread = threading.Thread(target=run)
    thread.start()
    has_begun.wait()
    yield "blocked loop"
    release.set()
    thread.join()


def test_a_blocked_loop_makes_its_process_hung(blocked_loop: str) -> None:
    """A loop whose round has no end is named once its bound has passed; time without storage does not count."""
    clock = Clock()
    health = ProcessHealth(["api"], clock)

    def pass_time(seconds: float, is_answer: bool) -> str:
        for _ in range(int(seconds / PROBE_PERIOD_S)):
            clock.now_s += PROBE_PERIOD_S
            health.note_answer(is_answer)
        return health.evaluate().hung

    assert pass_time(200.0, True) == ""
    assert pass_time(3_600.0, False) == ""
    assert pass_time(200.0, True) == ""
    assert pass_time(200.0, True).startswith(f"{blocked_loop} has not ticked for ")


def test_a_process_that_only_waits_for_storage_is_live(blocked_loop: str) -> None:
    """A loop that is late while storage does not answer, or does not even fail, is not hung; the role is not ready."""
    clock = Clock()
    health = ProcessHealth(["resmgr"], clock)
    health.note("resmgr", "")
    health.note_answer(True)
    clock.now_s += 3_600.0

    assert health.evaluate() == Health(os.getpid(), "", "storage does not answer")


def test_a_loop_that_an_error_ended_stays_a_fault() -> None:
    """A loop that ends in order is forgotten, one that ends with an error is reported."""
    with ticks.ticking("ends in order"):
        pass
    with pytest.raises(KeyError), ticks.ticking("ends with an error"):
        raise KeyError("x")
    try:
        assert [(one.name, one.error) for one in ticks.list_loops() if one.name.startswith("ends")] == [
            ("ends with an error", "KeyError('x')")
        ]
    finally:
        ticks._loops.clear()


async def test_the_heartbeat_writes_and_probes(tmp_path: Path) -> None:
    """The file holds the state of the roles while the process runs, and is removed at its end."""
    path, health, answers = tmp_path / "new" / "health.json", ProcessHealth(["api"]), [Unavailable("away")]

    def ask() -> None:
        if answers:
            raise answers.pop()

    async with heartbeat(health, path), probing(health, ask):
        health.note("api", "")
        while answers or health_file.read(path) != Health(os.getpid(), "", "storage does not answer"):
            await asyncio.sleep(0.01)
        assert "event loop" in {loop.name for loop in ticks.list_loops()}

    assert not path.exists()
    assert answers == []


def test_the_check_of_containers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A waiting process is live and not ready; a process without a file is neither; a stale file is a hang."""
    path = tmp_path / "health.json"
    missing = [main("live", str(path)), main("ready", str(path)), main("restart", str(path))]
    health_file.write(path, Health(1, "", "worker: Temporal does not answer"))
    waiting = [main("live", str(path)), main("ready", str(path)), main("restart", str(path))]
    health_file.write(path, Health(1))
    ready = [main("live", str(path)), main("ready", str(path)), main("restart", str(path))]
    os.utime(path, (time.time() - 60, time.time() - 60))
    capsys.readouterr()

    assert (missing, waiting, ready) == ([1, 1, 1], [0, 1, 1], [0, 0, 0])
    assert main("live", str(path)) == 1
    assert capsys.readouterr().err.startswith("no heartbeat for 6")


def test_the_check_kills_a_hung_process_for_engines_that_do_not(tmp_path: Path) -> None:
    """``restart`` kills a process that is hung, so that the engine restarts its container."""
    path = tmp_path / "health.json"
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        health_file.write(path, Health(process.pid, "event loop has not ticked for 90 s (bound 60 s)"))

        assert main("restart", str(path)) == 1
        assert process.wait() == -9


async def test_a_standby_is_ready_and_a_leader_when_it_serves() -> None:
    """A role waits for nothing while it stands by and while it leads; in between it is not ready."""
    leases, stop, noted = Table(), asyncio.Event(), list[str]()
    first, second = (LeaderElection(leases, "resmgr", 0.2) for _ in range(2))
    await first.win()

    async def end() -> None: ...

    async def lead() -> Leading:
        stop.set()
        return Leading(1, end)

    standing = asyncio.create_task(lead_when_elected(second, "resmgr", "h", stop, lead, noted.append))
    while not noted:
        await asyncio.sleep(0)
    assert noted == [""]
    await first.resign()
    await standing

    assert noted == ["", "it has the lease and does not serve yet", ""]
