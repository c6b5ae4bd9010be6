"""A scheduler for tests: subscribes, waits for events by condition, answers calls."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from services.lab.mesos.server import Minicluster
from services.lab.mesos.settings import MiniclusterSettings
from services.lab.shared.hosts import HostSpec
from tests.waiting import Condition

WAIT_S = 60.0
CAPABILITIES = ("MULTI_ROLE", "PARTITION_AWARE", "TASK_KILLING_STATE")


def settings(
    folder: Path, hosts: int | tuple[HostSpec, ...] = 1, revocable_cpus: float | None = None, **more: Any
) -> MiniclusterSettings:
    """Return settings with fast defaults: short ticks and grace, small hosts a0, a1, ... unless they are given."""
    host = HostSpec("", cpus=4, mem=1024, disk=1000, ports=((31000, 31009),), revocable_cpus=revocable_cpus)
    specs = hosts if isinstance(hosts, tuple) else tuple(replace(host, name=f"a{n}") for n in range(hosts))
    values: dict[str, Any] = {
        "data_dir": folder,
        "hosts": specs,
        "allocation_interval_s": 0.05,
        "executor_start_s": 0.0,
        "kill_grace_s": 0.3,
        "agent_recovery_s": 0.0,
        **more,
    }
    return MiniclusterSettings(**values)


def scalar(name: str, value: float) -> dict[str, Any]:
    return {"name": name, "type": "SCALAR", "scalar": {"value": value}}


def task_info(
    task_id: str, agent_id: str, command: str | dict[str, Any], mem: float = 64, **more: Any
) -> dict[str, Any]:
    body = {"value": command} if isinstance(command, str) else command
    return {
        "name": task_id,
        "task_id": {"value": task_id},
        "agent_id": {"value": agent_id},
        "command": body,
        "resources": [scalar("cpus", 0.1), scalar("mem", mem)],
        **more,
    }


async def request(
    port: int, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """Send a request and return (status, parsed JSON or text)."""
    data = b"" if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [f"{method} {path} HTTP/1.1", "Connection: close", f"Content-Length: {len(data)}"]
    usual = {"Host": f"127.0.0.1:{port}", "Content-Type": "application/json"}
    lines += [f"{key}: {value}" for key, value in {**usual, **(headers or {})}.items()]
    try:
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + data)
        head, _, rest = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()  # also when the caller is cancelled: a scheduler that closes may be acknowledging
    status = int(head.split(b" ", 2)[1])
    is_json = b"application/json" in head
    return status, orjson.loads(rest) if is_json and rest else rest.decode("utf-8", "replace")


class Scheduler:
    """One framework; every UPDATE is acknowledged unless `acknowledge` is False."""

    def __init__(self, port: int, acknowledge: bool = True) -> None:
        self.port = port
        self.acknowledge = acknowledge
        self.events: list[dict[str, Any]] = []
        self.framework_id = ""
        self._stream_id = ""
        self._arrived = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._job: asyncio.Task[None] | None = None

    async def subscribe(self, capabilities: tuple[str, ...] = CAPABILITIES, **info: Any) -> None:
        body: dict[str, Any] = {
            "user": "root",
            "name": "test",
            "checkpoint": True,
            "failover_timeout": 60,
            "roles": ["*"],
            "capabilities": [{"type": name} for name in capabilities],
            **info,
        }
        call: dict[str, Any] = {"type": "SUBSCRIBE", "subscribe": {"framework_info": body}}
        if self.framework_id:
            body["id"] = call["framework_id"] = {"value": self.framework_id}
        data = orjson.dumps(call)
        await self.close()  # the stream before this one
        reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 26)
        head = "POST /api/v1/scheduler HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode()
        self._stream_id = answer.split("Mesos-Stream-Id: ")[1].split("\r\n")[0]
        self._job = asyncio.create_task(self._read(reader))
        event = await self.wait(lambda event: event["type"] == "SUBSCRIBED")
        self.framework_id = event["subscribed"]["framework_id"]["value"]

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            data = await reader.readexactly(size + 2)
            event = orjson.loads(data[:-2].split(b"\n", 1)[1])
            if event["type"] == "UPDATE" and self.acknowledge and "uuid" in event["update"]["status"]:
                status = event["update"]["status"]
                await self.call("ACKNOWLEDGE", {key: status[key] for key in ("agent_id", "task_id", "uuid")})
            self.events.append(event)
            self._arrived.set()

    async def lost(self) -> None:
        """Wait until the master has dropped the stream."""
        assert self._job is not None
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(self._job, return_exceptions=True)
        await self.close()

    async def close(self) -> None:
        if self._job is not None:
            self._job.cancel()
            await asyncio.gather(self._job, return_exceptions=True)
        if self._writer is not None:
            self._writer.close()

    async def call(self, type_: str, body: dict[str, Any] | None = None) -> int:
        call: dict[str, Any] = {"type": type_, "framework_id": {"value": self.framework_id}}
        if body is not None:
            call[type_.lower()] = body
        headers = {"Mesos-Stream-Id": self._stream_id}
        status, _ = await request(self.port, "POST", "/api/v1/scheduler", call, headers)
        return status

    async def wait(self, condition: Condition) -> dict[str, Any]:
        """Return the first event, past or future, for which the condition holds."""
        seen = 0
        async with asyncio.timeout(WAIT_S):
            while True:
                self._arrived.clear()
                for event in self.events[seen:]:
                    if condition(event):
                        return event
                seen = len(self.events)
                await self._arrived.wait()

    async def offer(self, host: str | None = None) -> dict[str, Any]:
        """Take the next offer (of `host`) out of the events."""

        def fits(event: dict[str, Any]) -> bool:
            return event["type"] == "OFFERS" and any(
                host in (None, offer["hostname"]) for offer in event["offers"]["offers"]
            )

        event = await self.wait(fits)
        offers = event["offers"]["offers"]
        found: dict[str, Any] = next(offer for offer in offers if host in (None, offer["hostname"]))
        offers.remove(found)
        return found

    async def accept(self, offer: dict[str, Any], *infos: dict[str, Any], refuse_s: float = 0) -> None:
        operations = [{"type": "LAUNCH", "launch": {"task_infos": list(infos)}}] if infos else []
        body = {"offer_ids": [offer["id"]], "operations": operations, "filters": {"refuse_seconds": refuse_s}}
        assert await self.call("ACCEPT", body) == 202

    async def launch(self, task_id: str, command: str | dict[str, Any], **more: Any) -> dict[str, Any]:
        """Launch a task on the next offer and return its task info."""
        offer = await self.offer()
        info = task_info(task_id, offer["agent_id"]["value"], command, **more)
        await self.accept(offer, info)
        return info

    async def status(self, task_id: str, *states: str) -> dict[str, Any]:
        """Return the first status of the task in one of the states."""

        def fits(event: dict[str, Any]) -> bool:
            if event["type"] != "UPDATE":
                return False
            status = event["update"]["status"]
            return status["task_id"]["value"] == task_id and status["state"] in states

        found: dict[str, Any] = (await self.wait(fits))["update"]["status"]
        return found

    def states(self, task_id: str) -> list[str]:
        statuses = [event["update"]["status"] for event in self.events if event["type"] == "UPDATE"]
        return [status["state"] for status in statuses if status["task_id"]["value"] == task_id]


def sandbox(cluster: Minicluster, scheduler: Scheduler, info: dict[str, Any]) -> Path:
    agent_id, task_id = info["agent_id"]["value"], info["task_id"]["value"]
    frameworks: Path = cluster.settings.data_dir / "slaves" / agent_id / "frameworks"
    folder: Path = frameworks / str(scheduler.framework_id) / "executors" / task_id / "runs" / "latest"
    return folder


async def written(file: Path) -> None:
    """Wait until the task has written the file."""
    async with asyncio.timeout(WAIT_S):
        while not file.exists() or not file.read_text():
            await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def wait_until_gone(pid: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while alive(pid):
            await asyncio.sleep(0.01)
