"""Serves the JSON schemas of YAML files at ``/schemas/NAME.json``, for editors."""

from __future__ import annotations

from functools import cache

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from peloton.api.config_schema import FILES, schema_of


def routes() -> list[Route]:
    return [Route(f"/schemas/{name}.json", _serve) for name in FILES]


async def _serve(request: Request) -> Response:
    name = request.url.path.rpartition("/")[2].removesuffix(".json")
    return Response(_encode(name), media_type="application/schema+json")


@cache
def _encode(name: str) -> bytes:
    return orjson.dumps(schema_of(name))
