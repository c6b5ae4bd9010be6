"""Files of pods, read in ranges of bytes: from the Mesos agent that serves them, or through the API."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from peloton.api.mesos_access import MesosAccess
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha import peloton_pb2 as peloton_v1_pb2
from peloton.api.v1alpha.pod.svc import pod_svc_pb2
from peloton.errors import NotFound, Unavailable
from peloton.model.pod import TERMINAL
from services.web.api import TIMEOUT_S, Api

CHUNK_BYTES = 64 * 1024
"""Maximum size of one read from an agent."""
STREAM_BYTES = 256 * 1024
"""Size of the buffer of a file that is read to its end."""
LOGS_MAX = 50
"""Maximum number of files listed."""
TRIES_MAX = 12
"""Maximum number of calls for one range: each returns some bytes, or advances towards the first of them."""
OUTPUTS = ("stdout", "stderr")
FILE_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
"""Name of a log, possibly after the name of its container."""
REPLACED = "\N{REPLACEMENT CHARACTER}"
AGENT_FAULTS = (OSError, http.client.HTTPException, ValueError, KeyError)
"""Exceptions for an agent that does not answer, or not as expected."""


@dataclass
class LogFile:
    """File of one run. ``path`` is empty while there is no such file; ``agent`` serves it, None: the API does."""

    job_id: str
    instance: int
    run: str
    name: str
    path: str = ""
    agent: tuple[str, int] | None = None


class LogFiles:
    """Reader of files; its methods raise PelotonError, AioRpcError and AGENT_FAULTS."""

    def __init__(self, api: Api, agents: MesosAccess) -> None:
        self._api, self._agents = api, agents

    async def has_ended(self, file: LogFile) -> bool:
        """Return whether the run is over; the first call resolves the current run."""
        request = task_pb2.GetRequest(jobId=peloton_pb2.JobID(value=file.job_id), instanceId=file.instance)
        answer = await self._api.tasks.Get(request, timeout=TIMEOUT_S)
        if answer.HasField("notFound"):
            raise NotFound(answer.notFound.message)
        if answer.HasField("outOfRange"):
            raise NotFound(f"job {file.job_id} has no instance {file.instance}")
        runtime = answer.result.runtime
        file.run = file.run or runtime.mesosTaskId.value
        return runtime.mesosTaskId.value != file.run or task_pb2.TaskState.Name(runtime.state) in TERMINAL

    async def locate(self, file: LogFile) -> str:
        """Find the file; returns "" once it exists, else the reason."""
        answer = await self._listing(file)
        if fault := fault_of(answer):
            return fault
        file.agent = (answer.hostname, int(answer.port)) if answer.hostname else None
        wanted = f"/{file.name}"
        if file.agent is not None:
            file.path = next((path for path in answer.paths if f"/{path}".endswith(wanted)), "")
        else:
            file.path = file.name if file.name in answer.paths else ""
        return "" if file.path else f"there is no {file.name} yet"

    async def require(self, file: LogFile) -> None:
        """Find the file. Raises NotFound if it does not exist."""
        await self.has_ended(file)
        if why := await self.locate(file):
            raise NotFound(why)

    async def names(self, file: LogFile) -> tuple[list[str], str]:
        """Return the logs of the run, stdout and stderr first, and the reason if there are none.

        The API serves logs only; in a sandbox, files with matching names are logs.
        """
        answer = await self._listing(file)
        return log_names(answer.paths, is_sandbox=bool(answer.hostname)), fault_of(answer)

    async def _listing(self, file: LogFile) -> task_pb2.BrowseSandboxResponse:
        request = task_pb2.BrowseSandboxRequest(
            jobId=peloton_pb2.JobID(value=file.job_id), instanceId=file.instance, taskId=file.run
        )
        return await self._api.tasks.BrowseSandbox(request, timeout=TIMEOUT_S)

    async def size(self, file: LogFile) -> int:
        """Return the size in bytes; a file served by the API is read to its end for this."""
        if file.agent is not None:
            return int((await self._ask_agent(file, -1, CHUNK_BYTES))["offset"])
        size, is_end = 0, False
        while not is_end:
            piece = await self._piece(file, size, follow=False)
            size, is_end = size + len(piece.data), piece.is_end
        return size

    async def read(self, file: LogFile, offset: int, follow: bool) -> tuple[bytes, int]:
        """Return some bytes, and the offset after them."""
        if file.agent is None:
            data = (await self._piece(file, offset, follow)).data
            return data, offset + len(data)
        return await self._read_agent(file, offset, CHUNK_BYTES)

    async def read_range(self, file: LogFile, start: int, end: int) -> tuple[bytes, int]:
        """Return the bytes of the range and the offset after them, which is less than ``end`` at the end of the file.

        A range has at most CHUNK_BYTES.
        """
        assert end - start <= CHUNK_BYTES
        if file.agent is not None:
            return await self._read_agent(file, start, end - start)
        data, is_end = b"", False
        for _ in range(TRIES_MAX):
            piece = await self._piece(file, start + len(data), follow=False)
            data, is_end = data + piece.data, piece.is_end
            if is_end or len(data) >= end - start:
                data = data[: end - start]
                return data, start + len(data)
        raise Unavailable(f"{file.name} cannot be read up to byte {end} within {TRIES_MAX} calls: try again")

    async def stream(self, file: LogFile) -> AsyncGenerator[bytes, None]:
        """Yield the whole current file, a bounded piece at a time."""
        if file.agent is None:
            offset, is_end = 0, False
            while not is_end:
                piece = await self._piece(file, offset, follow=False)
                offset, is_end = offset + len(piece.data), piece.is_end
                yield piece.data
            return
        connection = self._connection(file)
        try:
            url = f"/files/download?path={quote(file.path, safe='')}"
            response = await asyncio.to_thread(self._answer, connection, url)
            while data := await asyncio.to_thread(response.read, STREAM_BYTES):
                yield data
        finally:
            if connection.sock is not None:
                with suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)  # ends a read of the other thread, for which close waits
            connection.close()

    async def _read_agent(self, file: LogFile, offset: int, length: int) -> tuple[bytes, int]:
        text = str((await self._ask_agent(file, offset, length))["data"])
        data = text.encode("utf-8", "surrogateescape")
        if REPLACED in text:  # agents write this for invalid bytes, whose number is lost
            return data, max(min(offset + length, await self.size(file)), offset + 1)
        return data, offset + len(data)

    async def _piece(self, file: LogFile, offset: int, follow: bool) -> pod_svc_pb2.GetPodFileResponse:
        request = pod_svc_pb2.GetPodFileRequest(
            pod_name=peloton_v1_pb2.PodName(value=f"{file.job_id}-{file.instance}"),
            pod_id=peloton_v1_pb2.PodID(value=file.run),
            path=file.path,
            offset=offset,
            follow=follow,
        )
        return await self._api.pods.GetPodFile(request, timeout=TIMEOUT_S)

    async def _ask_agent(self, file: LogFile, offset: int, length: int) -> dict[str, Any]:
        url = f"/files/read?path={quote(file.path, safe='')}&offset={offset}&length={length}"
        return await asyncio.to_thread(self._ask_agent_now, file, url)

    def _ask_agent_now(self, file: LogFile, url: str) -> dict[str, Any]:
        with closing(self._connection(file)) as connection:
            body = self._answer(connection, url).read()
        # A file may be binary; surrogates encode its invalid bytes.
        found: dict[str, Any] = json.loads(body.decode("utf-8", "surrogateescape"))
        return found

    def _connection(self, file: LogFile) -> http.client.HTTPConnection:
        assert file.agent is not None
        return self._agents.connection(*file.agent, TIMEOUT_S)

    def _answer(self, connection: http.client.HTTPConnection, url: str) -> http.client.HTTPResponse:
        connection.request("GET", url, headers=self._agents.headers)
        response = connection.getresponse()
        if response.status != http.client.OK:
            at = f"{connection.host}:{connection.port}"
            raise Unavailable(f"the agent at {at} answered {response.status} to {url}")
        return response


def fault_of(answer: task_pb2.BrowseSandboxResponse) -> str:
    """Return the reason for a missing listing, "" if there is one."""
    if not answer.HasField("error"):
        return ""
    kind = next(field.name for field, _ in answer.error.ListFields())
    return getattr(answer.error, kind).message or kind


def log_names(paths: Sequence[str], is_sandbox: bool) -> list[str]:
    """Return the logs among these files that an address can name: outputs first, at most LOGS_MAX."""
    names = {path.rpartition("/")[2] if is_sandbox else path for path in paths}
    logs = {name for name in names if not is_sandbox or name.endswith(".log")}
    others = {name for name in logs if FILE_NAME.fullmatch(name)} - {*OUTPUTS}
    return [*(name for name in OUTPUTS if name in names), *sorted(others)][:LOGS_MAX]
