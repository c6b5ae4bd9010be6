"""The cluster in one screen."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio
from google.protobuf.json_format import MessageToDict

from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.overview import overview_pb2
from services.web.api import TIMEOUT_S, Api


async def look(api: Api, _: str) -> Any:
    """``overview``: what is wrong, sums, counts and leaders; ``demand`` by kind: what the pods that wait ask for, none
    while the resource manager does not answer."""
    overview, demand = await asyncio.gather(
        api.overview.GetOverview(overview_pb2.GetOverviewRequest(), timeout=TIMEOUT_S), _demand(api)
    )
    for role in overview.roles:
        role.ClearField("seconds_left")  # it changes with each look, and says nothing but who leads
    return {"overview": MessageToDict(overview), "demand": demand}


async def _demand(api: Api) -> dict[str, float]:
    try:
        answer = await api.explain.PoolTree(explain_pb2.PoolTreeRequest(), timeout=TIMEOUT_S)
    except grpc.aio.AioRpcError:
        return {}
    return {one.kind: one.demand for one in answer.pools[0].amounts} if answer.pools else {}
