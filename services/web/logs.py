"""What a pod prints, followed: ``GET /logs/JOB/INSTANCE?file=stdout&run=...`` as server-sent events.

Each message has the offset behind it as its id, so that a browser that connects again goes on from there. Agents of
Mesos serve files themselves; those of other clusters come through the API.
"""

from __future__ import annotations

import asyncio
import codecs
import http.client
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote as quote_url

import grpc.aio
import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from peloton.api.mesos_access import MesosAccess
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha import peloton_pb2 as peloton_v1_pb2
from peloton.api.v1alpha.pod.svc import pod_svc_pb2
from peloton.errors import InvalidArgument, NotFound, PelotonError, Unavailable
from peloton.model.ids import parse_job_id
from peloton.model.pod import TERMINAL
from peloton.model.text import quote
from services.web.api import TIMEOUT_S, Api
from services.web.faults import refusal_of, refused

VIEWERS_MAX = 100
"""Files that are followed at a time; more are refused."""
TAIL_BYTES = 64 * 1024
"""How much of a file is told that was there before."""
CHUNK_BYTES = 64 * 1024
LOOK_S = 1.0
BEAT_LOOKS = 15
"""Looks without news after which a comment shows that the connection lives."""
REPLACED = "\N{REPLACEMENT CHARACTER}"
_FILE = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")


@dataclass
class _File:
    """Of one run. ``path`` is empty while there is no such file; ``agent``: who serves it, None: the API."""

    job_id: str
    instance: int
    run: str
    name: str
    path: str = ""
    agent: tuple[str, int] | None = None


