"""Doubles of the watch and of the Kafka REST proxy, and pods, for tests of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import orjson

from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.pod import pod_pb2
from services.aurorabridge.events.feed import Changes
from services.aurorabridge.thrift import api
from tests.waiting import LONGEST_S

JOB = "7f000001-0000-4000-8000-000000000001"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
KEY = api.JobKey(role="web", environment="prod", name="shop")


def pod(instance: int, state: str = "RUNNING", run: int = 1, **status: Any) -> pod_pb2.PodSummary:
    name = f"{JOB}-{instance}"
    summary = pod_pb2.PodSummary(pod_name=peloton_pb2.PodName(value=name), status=pod_pb2.PodStatus(**status))
    summary.status.state = pod_pb2.PodState.Value(f"POD_STATE_{state}")
    summary.status.pod_id.value = f"{name}-{run}"
    summary.status.revision.updated_at = 1_700_000_000_999_000_000
    return summary


async def task_of(summary: pod_pb2.PodSummary) -> Any:
    return api.TaskConfig(job=KEY, isService=True)


def error(code: grpc.StatusCode, details: str = "") -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


class Log:
    """A log of changes that is watched: revisions rise from 1, and those below ``oldest`` are kept no more."""

    def __init__(self) -> None:
        self.changes: list[pod_pb2.PodSummary] = []
        self.present: Sequence[pod_pb2.PodSummary] = ()
        self.oldest = 1
        self.watches: list[int] = []
        self.read = 0
        self.ends_after: list[int] = []
        """Numbers of changes after which the next watches end with ABORTED."""
        self._news = asyncio.Event()

    def append(self, *pods: pod_pb2.PodSummary) -> None:
        self.changes += pods
        self._news.set()

    async def watch(self, after: int) -> AsyncGenerator[Changes, None]:
        self.watches.append(after)
        if after and after < self.oldest - 1:
            raise error(grpc.StatusCode.OUT_OF_RANGE, "too old")
        at = after or len(self.changes)
        yield Changes(at)
        ends_at = at + self.ends_after.pop(0) if self.ends_after else -1
        while True:
            if at == ends_at:
                raise error(grpc.StatusCode.ABORTED, "event overflow")
            if at < len(self.changes):
                at += 1
                self.read = max(self.read, at)
                yield Changes(at, [self.changes[at - 1]])
                continue
            self._news.clear()
            await self._news.wait()

    async def list_pods(self) -> AsyncGenerator[Sequence[pod_pb2.PodSummary], None]:
        yield self.present


class Proxy:
    """A Kafka REST proxy that records what it takes; ``status_of`` decides about each event."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, str]] = []  # task id, status
        self.posts = 0
        self.status_of: Callable[[str], int | OSError] = lambda _: 200
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def post(self, body: bytes) -> int:
        await self.is_open.wait()
        task = orjson.loads(body)["task"]
        name = task["assignedTask"]["taskId"]
        self.posts += 1
        await asyncio.sleep(0)
        status = self.status_of(name)
        if isinstance(status, OSError):
            raise status
        if status < 300:
            self.taken.append((name, task["status"]))
        return status

    def close(self) -> None:
        pass


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(LONGEST_S):
        while not condition():
            await asyncio.sleep(0.001)


class Server:
    """A proxy behind real connections, which answers each request with ``answer``."""

    def __init__(self) -> None:
        self.answer: bytes = OK
        self.requests: list[tuple[bytes, bytes]] = []
        self.connections = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                self.requests.append((head, await reader.readexactly(length)))
                writer.write(self.answer)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/topics/tasks?x=1"
    try:
        yield server
    finally:
        listening.close()
