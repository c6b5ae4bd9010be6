"""Following of logs: ``GET /logs/JOB/INSTANCE?file=stdout&run=...`` as server-sent events.

The id of each message is the offset after it, so that a reconnecting browser resumes there. Mesos agents serve files
themselves; files of other clusters are read through the API.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncIterator

import grpc.aio
import orjson
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response, StreamingResponse

from peloton.errors import InvalidArgument, PelotonError, Unavailable
from peloton.model.ids import parse_job_id
from peloton.model.text import quote
from services.web.faults import answer_refusal, refusal_of
from services.web.log_files import AGENT_FAULTS, CHUNK_BYTES, FILE_NAME, LogFile, LogFiles
from services.web.viewer import Viewer, viewer_of
from services.web.viewer_checks import Shares

VIEWERS_MAX = 100
"""Maximum number of files followed at a time; more are rejected."""
LOGS_OF_A_VIEWER_MAX = 20
"""Maximum number of files that one viewer follows at a time."""
TAIL_BYTES = 64 * 1024
"""Number of existing bytes sent at the begin."""
POLL_S = 1.0
BEAT_POLLS = 15
"""Number of polls without output after which a comment shows that the connection is alive."""


class Logs:
    def __init__(self, files: LogFiles) -> None:
        self._files = files
        self._viewers = 0
        self._shares = Shares("logs", LOGS_OF_A_VIEWER_MAX)

    async def answer(self, request: Request) -> Response:
        try:
            file = file_of(request)
            self._shares.check(viewer_of(request))
            if self._viewers >= VIEWERS_MAX:
                raise Unavailable(f"{VIEWERS_MAX} logs are followed, as many as may be: close one, or try again later")
        except PelotonError as error:
            return answer_refusal(error)
        seen = request.headers.get("last-event-id", "")
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        frames = self._frames(viewer_of(request), file, int(seen) if seen.isascii() and seen.isdigit() else None)
        return StreamingResponse(frames, media_type="text/event-stream", headers=headers)

    async def _frames(self, viewer: Viewer, file: LogFile, offset: int | None) -> AsyncIterator[bytes]:
        self._viewers += 1
        try:
            with self._shares.take(viewer):
                async for frame in self._follow(file, offset):
                    yield frame
        except (grpc.aio.AioRpcError, PelotonError) as error:
            yield _frame("problem", refusal_of(error).content())
        except AGENT_FAULTS as error:
            yield _frame("problem", {"code": "unavailable", "message": f"the agent does not answer: {error}"})
        finally:
            self._viewers -= 1

    async def _follow(self, file: LogFile, offset: int | None) -> AsyncIterator[bytes]:
        """Yield the log until the run has ended and its whole output is sent."""
        yield b": Peloton\n\n"
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        said, quiet = "", 0
        while True:
            has_ended = await self._files.has_ended(file)  # before reading: later output is read in the next round
            why = "" if file.path else await self._files.locate(file)
            if why and why != said:
                yield _frame("waiting", {"message": why})
                said = why
            chunk = b""
            if file.path:
                if offset is None:
                    offset = max(0, await self._files.size(file) - TAIL_BYTES)
                    yield _frame("begin", {"run": file.run, "offset": offset})
                chunk, offset = await self._files.read(file, offset, not has_ended)
                if chunk:
                    yield _frame("text", decoder.decode(chunk), offset)
            if not chunk and has_ended:
                yield _frame("end", {"run": file.run, "message": why})
                return
            quiet = 0 if chunk else quiet + 1
            if quiet and quiet % BEAT_POLLS == 0:
                yield b": beat\n\n"
            if len(chunk) < CHUNK_BYTES:
                await asyncio.sleep(POLL_S)


def file_of(request: HTTPConnection) -> LogFile:
    """Return the file that an address names. Raises InvalidArgument."""
    job_id, name = request.path_params["job_id"], request.query_params.get("file", "stdout")
    try:
        job_id = parse_job_id(job_id)
    except ValueError:
        raise InvalidArgument(f"job id {quote(job_id)} is no UUID") from None
    if not FILE_NAME.fullmatch(name):
        raise InvalidArgument(
            f"file {quote(name)}: want stdout, stderr, another log, or one of them behind the name of a container"
        )
    return LogFile(job_id, request.path_params["instance"], request.query_params.get("run", ""), name)


def _frame(event: str, value: object, offset: int | None = None) -> bytes:
    mark = b"" if offset is None else f"id: {offset}\n".encode()
    return mark + b"event: " + event.encode() + b"\ndata: " + orjson.dumps(value) + b"\n\n"
