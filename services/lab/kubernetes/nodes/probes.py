"""Probes of a container: exec, HTTP and TCP, for startup, readiness and liveness."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol

from services.lab.kubernetes.nodes.pod_status import ADDRESS
from services.lab.kubernetes.resources import Json
from services.lab.shared.clock import Clock
from services.lab.shared.probing import http_status, run
from services.lab.shared.processes import Command, Processes

STARTUP, READINESS, LIVENESS = "startupProbe", "readinessProbe", "livenessProbe"
_PERIOD_S, _TIMEOUT_S, _FAILURES, _SUCCESSES = 10, 1, 3, 1


class Probed(Protocol):
    """A container as its probes see it."""

    spec: Json

    def command(self, argv: list[str]) -> Command:
        """Return a command that runs next to the container's own."""
        ...

    def probed(self, kind: str, is_good: bool) -> None:
        """Handle a changed result of a probe."""
        ...


class Probes:
    """The probes of one run of a container."""

    def __init__(self, container: Probed, clock: Clock, processes: Processes) -> None:
        self._container = container
        self._clock = clock
        self._processes = processes
        self._jobs: list[asyncio.Task[None]] = []

    def start(self) -> None:
        if STARTUP in self._container.spec:
            self._begin(STARTUP)
        else:
            self.after_startup()

    def after_startup(self) -> None:
        for kind in (READINESS, LIVENESS):
            if kind in self._container.spec:
                self._begin(kind)

    def _begin(self, kind: str) -> None:
        job = asyncio.create_task(self._run(kind, self._container.spec[kind]), name=kind)
        self._jobs.append(job)

    def stop(self) -> None:
        for job in self._jobs:
            if job is not asyncio.current_task():
                job.cancel()
        self._jobs.clear()

    async def _run(self, kind: str, probe: Json) -> None:
        """Run a probe. A startup probe ends with its first result; the others report each change of their result."""
        await self._clock.sleep(probe.get("initialDelaySeconds", 0))
        good = bad = 0
        said: bool | None = None
        while True:
            is_good = await self._check(probe)
            good, bad = (good + 1, 0) if is_good else (0, bad + 1)
            if good >= probe.get("successThreshold", _SUCCESSES) and said is not True:
                said = True
            elif bad >= probe.get("failureThreshold", _FAILURES) and said is not False:
                said = False
            else:
                await self._clock.sleep(probe.get("periodSeconds", _PERIOD_S))
                continue
            self._container.probed(kind, said)
            if kind == STARTUP:
                return
            await self._clock.sleep(probe.get("periodSeconds", _PERIOD_S))

    async def _check(self, probe: Json) -> bool:
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(probe.get("timeoutSeconds", _TIMEOUT_S) / self._clock.scale):
                if (action := probe.get("exec")) is not None:
                    return await run(self._processes, self._container.command(action["command"])) == 0
                if (action := probe.get("httpGet")) is not None:
                    return await self._http(action)
                if (action := probe.get("tcpSocket")) is not None:
                    _, writer = await asyncio.open_connection(_host(action), self._port(action["port"]))
                    writer.close()
                    return True
        return False

    async def _http(self, action: Json) -> bool:
        host, port = _host(action), self._port(action["port"])
        headers = {"Host": f"{host}:{port}", "User-Agent": "kube-probe/1.36"}
        headers |= {row["name"]: row["value"] for row in action.get("httpHeaders", ())}
        status = await http_status(host, port, action.get("path") or "/", headers)
        return status is not None and 200 <= status < 400

    def _port(self, named: int | str) -> int:
        """Return the number of a port. Raises ValueError for an unknown name."""
        if isinstance(named, int) or str(named).isdigit():
            return int(named)
        for port in self._container.spec.get("ports", ()):
            if port.get("name") == named:
                return int(port["containerPort"])
        raise ValueError(f"no port is called {named!r}")


def _host(action: Json) -> str:
    return str(action.get("host") or ADDRESS)
