"""Checks of a real task: health checks by COMMAND or HTTP, and general checks by COMMAND."""

from __future__ import annotations

import asyncio
from typing import Protocol

from services.lab.mesos.model import Task
from services.lab.mesos.resources import Json
from services.lab.shared.clock import Clock
from services.lab.shared.probing import http_status, run
from services.lab.shared.processes import Command, Processes

_DELAY_S = 15.0
_INTERVAL_S = 10.0
_TIMEOUT_S = 20.0
_GRACE_S = 10.0
_FAILURES = 3
_HOST = "127.0.0.1"


class Checked(Protocol):
    """Interface of a container to its checks."""

    task: Task
    killing: bool
    ended: bool

    def command(self, command: Json) -> Command:
        """Convert a CommandInfo to a command that runs in the container of the task."""
        ...

    def report_running(self, reason: str, healthy: bool | None = None) -> None:
        """Send another update of the running task."""
        ...

    def unhealthy(self) -> None:
        """Kill the task, whose health check failed too often."""
        ...


class Checks:
    """Runner of a container's checks, as asyncio tasks."""

    def __init__(self, container: Checked, clock: Clock, processes: Processes) -> None:
        self._container = container
        self._clock = clock
        self._processes = processes
        info = container.task.info
        self._jobs: list[asyncio.Task[None]] = []
        if "health_check" in info:
            self._jobs.append(asyncio.create_task(self._health(info["health_check"])))
        if "check" in info:
            self._jobs.append(asyncio.create_task(self._general(info["check"])))

    def stop(self) -> None:
        for job in self._jobs:
            if job is not asyncio.current_task():
                job.cancel()

    async def _health(self, check: Json) -> None:
        """Run the health check: the first result is reported even if it is bad; at the limit the task is killed."""
        container, clock = self._container, self._clock
        limit = check.get("consecutive_failures", _FAILURES)
        grace_end = clock.now() + check.get("grace_period_seconds", _GRACE_S)
        healthy: bool | None = None
        failures = 0
        await self._clock.sleep(check.get("delay_seconds", _DELAY_S))
        while not container.ended:
            code = await self._once(check)
            if code is not None and (200 <= code < 400 if check["type"] == "HTTP" else code == 0):
                failures = 0
                if healthy is not True:
                    healthy = True
                    self._report(True)
            elif healthy is not None or clock.now() >= grace_end:
                failures += 1
                healthy = False
                if container.killing:
                    return
                self._report(False)
                if failures >= limit:
                    container.unhealthy()
                    return
            await self._clock.sleep(check.get("interval_seconds", _INTERVAL_S))

    def _report(self, healthy: bool) -> None:
        self._container.report_running("REASON_TASK_HEALTH_CHECK_STATUS_UPDATED", healthy)

    async def _general(self, check: Json) -> None:
        """Run the general check: each change of the exit code is an update, and the task is never killed."""
        container = self._container
        await self._clock.sleep(check.get("delay_seconds", _DELAY_S))
        last: Json | None = None
        while not container.ended:
            code = await self._once(check)
            status = {"type": "COMMAND", "command": {} if code is None else {"exit_code": code}}
            if status != last and not container.ended:
                last = status
                container.task.check_status = status
                container.report_running("REASON_TASK_CHECK_STATUS_UPDATED")
            await self._clock.sleep(check.get("interval_seconds", _INTERVAL_S))

    async def _once(self, check: Json) -> int | None:
        """Return the exit code or HTTP status; None on a timeout or without an answer."""
        try:
            async with asyncio.timeout(check.get("timeout_seconds", _TIMEOUT_S) or None):
                if check["type"] == "HTTP":
                    target = check["http"]
                    return await http_status(_HOST, target["port"], target.get("path", "/"), {"Host": _HOST})
                command = check["command"]
                return await run(self._processes, self._container.command(command.get("command", command)))
        except (TimeoutError, OSError):
            return None
