"""Control connection of `peloton local` to a running `peloton up`.

A request is one line of JSON, and so is the answer. The loopback port is in a file in the user's runtime directory.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from peloton.errors import InvalidArgument, NotFound, PelotonError, Unavailable
from peloton.files import read_text_file
from services.lab.local.cluster import LocalCluster
from services.lab.local.emulated import ask
from services.lab.local.kubernetes import CLUSTER as KUBERNETES
from services.lab.local.kubernetes import LocalKubernetes
from services.lab.local.temporal_server import answers

MASTER = "master"
"""Name of the master of the first cluster. Masters of other clusters are named ``master-CLUSTER``."""
HOST_ACTIONS = ("degrade", "restore")
OLD_ACTIONS = {"sicken": "degrade", "heal": "restore"}
ACTIONS = ("stop", "start", "restart", *HOST_ACTIONS, "status", "failover", "failover-empty")
CALL_TIMEOUT_S = 60.0
MASTER_TIMEOUT_S = 10.0
REQUEST_S = 10.0
MASTER_POLL_S = 0.05
HOSTS_SHOWN_MAX = 20


def control_file(port: int) -> Path:
    """Return the path of the file with the control port of the cluster whose API listens on ``port``. Only its user may
    read it."""
    runtime = os.environ.get("XDG_RUNTIME_DIR") or str(Path(tempfile.gettempdir()) / f"peloton-{os.getuid()}")
    return Path(runtime) / f"peloton-local-{port}.json"


class ControlServer:
    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._server: asyncio.Server | None = None
        self._stopped_masters: dict[str, int] = {}  # stopped masters -> the pid of their minicluster

    async def __aenter__(self) -> ControlServer:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        for path in map(control_file, self._cluster.api_ports):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_text(
                json.dumps({"port": port, "token": self._cluster.token, "data": str(self._cluster.data_dir)})
            )
        return self

    async def __aexit__(self, *exc: object) -> None:
        for path in map(control_file, self._cluster.api_ports):
            path.unlink(missing_ok=True)
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(json.dumps(await self._answer_to(reader)).encode() + b"\n")
            await writer.drain()
        finally:
            writer.close()  # even when the caller has left or the server stops

    async def _answer_to(self, reader: asyncio.StreamReader) -> dict[str, list[str]]:
        try:
            request = json.loads(await _read_line(reader))  # a line too long for the reader is a ValueError
            if not isinstance(request, dict) or not self._knows_token(request.get("token")):
                raise InvalidArgument("the token is wrong: it belongs to another `peloton up`")
            return {"lines": await self._act(request["action"], request.get("name", ""), bool(request.get("now")))}
        except PelotonError as error:
            return {"error": [error.message]}
        except (ValueError, KeyError) as error:
            return {"error": [f"bad request: {error}"]}

    def _knows_token(self, token: object) -> bool:
        return isinstance(token, str) and secrets.compare_digest(token.encode(), self._cluster.token.encode())

    async def _act(self, action: str, name: str, now: bool) -> list[str]:
        action = OLD_ACTIONS.get(action, action)
        if action not in ACTIONS:
            raise InvalidArgument(f"unknown action {action!r}; known actions: {', '.join(ACTIONS)}")
        if action == "status":
            return await self._status()
        if action.startswith("failover"):
            if self._cluster.settings.mesos:
                raise InvalidArgument(
                    f"the Mesos at {self._cluster.mesos} is not emulated: this command cannot change its masters"
                )
            if self._cluster.settings.no_mesos:
                raise InvalidArgument("this local cluster has no Mesos: restart `peloton up` without --no-mesos")
            body = {"empty_registry": action == "failover-empty"}
            answer = await asyncio.to_thread(
                self._mesos, self._cluster.mesos, "POST", "/minicluster/master/failover", body
            )
            return [f"another Mesos master leads, {answer['agents']} hosts register with it"]
        if name in self._masters() and action not in HOST_ACTIONS:
            return [await self._act_on_master(name, action)]
        if name in self._cluster.parts and action not in HOST_ACTIONS:
            part = self._cluster.part(name)
            if action in ("stop", "restart"):
                await part.stop(now)
            if action in ("start", "restart"):
                await part.start()
            return [f"{name} {'is running' if part.is_running else 'is stopped'}"]
        if self._cluster.kubernetes is not None and name.startswith(f"{KUBERNETES}-"):
            return await self._act_on_node(self._cluster.kubernetes, name, action)
        await self._act_on_host(name, {"restart": ("stop", "start")}.get(action, (action,)), now)
        return [f"host {name}: {action} done"]

    async def _act_on_node(self, cluster: LocalKubernetes, name: str, action: str) -> list[str]:
        for verb in ("stop", "start") if action == "restart" else (action,):
            await asyncio.to_thread(cluster.act_on_node, name, verb)
        return [f"node {name}: {action} done"]

    async def _act_on_master(self, name: str, action: str) -> str:
        """Stop or start the master alone, by signals to its process, which also emulates the agents."""
        part_name, address = self._masters()[name]
        part = self._cluster.part(part_name)
        if part.process is None or not part.is_running:
            raise InvalidArgument(f"{name} runs in {part.name}, which is stopped: start {part.name}")
        pid = part.process.pid
        if action != "start" and self._stopped_masters.get(name) != pid:
            await self._wait_for_master(address, True)
            part.send(signal.SIGUSR1)
            self._stopped_masters[name] = pid
            await self._wait_for_master(address, False)
        if action != "stop" and self._stopped_masters.pop(name, None) == pid:
            part.send(signal.SIGUSR2)
            await self._wait_for_master(address, True)
        return f"{name} is stopped, its agents and their pods continue" if action == "stop" else f"{name} is running"

    async def _wait_for_master(self, address: str, wanted: bool) -> None:
        deadline_s = time.monotonic() + MASTER_TIMEOUT_S
        while await asyncio.to_thread(answers, address) is not wanted:
            if time.monotonic() > deadline_s:
                word = "does not answer" if wanted else "still answers"
                raise Unavailable(f"the Mesos master at {address} {word} after {MASTER_TIMEOUT_S:.0f} s")
            await asyncio.sleep(MASTER_POLL_S)

    async def _act_on_host(self, name: str, verbs: Sequence[str], now: bool) -> None:
        known = ", ".join(self._cluster.parts)
        unknown = [NotFound(f"no part or emulated host is named {name} (parts: {known})")]
        for master in self._masters_of(name):
            try:
                for verb in verbs:
                    path = f"/minicluster/agents/{quote(name, safe='')}/{verb}"
                    await asyncio.to_thread(self._mesos, master, "POST", path, {"now": now})
                return
            except NotFound as error:
                unknown.append(error)
        raise unknown[-1]

    async def _status(self) -> list[str]:
        lines = []
        for part in self._cluster.parts.values():
            pid = part.process.pid if part.process and part.is_running else "-"
            lines.append(
                f"{part.name:22} {'running' if part.is_running else 'stopped':12} pid {pid}, starts {part.starts}"
            )
        for name, (_, master) in self._masters().items():
            if name in self._stopped_masters and not answers(master):
                lines.append(f"{name:22} {'stopped':12} Mesos master, whose hosts continue")
                continue
            try:
                agents = await asyncio.to_thread(self._mesos, master, "GET", "/minicluster/agents")
                shown, more = agents["agents"][:HOSTS_SHOWN_MAX], len(agents["agents"]) - HOSTS_SHOWN_MAX
                lines += [
                    f"{a['name']:22} {a['state']:12} host, {len(a['tasks'])} pods" + ", degraded" * a["degraded"]
                    for a in shown
                ]
                lines += [f"... and {more} more hosts"] if more > 0 else []
            except Unavailable as error:
                lines.append(error.message)
        if self._cluster.kubernetes is not None:
            lines += await self._node_lines(self._cluster.kubernetes)
        return lines

    async def _node_lines(self, cluster: LocalKubernetes) -> list[str]:
        try:
            nodes = await asyncio.to_thread(cluster.nodes)
        except Unavailable as error:
            return [error.message]
        states = {True: "up", False: "down"}
        lines = [f"{node['name']:22} {states[node['is_up']]:12} node, {node['pods']} pods" for node in nodes]
        more = len(lines) - HOSTS_SHOWN_MAX
        return [*lines[:HOSTS_SHOWN_MAX], *([f"... and {more} more nodes"] if more > 0 else [])]

    def _masters(self) -> dict[str, tuple[str, str]]:
        """Return name -> (part that emulates it, address) of the masters of emulated clusters."""
        more = self._cluster.more_masters.items()
        first = {} if not self._cluster.has_own_mesos else {MASTER: ("minicluster", self._cluster.mesos)}
        return first | {f"{MASTER}-{cluster}": (f"minicluster-{cluster}", address) for cluster, address in more}

    def _masters_of(self, host: str) -> list[str]:
        """Return the masters that may have the host, those whose cluster is a prefix of its name first."""
        more = self._cluster.more_masters.items()
        own = [self._cluster.mesos] if self._cluster.has_own_mesos else []
        return [master for name, master in more if host.startswith(f"{name}-")] + own

    def _mesos(self, master: str, method: str, path: str, body: object = None) -> Any:
        try:
            return ask("minicluster", master, self._cluster.token, method, path, body)
        except NotFound as error:
            known = ", ".join(self._cluster.parts)
            raise NotFound(f"no part or host has that name: {error.message} (parts: {known})") from None


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    """Read a request. Raises ValueError when it does not come in time."""
    try:
        async with asyncio.timeout(REQUEST_S):
            return await reader.readline()
    except TimeoutError:
        raise ValueError(f"it has not come within {REQUEST_S:g} s") from None


def call(port: int, action: str, name: str = "", now: bool = False) -> list[str]:
    """Send a request to the `peloton up` whose API is on ``port``, and return the lines to print. Raises
    PelotonError."""
    path = control_file(port)
    try:
        known = json.loads(read_text_file(path, "file"))
        with socket.create_connection(("127.0.0.1", known["port"]), timeout=CALL_TIMEOUT_S) as sock:
            request = {"token": known["token"], "action": action, "name": name, "now": now}
            sock.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(sock.makefile().readline())
    except (OSError, ValueError, InvalidArgument) as error:
        raise Unavailable(f"no `peloton up` with its API on port {port} is running here ({error})") from error
    if "error" in answer:
        raise InvalidArgument(answer["error"][0])
    return list(answer["lines"])
