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


class Probed(Protocol):
    """A container as its probes see it."""

    spec: Json

    def command(self, argv: list[str]) -> Command:
        """Return a command that runs next to the container's own."""
        ...

    def on_probe(self, kind: str, is_good: bool) -> None:
        """Handle a changed result of a probe."""
        ...


class Probes:
    """The probes of one run of a container. Missing numbers have the defaults of the apiserver in the spec."""

    def __init__(self, container: Probed, clock: Clock, processes: Processes) -> None:
        self._container = container
        self._clock = clock
        self._processes = processes
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, *kinds: str) -> None:
        for kind in kinds:
            if kind in self._container.spec:
                self._tasks.append(asyncio.create_task(self._run(kind, self._container.spec[kind])))

    def stop(self) -> None:
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self._tasks.clear()

    async def _run(self, kind: str, probe: Json) -> None:
        """Run a probe. A startup probe ends with its first result; the others report each change of their result."""
        await self._clock.sleep(probe.get("initialDelaySeconds", 0))
        streak, last, reported = 0, None, None
        while True:
            is_good = await self._check(probe)
            streak, last = streak + 1 if is_good is last else 1, is_good
            enough = probe.get("successThreshold", 1) if is_good else probe.get("failureThreshold", 3)
            if streak >= enough and is_good is not reported:
                reported = is_good
                self._container.on_probe(kind, is_good)
                if kind == STARTUP:
                    return
            await self._clock.sleep(probe.get("periodSeconds", 10))

    async def _check(self, probe: Json) -> bool:
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(probe.get("timeoutSeconds", 1) / self._clock.scale):
                if (action := probe.get("exec")) is not None:
                    return await run(self._processes, self._container.command(action["command"])) == 0
                if (action := probe.get("httpGet")) is not None:
                    port = self._port(action["port"])
                    headers = {"Host": f"{ADDRESS}:{port}", "User-Agent": "kube-probe/1.36"}
                    status = await http_status(ADDRESS, port, action.get("path") or "/", headers)
                    return status is not None and 200 <= status < 400
                if (action := probe.get("tcpSocket")) is not None:
                    _, writer = await asyncio.open_connection(ADDRESS, self._port(action["port"]))
                    writer.close()
                    return True
        return False

    def _port(self, named: int | str) -> int:
        """Return the number of a port. Raises ValueError for an unknown name."""
        ports = {port.get("name"): port["containerPort"] for port in self._container.spec.get("ports", ())}
        return int(ports.get(named, named))
