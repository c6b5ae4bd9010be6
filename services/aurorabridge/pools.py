"""The pools of the bridge's jobs, found by path and created when they are missing."""

from __future__ import annotations

import asyncio
import time

import grpc.aio

from peloton.api.v0.peloton_pb2 import ResourcePoolID
from peloton.api.v0.respool import respool_pb2 as pb
from peloton.model.ids import ROOT_POOL_ID
from services.aurorabridge.backend import Backend
from services.aurorabridge.method import Refusal

RETRY_S = 5.0
RETRIED_S = 25.0
"""Time after which a call gives up, so that its client reads why before its own deadline, which is 30 s by default."""

_TEMPORARY = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.ABORTED,
)
# kind -> reservation and limit
_AMOUNTS = {"cpu": (12, 12), "memory": (6144, 6144), "disk": (10240, 20480), "gpu": (0, 0)}


async def find_pool(backend: Backend, path: str) -> str:
    """Return the id of the pool at a path. Raises Refusal, and AioRpcError once the retries have not helped."""
    until = time.monotonic() + RETRIED_S
    while True:
        try:
            return await _look_up(backend, path) or await _create(backend, path)
        except grpc.aio.AioRpcError as error:
            if error.code() not in _TEMPORARY or time.monotonic() + RETRY_S > until:
                raise
        await asyncio.sleep(RETRY_S)


async def _look_up(backend: Backend, path: str) -> str:
    """Return "" if there is no such pool."""
    answer = await backend.pools.LookupResourcePoolID(pb.LookupRequest(path=pb.ResourcePoolPath(value=path)))
    if answer.error.HasField("invalidPath"):
        raise Refusal(f"invalid path {path!r} of the bridge's pool: {answer.error.invalidPath.message}")
    return answer.id.value


async def _create(backend: Backend, path: str) -> str:
    """Create a pool below the root; of two bridges one does, and the other finds it."""
    name = path.strip("/")
    if not name or "/" in name:
        raise Refusal(f"there is no pool {path}: the bridge creates only pools below the root, so create this one")
    config = pb.ResourcePoolConfig(
        name=name,
        description="Jobs of the Aurora bridge",
        policy=pb.PriorityFIFO,
        parent=ResourcePoolID(value=ROOT_POOL_ID),
        controllerLimit=pb.ControllerLimit(maxPercent=10),
        slackLimit=pb.SlackLimit(maxPercent=30),
        resources=[
            pb.ResourceConfig(kind=kind, reservation=reservation, limit=limit, share=1, type=pb.ELASTIC)
            for kind, (reservation, limit) in _AMOUNTS.items()
        ],
    )
    answer = await backend.pools.CreateResourcePool(pb.CreateRequest(config=config))
    if answer.error.HasField("invalidResourcePoolConfig"):
        raise Refusal(f"pool {path} cannot be created: {answer.error.invalidResourcePoolConfig.message}")
    return answer.result.value or await _look_up(backend, path)
