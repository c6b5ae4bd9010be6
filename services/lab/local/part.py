"""One process of the local cluster: started, watched, restarted when it dies, stopped in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from services import health_file
from services.lab.shared.processes import die_with_parent
from services.log_lines import printable

STOP_TIMEOUT_S = 10.0
RESTART_FIRST_S = 0.3
RESTART_MAX_S = 10.0
STABLE_AFTER_S = 30.0
CHECK_PERIOD_S = 5.0
HUNG_CHECKS = 3
"""Checks in a row that must find a process hung: after the machine has slept, all files are old at first."""
LINE_BYTES_MAX = 1 << 20
"""Limit of one line of output; far fewer bytes of it are shown."""


@dataclass
class Part:
    name: str
    argv: Sequence[str]
    environment: Mapping[str, str | None]  # in addition to the inherited one; None removes a variable
    log_path: Path
    report: Callable[[str, str], None]  # (part, line) for people
    health_path: Path | None = None  # the file in which the process states its health
    check_period_s: float = CHECK_PERIOD_S
    stale_s: float = health_file.STALE_S
    process: asyncio.subprocess.Process | None = None
    is_wanted: bool = False
    starts: int = 0
    _is_log_lost: bool = field(default=False, repr=False)
    _watch: asyncio.Task[None] | None = field(default=None, repr=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    @property
    def whole_environment(self) -> dict[str, str]:
        found = {**os.environ, **self.environment}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def start(self) -> None:
        if self.is_wanted:
            return
        self.is_wanted = True
        await self._spawn()
        self._watch = asyncio.create_task(self._keep_running(), name=f"watch {self.name}")

    async def stop(self, now: bool = False) -> None:
        """Stop, and do not restart; ``now`` is kill -9."""
        self.is_wanted = False
        self._changed.set()
        if self.process is not None and self.is_running:
            self.process.send_signal(signal.SIGKILL if now else signal.SIGTERM)
            try:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self.process.wait()
            except TimeoutError:
                self.report(self.name, f"does not stop within {STOP_TIMEOUT_S:.0f} s: killed")
                self.process.kill()
                await self.process.wait()
        if self._watch is not None:
            await self._watch
            self._watch = None
        self._changed.clear()

    def send(self, number: signal.Signals) -> None:
        if self.process is not None and self.is_running:
            self.process.send_signal(number)

    def kill(self) -> None:
        """Kill with SIGKILL; the watch restarts it, as after a crash."""
        if self.process is not None and self.is_running:
            self.process.kill()

    async def _spawn(self) -> None:
        self.starts += 1
        self.process = await asyncio.create_subprocess_exec(
            *self.argv,
            env=self.whole_environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C stops the supervisor, which stops the parts in order
            preexec_fn=die_with_parent,
            limit=LINE_BYTES_MAX,
        )

    async def _keep_running(self) -> None:
        delay_s = RESTART_FIRST_S
        while self.is_wanted:
            assert self.process is not None
            started_s = time.monotonic()
            checking = asyncio.create_task(self._kill_when_hung(self.process), name=f"health of {self.name}")
            await self._pump(self.process)
            code = await self.process.wait()
            checking.cancel()
            if not self.is_wanted:
                return
            delay_s = RESTART_FIRST_S if time.monotonic() - started_s > STABLE_AFTER_S else delay_s
            how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            self.report(self.name, f"{how}; started again in {delay_s:.1f} s")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._changed.wait()
            delay_s = min(delay_s * 2, RESTART_MAX_S)
            if self.is_wanted:
                await self._spawn()
            if not self.is_wanted and self.is_running:  # a stop came during the start
                self.process.kill()
                await self.process.wait()

    async def _kill_when_hung(self, process: asyncio.subprocess.Process) -> None:
        """Kill the process when its health file says so, or is too old, at several checks in a row. A process that has
        not written it yet is starting.
        """
        hung_count = 0
        while self.health_path is not None and hung_count < HUNG_CHECKS:
            await asyncio.sleep(self.check_period_s)
            health = await asyncio.to_thread(health_file.read, self.health_path, self.stale_s)
            is_hung = health is not None and health.pid == process.pid and bool(health.hung)
            hung_count = hung_count + 1 if is_hung else 0
            if health is not None and hung_count == HUNG_CHECKS:
                self.report(self.name, f"hung: {health.hung}; killed")
                process.kill()

    async def _pump(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while True:
            try:
                line = (await process.stdout.readline()).decode(errors="replace")
            except ValueError:
                line = f"(a line of more than {LINE_BYTES_MAX} bytes is left out)\n"
            if not line:
                return
            shown = printable(line.rstrip())
            self._write(shown)
            self.report(self.name, shown)

    def _write(self, line: str) -> None:
        """Write to the log; a full disk loses lines, and the part runs on."""
        try:
            with self.log_path.open("a", encoding="utf-8") as log:
                log.write(f"{line}\n")
            self._is_log_lost = False
        except OSError as error:
            if not self._is_log_lost:
                self.report(self.name, f"log file {self.log_path} cannot be written: {error.strerror}")
            self._is_log_lost = True
