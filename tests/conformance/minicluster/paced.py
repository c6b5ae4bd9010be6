"""The time of a replay: it passes when the cluster, its client and all processes of tasks wait, and at no other moment.

A second of a recording costs what happens in it. How fast or how busy the machine is decides nothing.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from services.lab.shared.clock import Clock
from services.lab.shared.processes import Processes
from tests.unit.virtual_time import VirtualTimeLoop

SLEEP = re.compile(r"\bsleep (\d+(?:\.\d+)?)")
INSTANT_S = 1e-4
"""Seconds of virtual time after which everything that was under way has arrived."""
IDLE = "read _"
"""The command of an idle process (``Processes.spawn_idle``)."""
STUCK_S = 120.0
"""Real seconds after which a process that neither sleeps nor ends is a failure of the replay."""


class ReplayLoop(VirtualTimeLoop):
    """A loop whose clock also stands still while a process of a task is at work: between its start and a sleep, between
    a signal or the end of a sleep and its exit."""

    def __init__(self) -> None:
        super().__init__()
        self.processes_work: Callable[[], bool] = lambda: False

    def waits_for_threads(self) -> bool:
        return super().waits_for_threads() or self.processes_work()


class LoopClock(Clock):
    """A cluster's clock that is the loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._time, self._began_s = loop.time, loop.time()

    def now(self) -> float:
        return self._time() - self._began_s

    async def advance_to(self, due: float) -> None:
        """Wait until the clock has reached ``due``, and until all that was sent has arrived."""
        await asyncio.sleep(max(0.0, due - self.now()) + INSTANT_S)


class Sleeps:
    """Tasks sleep in virtual time: each sleep of a command asks us by TCP, and we answer when it is over."""

    def __init__(self, loop: ReplayLoop, clock: Clock, processes: Processes) -> None:
        self._loop, self._clock, self._processes = loop, clock, processes
        self._asleep: dict[asyncio.StreamWriter, int] = {}
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None
        self._port = 0
        self._at_work_since_s: float | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._sleep, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]
        self._loop.processes_work = self._any_works

    async def stop(self) -> None:
        """End all open sleeps: children that ended processes have left behind end with them."""
        self._loop.processes_work = lambda: False
        if self._server is not None:
            self._server.close()
            while self._open:
                for writer in self._open.values():
                    writer.close()
                await asyncio.wait(self._open)
            await self._server.wait_closed()

    def command(self, command: str) -> str:
        """The same command, whose sleeps are ours."""
        ask = f"exec 3<>/dev/tcp/127.0.0.1/{self._port} && echo $$ {{}} >&3 && read -r _ <&3"
        return SLEEP.sub(lambda found: f"bash -c '{ask.format(found.group(1))}'", command)

    async def _sleep(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        try:
            if asked := (await reader.readline()).split():
                self._asleep[writer] = int(asked[0])
                timer = self._clock.call_later(float(asked[1]), self._wake, writer)
                with suppress(ConnectionError):
                    await reader.read()  # until it ends
                timer.cancel()
        finally:
            self._asleep.pop(writer, None)
            writer.close()
            del self._open[task]

    def _wake(self, writer: asyncio.StreamWriter) -> None:
        del self._asleep[writer]
        writer.write(b"\n")

    def _any_works(self) -> bool:
        """Return whether a process is neither asleep nor idle. Raises RuntimeError when one has been at work for too
        long."""
        at_work = self._at_work()
        if at_work is None:
            self._at_work_since_s = None
            return False
        now_s = time.monotonic()
        self._at_work_since_s = self._at_work_since_s or now_s
        if now_s - self._at_work_since_s > STUCK_S:
            raise RuntimeError(f"process {at_work} neither sleeps nor ends")
        return True

    def _at_work(self) -> int | None:
        asleep = set()
        for pid in self._asleep.values():
            if not _rests(pid):
                return pid
            asleep.add(os.getsid(pid))
        for pid, (process, *_) in self._processes._running.items():
            is_idle = IDLE in str(process.args)
            if not (_rests(pid) and (is_idle or pid in asleep)):
                return pid
        return None


def _rests(pid: int) -> bool:
    """Return whether the process sleeps, with no signal on the way to it."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    rows = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    return rows["State"].startswith("S") and 0 == int(rows["SigPnd"], 16) | int(rows["ShdPnd"], 16)
