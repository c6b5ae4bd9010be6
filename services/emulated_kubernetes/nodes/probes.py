"""Probes of a container: exec, HTTP and TCP, for start, readiness and life."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
from typing import Protocol

from services.emulated_kubernetes.nodes.pod_status import ADDRESS
from services.emulated_kubernetes.resources import Json
from services.emulation.clock import Clock
from services.emulation.processes import Command, Processes, kill_group

STARTUP, READINESS, LIVENESS = "startupProbe", "readinessProbe", "livenessProbe"
_PERIOD_S, _TIMEOUT_S, _FAILURES, _SUCCESSES = 10, 1, 3, 1
_HEAD_BYTES = 4096


class Probed(Protocol):
    """A container as its probes see it."""

    spec: Json

    def command(self, argv: list[str]) -> Command:
        """A command that runs beside that of the container."""
        ...

    def probed(self, kind: str, is_good: bool) -> None:
        """A probe has come to a judgement."""
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
        """Startup ends with its first judgement; the others judge each time that their result changes."""
        await self._sleep(probe.get("initialDelaySeconds", 0))
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
                await self._sleep(probe.get("periodSeconds", _PERIOD_S))
                continue
            self._container.probed(kind, said)
            if kind == STARTUP:
                return
            await self._sleep(probe.get("periodSeconds", _PERIOD_S))

    async def _sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._clock.call_later(seconds, lambda: None if future.done() else future.set_result(None))
        await future

    async def _check(self, probe: Json) -> bool:
        timeout_s = probe.get("timeoutSeconds", _TIMEOUT_S) / self._clock.scale
        with contextlib.suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            if (action := probe.get("exec")) is not None:
                return await self._exec(action["command"], timeout_s)
            async with asyncio.timeout(timeout_s):
                if (action := probe.get("httpGet")) is not None:
                    return await self._http(action)
                if (action := probe.get("tcpSocket")) is not None:
                    _, writer = await asyncio.open_connection(_host(action), self._port(action["port"]))
                    writer.close()
                    return True
        return False

    async def _exec(self, argv: list[str], timeout_s: float) -> bool:
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        pid = self._processes.spawn(
            self._container.command(argv),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            on_exit=lambda status: None if done.done() else done.set_result(status),
        )
        try:
            async with asyncio.timeout(timeout_s):
                return await done == 0
        finally:
            if not done.done() or done.cancelled():
                kill_group(pid, signal.SIGKILL)

    async def _http(self, action: Json) -> bool:
        port = self._port(action["port"])
        host = _host(action)
        reader, writer = await asyncio.open_connection(host, port)
        try:
            headers = {"Host": f"{host}:{port}", "User-Agent": "kube-probe/1.36", "Connection": "close"}
            headers |= {row["name"]: row["value"] for row in action.get("httpHeaders", ())}
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            writer.write(f"GET {action.get('path') or '/'} HTTP/1.1\r\n{lines}\r\n".encode())
            await writer.drain()
            words = (await reader.readline())[:_HEAD_BYTES].split()
            return len(words) > 1 and words[1].isdigit() and 200 <= int(words[1]) < 400
        finally:
            writer.close()

    def _port(self, named: int | str) -> int:
        """Raises ValueError for a name that no port has."""
        if isinstance(named, int) or str(named).isdigit():
            return int(named)
        for port in self._container.spec.get("ports", ()):
            if port.get("name") == named:
                return int(port["containerPort"])
        raise ValueError(f"no port is called {named!r}")


def _host(action: Json) -> str:
    return str(action.get("host") or ADDRESS)
