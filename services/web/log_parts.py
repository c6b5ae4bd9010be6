"""Parts of logs, for a viewer that shows a window of a file of any size.

``GET /logs/JOB/INSTANCE/files`` lists the logs of a run, ``.../part`` reads lines around a byte, ``.../search``
searches the whole file, and ``.../download`` sends it. Each takes ``file`` and ``run`` like ``/logs``.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import asdict, dataclass, field

import grpc.aio
import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from peloton.errors import InvalidArgument, PelotonError, Unavailable
from services.web.faults import Refusal, answer_refusal, refusal_of, too_busy
from services.web.log_files import AGENT_FAULTS, CHUNK_BYTES, LogFile, LogFiles
from services.web.logs import file_of
from services.web.viewer import Viewer, viewer_of
from services.web.viewer_checks import RECHECK_S, Shares

READERS_MAX, READERS_OF_A_VIEWER_MAX = 20, 5
"""Maximum number of files searched or downloaded at a time; more are rejected."""
BEFORE_BYTES = 16 * 1024
"""Number of bytes read before the byte that a part surrounds."""
SEARCH_BYTES_MAX = 512 << 20
"""Maximum number of bytes searched; the answer says if the file is larger."""
TEXT_MAX = 200
"""Maximum length of the search text in characters."""
PLACES_MAX = 1_000
"""Maximum number of matches returned; all are counted."""
RETRY_AFTER_S = 2.0
NO_STORE = {"cache-control": "no-store"}
NEWLINE = b"\n"
UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
"""Characters that the name of a download does not have: those that headers and file systems do not take."""


@dataclass(frozen=True)
class Part:
    """Lines of a file: bytes ``offset`` to ``end``. ``is_end``: the file currently ends there."""

    offset: int
    end: int
    text: str
    is_end: bool


@dataclass
class Found:
    """Search result. ``places``: offsets of the first matches. ``is_whole``: the file was searched to its end."""

    count: int = 0
    places: list[int] = field(default_factory=list)
    searched: int = 0  # bytes
    is_whole: bool = True


class LogParts:
    def __init__(self, files: LogFiles) -> None:
        self._files = files
        self._readers = 0
        self._shares = Shares("searches and downloads of logs", READERS_OF_A_VIEWER_MAX)

    def routes(self) -> list[Route]:
        address = "/logs/{job_id}/{instance:int}"
        return [
            Route(f"{address}/{name}", _answering(answer))
            for name, answer in (
                ("files", self._names),
                ("part", self._part),
                ("search", self._search),
                ("download", self._download),
            )
        ]

    async def _names(self, request: Request) -> Response:
        file = file_of(request)
        await self._files.has_ended(file)
        names, why = await self._files.names(file)
        return _json({"run": file.run, "files": names, "message": why})

    async def _part(self, request: Request) -> Response:
        file = file_of(request)
        place, way = _number(request, "offset"), request.query_params.get("way", "forward")
        if way not in ("forward", "back", "around"):
            raise InvalidArgument(f"way {way[:20]!r}: want forward, back or around")
        await self._files.require(file)
        start = {"forward": place, "back": place - CHUNK_BYTES, "around": place - BEFORE_BYTES}[way]
        stop = place if way == "back" else max(start, 0) + CHUNK_BYTES
        return _json(asdict(await read_part(self._files, file, max(start, 0), stop, place)))

    async def _search(self, request: Request) -> Response:
        file, text = file_of(request), request.query_params.get("text", "")
        if not 0 < len(text) <= TEXT_MAX:
            raise InvalidArgument(f"text of {len(text)} characters: want 1 to {TEXT_MAX}")
        self._shares.check(viewer_of(request))
        self._take_turn()
        try:
            await self._files.require(file)
            with self._shares.take(viewer_of(request)):
                async with aclosing(self._files.stream(file)) as pieces:
                    found = await search(pieces, text.encode())
        finally:
            self._readers -= 1
        return _json(asdict(found))

    async def _download(self, request: Request) -> Response:
        file = file_of(request)
        await self._files.require(file)
        self._shares.check(viewer_of(request))
        self._take_turn()
        name = UNSAFE.sub("-", f"{file.run or file.job_id}-{file.name}.txt")
        headers = {**NO_STORE, "content-disposition": f'attachment; filename="{name}"'}
        return StreamingResponse(
            self._whole(viewer_of(request), file), media_type="application/octet-stream", headers=headers
        )

    async def _whole(self, viewer: Viewer, file: LogFile) -> AsyncIterator[bytes]:
        try:
            with self._shares.take(viewer):
                async with aclosing(self._files.stream(file)) as pieces:
                    checked_s = time.monotonic()
                    async for piece in pieces:
                        if (
                            time.monotonic() - checked_s > RECHECK_S
                        ):  # agents know no viewers: the api may refuse it now
                            checked_s = time.monotonic()
                            await self._files.has_ended(file)
                        yield piece
        finally:
            self._readers -= 1

    def _take_turn(self) -> None:
        if self._readers >= READERS_MAX:
            raise too_busy(f"{READERS_MAX} logs are searched or downloaded, as many as may be", RETRY_AFTER_S)
        self._readers += 1


async def read_part(files: LogFiles, file: LogFile, start: int, stop: int, place: int) -> Part:
    """Read whole lines between two bytes.

    A line longer than the range is cut, so that the part contains the byte at ``place`` and is never empty where there
    are bytes.
    """
    data, end = await files.read_range(file, start, stop)
    is_end = end < stop
    is_exact = end - start == len(data)  # else the file is binary, and the bytes of its text cannot be counted
    if is_exact and not is_end and (last := data.rfind(NEWLINE) + 1) and start + last > place:
        data, end = data[:last], start + last
    first = data.find(NEWLINE) + 1
    if is_exact and start and 0 < first < len(data) and first <= place - start:
        data, start = data[first:], start + first
    return Part(start, end, data.decode("utf-8", "replace"), is_end)


async def search(pieces: AsyncIterator[bytes], text: bytes) -> Found:
    """Find a text, ignoring the case of ASCII letters, and count the matches."""
    wanted, found, rest = text.lower(), Found(), b""
    async for piece in pieces:
        seen = rest + piece[: SEARCH_BYTES_MAX - found.searched].lower()
        start = found.searched - len(rest)
        found.count += seen.count(wanted)
        behind = 0
        while len(found.places) < PLACES_MAX and (at := seen.find(wanted, behind)) >= 0:
            found.places.append(start + at)
            behind = at + len(wanted)
        found.searched = start + len(seen)
        rest = seen[max(behind, len(seen) - len(wanted) + 1) :]
        if found.searched >= SEARCH_BYTES_MAX:
            found.is_whole = False
            break
    return found


def _answering(answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        try:
            return await answer(request)
        except (grpc.aio.AioRpcError, PelotonError, Refusal) as error:
            return refusal_of(error).response()
        except AGENT_FAULTS as error:
            return answer_refusal(Unavailable(f"the agent does not answer: {error!r}"))

    return respond


def _number(request: Request, name: str) -> int:
    text = request.query_params.get(name, "0")
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidArgument(f"{name} {text[:20]!r} is no number of bytes")
    return int(text)


def _json(value: object) -> Response:
    return Response(orjson.dumps(value), media_type="application/json", headers=NO_STORE)
