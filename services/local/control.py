"""How `peloton local` reaches a running `peloton up`: one JSON line there, one back, on a loopback port that a
file under the user's runtime directory names."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import secrets
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from peloton.errors import InvalidArgument, NotFound, PelotonError, Unavailable
from services.local.cluster import LocalCluster

ACTIONS = ("stop", "start", "restart", "status", "failover")
CALL_TIMEOUT_S = 60.0
HOSTS_SHOWN_MAX = 20


def control_file(port: int) -> Path:
    """Names the control port of the local cluster whose API listens on ``port``; readable by its user alone."""
    runtime = os.environ.get("XDG_RUNTIME_DIR") or str(Path(tempfile.gettempdir()) / f"peloton-{os.getuid()}")
    return Path(runtime) / f"peloton-local-{port}.json"


class ControlServer:
    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._token = secrets.token_hex(16)
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> ControlServer:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        for path in map(control_file, self._cluster.api_ports):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_text(json.dumps({"port": port, "token": self._token, "data": str(self._cluster.data_dir)}))
        return self

    async def __aexit__(self, *exc: object) -> None:
        for path in map(control_file, self._cluster.api_ports):
            path.unlink(missing_ok=True)
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = json.loads(await reader.readline())
            if request.get("token") != self._token:
                raise InvalidArgument("wrong token")
            answer = {"lines": await self._act(request["action"], request.get("name", ""), bool(request.get("now")))}
        except PelotonError as error:
            answer = {"error": [error.message]}
        except (ValueError, KeyError) as error:
            answer = {"error": [f"bad request: {error}"]}
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()
        writer.close()

    async def _act(self, action: str, name: str, now: bool) -> list[str]:
        if action not in ACTIONS:
            raise InvalidArgument(f"no action {action!r}; there are {', '.join(ACTIONS)}")
        if action == "status":
            return await self._status()
        if action == "failover":
            answer = await asyncio.to_thread(
                self._mesos, self._cluster.mesos, "POST", "/minicluster/master/failover", {}
            )
            return [f"another Mesos master leads, {answer['agents']} hosts come back to it"]
        if name in self._cluster.parts:
            part = self._cluster.part(name)
            if action in ("stop", "restart"):
                await part.stop(now)
            if action in ("start", "restart"):
                await part.start()
            return [f"{name} {'is running' if part.is_running else 'is stopped'}"]
        await self._act_on_host(name, {"restart": ("stop", "start")}.get(action, (action,)), now)
        return [f"host {name}: {action} done"]

    async def _act_on_host(self, name: str, verbs: Sequence[str], now: bool) -> None:
        unknown: list[NotFound] = []
        for master in self._masters_of(name):
            try:
                for verb in verbs:
                    path = f"/minicluster/agents/{quote(name, safe='')}/{verb}"
                    await asyncio.to_thread(self._mesos, master, "POST", path, {"now": now})
                return
            except NotFound as error:
                unknown.append(error)
        raise unknown[0]

    async def _status(self) -> list[str]:
        lines = []
        for part in self._cluster.parts.values():
            pid = part.process.pid if part.process and part.is_running else "-"
            lines.append(
                f"{part.name:22} {'running' if part.is_running else 'stopped':12} pid {pid}, starts {part.starts}"
            )
        for master in (self._cluster.mesos, *self._cluster.more_masters.values()):
            try:
                agents = await asyncio.to_thread(self._mesos, master, "GET", "/minicluster/agents")
                shown, more = agents["agents"][:HOSTS_SHOWN_MAX], len(agents["agents"]) - HOSTS_SHOWN_MAX
                lines += [f"{a['name']:22} {a['state']:12} host, {len(a['tasks'])} pods" for a in shown]
                lines += [f"... and {more} more hosts"] if more > 0 else []
            except Unavailable as error:
                lines.append(error.message)
        return lines

    def _masters_of(self, host: str) -> list[str]:
        """One of these has it. Hosts of a cluster beside the first one have its name as a prefix, but so may others."""
        more = self._cluster.more_masters.items()
        return [master for name, master in more if host.startswith(f"{name}-")] + [self._cluster.mesos]

    def _mesos(self, master: str, method: str, path: str, body: object = None) -> Any:
        connection = http.client.HTTPConnection(master, timeout=10)
        try:
            text = json.dumps(body) if body is not None else None
            connection.request(method, path, body=text, headers={"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read().decode(errors="replace")
        except OSError as error:
            raise Unavailable(f"minicluster does not answer: {error}") from error
        finally:
            connection.close()
        if response.status == 404:
            known = ", ".join(self._cluster.parts)
            raise NotFound(f"no part and no host of that name: {answer.strip()} (parts: {known})")
        if response.status != 200:
            raise InvalidArgument(answer.strip())
        return json.loads(answer) if answer.strip().startswith(("[", "{")) else answer


def call(port: int, action: str, name: str = "", now: bool = False) -> list[str]:
    """Ask the `peloton up` whose API is on ``port``; returns lines for people. Raises PelotonError."""
    path = control_file(port)
    try:
        known = json.loads(path.read_text())
        with socket.create_connection(("127.0.0.1", known["port"]), timeout=CALL_TIMEOUT_S) as sock:
            request = {"token": known["token"], "action": action, "name": name, "now": now}
            sock.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(sock.makefile().readline())
    except (OSError, ValueError) as error:
        raise Unavailable(f"no `peloton up` with its API on port {port} is running here ({error})") from error
    if "error" in answer:
        raise InvalidArgument(answer["error"][0])
    return list(answer["lines"])
