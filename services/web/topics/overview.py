"""The cluster in one screen."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict

from peloton.api.v0.explain import explain_pb2
from services.web.api import TIMEOUT_S, Api


async def look(api: Api, _: str) -> Any:
    """The root pool and those below it, as ``PoolTree`` has them."""
    answer = await api.explain.PoolTree(explain_pb2.PoolTreeRequest(), timeout=TIMEOUT_S)
    return {"tree": MessageToDict(answer)}
