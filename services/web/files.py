"""Parsing of users' YAML files for pages by the code of the command line: ``POST /files/job`` and so on.

The answer is ``{"message": ...}`` as protobuf JSON, ready to be sent in a call; or an error with ``line`` and
``column``, which count from 1. In reverse, a message as protobuf JSON is answered with the file, ``{"text": ...}``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import orjson
from google.protobuf.json_format import MessageToDict
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from peloton.api.config_schema import FILES
from peloton.api.convert_v1_spec import in_one_form
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.yaml_config import ConfigError, dump_message, load_message
from peloton.errors import PelotonError
from services.web.bodies import Bodies, check_headers
from services.web.faults import Refusal, refusal_of, too_busy
from services.web.proto_json import read_message

YAML = "application/yaml"
JSON = "application/json"
FILE_BYTES_MAX = 512 * 2**10
VALUES_MAX = 50_000
"""Maximum number of values in one file; aliases can create many from few bytes."""
FILES_MAX = 20
"""Maximum number of files being parsed or waiting; one is parsed at a time."""


class Files:
    """Parser for one event loop."""

    def __init__(self) -> None:
        self._bodies = Bodies()
        self._turn = asyncio.Lock()
        self._count = 0

    def routes(self) -> list[Route]:
        return [Route(f"/files/{name}", self._answer_of(name), methods=["POST"]) for name in FILES]

    def _answer_of(self, name: str) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            self._count += 1
            try:
                if self._count > FILES_MAX:
                    raise too_busy(f"{FILES_MAX} files are being read", 1)
                is_message = request.headers.get("content-type", "").startswith(JSON)
                check_headers(request, JSON if is_message else YAML)
                convert = _text if is_message else _content
                return Response(await self._read(partial(convert, name), request), media_type=JSON)
            except ConfigError as error:
                why = {
                    "code": "invalid_argument",
                    "message": error.message,
                    "line": error.line,
                    "column": error.column,
                }
                return JSONResponse(why, 400)
            except (Refusal, PelotonError) as error:
                return refusal_of(error).response()
            except ClientDisconnect:
                return Response(status_code=499)  # the client has disconnected
            finally:
                self._count -= 1

        return answer

    async def _read(self, convert: Callable[[bytes], bytes], request: Request) -> bytes:
        """Read and convert the body. Raises ConfigError, Refusal, InvalidArgument."""
        with self._bodies.memory() as memory:
            text = await memory.body(request)
            if len(text) > FILE_BYTES_MAX:
                why = (
                    f"the file has {len(text):,} bytes, the bound is {FILE_BYTES_MAX:,}: create it by the command line"
                )
                raise Refusal("resource_exhausted", why, status=413)
            async with self._turn:
                return await asyncio.to_thread(convert, text)


def _content(name: str, text: bytes) -> bytes:
    """Convert a YAML file to a message in JSON. Raises ConfigError."""
    message = load_message(text, FILES[name].message, value_count_max=VALUES_MAX)
    return orjson.dumps({"message": MessageToDict(message)})


def _text(name: str, content: bytes) -> bytes:
    """Convert a message in JSON to a YAML file. Raises InvalidArgument."""
    message = read_message(FILES[name].message, content)
    if isinstance(message, stateless_pb2.JobSpec):
        message = in_one_form(message)
    return orjson.dumps({"text": dump_message(message)})
