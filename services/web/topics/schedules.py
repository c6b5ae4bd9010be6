"""Topic of the schedules of a pool, or of all pools, each with its last run."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict

from peloton.api.v0.schedule import schedule_pb2
from services.web.api import TIMEOUT_S, Api

LIMIT = 200


async def read(api: Api, pool_path: str) -> Any:
    """Return ``schedules`` by name and ``hasMore``; the root selects all pools."""
    request = schedule_pb2.ListSchedulesRequest(pool_path="" if pool_path == "/" else pool_path, limit=LIMIT)
    found = await api.schedules.ListSchedules(request, timeout=TIMEOUT_S)
    return {"schedules": [MessageToDict(one) for one in found.schedules], "hasMore": found.has_more}
