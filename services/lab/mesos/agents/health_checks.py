"""Health checks of a real task by COMMAND or HTTP."""

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
    """Interface of a container to its health check."""

    task: Task
    killing: bool
    ended: bool

    def command(self, command: Json) -> Command:
        """Convert a CommandInfo to a command that runs in the container of the task."""
        ...

    def report_health(self, healthy: bool) -> None:
        """Send another update of the running task."""
        ...

    def unhealthy(self) -> None:
        """Kill the task, whose health check failed too often."""
        ...


async def run_health_check(container: Checked, clock: Clock, processes: Processes) -> None:
    """Check until the container ends: the first result is reported even if it is bad; at the limit the task is
    killed."""
    check = container.task.info["health_check"]
    limit = check.get("consecutive_failures", _FAILURES)
    grace_end = clock.now() + check.get("grace_period_seconds", _GRACE_S)
    healthy: bool | None = None
    failures = 0
    await clock.sleep(check.get("delay_seconds", _DELAY_S))
    while not container.ended:
        if await _passes(container, check, processes):
            failures = 0
            if healthy is not True:
                healthy = True
                container.report_health(True)
        elif healthy is not None or clock.now() >= grace_end:
            failures += 1
            healthy = False
            if container.killing:
                return
            container.report_health(False)
            if failures >= limit:
                container.unhealthy()
                return
        await clock.sleep(check.get("interval_seconds", _INTERVAL_S))


async def _passes(container: Checked, check: Json, processes: Processes) -> bool:
    try:
        async with asyncio.timeout(check.get("timeout_seconds", _TIMEOUT_S) or None):
            if check["type"] == "HTTP":
                target = check["http"]
                status = await http_status(_HOST, target["port"], target.get("path", "/"), {"Host": _HOST})
                return status is not None and 200 <= status < 400
            return await run(processes, container.command(check["command"])) == 0
    except (TimeoutError, OSError):
        return False