class Logs:
    def __init__(self, api: Api, agents: MesosAccess) -> None:
        self._api, self._agents = api, agents
        self._viewers = 0

    async def answer(self, request: Request) -> Response:
        try:
            file = _asked(request)
            if self._viewers >= VIEWERS_MAX:
                raise Unavailable(f"{VIEWERS_MAX} logs are followed, as many as may be: close one, or try again later")
        except PelotonError as error:
            return refused(error)
        seen = request.headers.get("last-event-id", "")
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        frames = self._frames(file, int(seen) if seen.isascii() and seen.isdigit() else None)
        return StreamingResponse(frames, media_type="text/event-stream", headers=headers)

    async def _frames(self, file: _File, offset: int | None) -> AsyncIterator[bytes]:
        self._viewers += 1
        try:
            async for frame in self._follow(file, offset):
                yield frame
        except (grpc.aio.AioRpcError, PelotonError) as error:
            yield _frame("problem", refusal_of(error).content())
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            yield _frame("problem", {"code": "unavailable", "message": f"the agent does not answer: {error}"})
        finally:
            self._viewers -= 1

    async def _follow(self, file: _File, offset: int | None) -> AsyncIterator[bytes]:
        """Until the run has ended and all of it is told."""
        yield b": Peloton\n\n"
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        said, quiet = "", 0
        while True:
            has_ended = await self._has_ended(file)  # before reading: what comes later is read in the next round
            why = "" if file.path else await self._find(file)
            if why and why != said:
                yield _frame("waiting", {"message": why})
                said = why
            chunk = b""
            if file.path:
                if offset is None:
                    offset = await self._tail(file)
                    yield _frame("begin", {"run": file.run, "offset": offset})
                chunk, offset = await self._read(file, offset, not has_ended)
                if chunk:
                    yield _frame("text", decoder.decode(chunk), offset)
            if not chunk and has_ended:
                yield _frame("end", {"run": file.run, "message": why})
                return
            quiet = 0 if chunk else quiet + 1
            if quiet and quiet % BEAT_LOOKS == 0:
                yield b": beat\n\n"
            if len(chunk) < CHUNK_BYTES:
                await asyncio.sleep(LOOK_S)

    async def _has_ended(self, file: _File) -> bool:
        """Whether the run is over; the first call for the current run fixes which one that is."""
        request = task_pb2.GetRequest(jobId=peloton_pb2.JobID(value=file.job_id), instanceId=file.instance)
        answer = await self._api.tasks.Get(request, timeout=TIMEOUT_S)
        if answer.HasField("notFound"):
            raise NotFound(answer.notFound.message)
        if answer.HasField("outOfRange"):
            raise NotFound(f"job {file.job_id} has no instance {file.instance}")
        runtime = answer.result.runtime
        file.run = file.run or runtime.mesosTaskId.value
        return runtime.mesosTaskId.value != file.run or task_pb2.TaskState.Name(runtime.state) in TERMINAL

    async def _find(self, file: _File) -> str:
        """Empty once the file is there, else why it is not."""
        request = task_pb2.BrowseSandboxRequest(
            jobId=peloton_pb2.JobID(value=file.job_id), instanceId=file.instance, taskId=file.run
        )
        answer = await self._api.tasks.BrowseSandbox(request, timeout=TIMEOUT_S)
        if answer.HasField("error"):
            kind = next(field.name for field, _ in answer.error.ListFields())
            return getattr(answer.error, kind).message or f"{kind} of instance {file.instance}"
        if answer.hostname:
            wanted = f"/{file.name}"
            found = next((path for path in answer.paths if f"/{path}".endswith(wanted)), "")
            file.agent = answer.hostname, int(answer.port)
        else:
            found = file.name if file.name in answer.paths else ""
        file.path = found
        return "" if found else f"there is no {file.name} yet"

    async def _tail(self, file: _File) -> int:
        """Where the last TAIL_BYTES begin."""
        if file.agent is not None:
            size = await self._size(file)
        else:
            size, is_end = 0, False
            while not is_end:
                piece = await self._piece(file, size, follow=False)
                size, is_end = size + len(piece.data), piece.is_end
        return max(0, size - TAIL_BYTES)

    async def _size(self, file: _File) -> int:
        return int((await self._ask_agent(file, -1))["offset"])

    async def _read(self, file: _File, offset: int, follow: bool) -> tuple[bytes, int]:
        """Some bytes, and the offset behind them."""
        if file.agent is None:
            data = (await self._piece(file, offset, follow)).data
            return data, offset + len(data)
        text = str((await self._ask_agent(file, offset))["data"])
        data = text.encode("utf-8", "surrogateescape")
        if REPLACED in text:  # an agent that writes this for bytes that are no text leaves open how many they were
            return data, max(min(offset + CHUNK_BYTES, await self._size(file)), offset + 1)
        return data, offset + len(data)

    async def _piece(self, file: _File, offset: int, follow: bool) -> pod_svc_pb2.GetPodFileResponse:
        request = pod_svc_pb2.GetPodFileRequest(
            pod_name=peloton_v1_pb2.PodName(value=f"{file.job_id}-{file.instance}"),
            pod_id=peloton_v1_pb2.PodID(value=file.run),
            path=file.path,
            offset=offset,
            follow=follow,
        )
        return await self._api.pods.GetPodFile(request, timeout=TIMEOUT_S)

    async def _ask_agent(self, file: _File, offset: int) -> dict[str, Any]:
        return await asyncio.to_thread(self._ask_agent_now, file, offset)

    def _ask_agent_now(self, file: _File, offset: int) -> dict[str, Any]:
        assert file.agent is not None
        host, port = file.agent
        connection = self._agents.connection(host, port, TIMEOUT_S)
        try:
            path = quote_url(file.path, safe="")
            url = f"/files/read?path={path}&offset={offset}&length={CHUNK_BYTES}"
            connection.request("GET", url, headers=self._agents.headers)
            response = connection.getresponse()
            body = response.read()
            if response.status != http.client.OK:
                raise Unavailable(f"the agent at {host}:{port} answered {response.status} to {url}")
            # A file need not be text; surrogates carry the bytes that are none.
            found: dict[str, Any] = json.loads(body.decode("utf-8", "surrogateescape"))
            return found
        finally:
            connection.close()


def _asked(request: Request) -> _File:
    """Raises InvalidArgument."""
    job_id, name = request.path_params["job_id"], request.query_params.get("file", "stdout")
    try:
        job_id = parse_job_id(job_id)
    except ValueError:
        raise InvalidArgument(f"job id {quote(job_id)} is no UUID") from None
    if not _FILE.fullmatch(name):
        raise InvalidArgument(f"file {quote(name)}: want stdout, stderr, or one of them behind the name of a container")
    return _File(job_id, request.path_params["instance"], request.query_params.get("run", ""), name)


def _frame(event: str, value: object, offset: int | None = None) -> bytes:
    mark = b"" if offset is None else f"id: {offset}\n".encode()
    return mark + b"event: " + event.encode() + b"\ndata: " + orjson.dumps(value) + b"\n\n"
