"""v1alpha ResourcePoolService, implemented by the resource manager's v0 service.

Specs and descriptions of pools have the same numbers and types in both versions, so they are converted as bytes. Errors
in v0 answers become statuses.
"""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.message import Message

from peloton.api.v0.respool import respool_pb2 as v0
from peloton.api.v0.short_names.respool_pb2_grpc import ResourceManagerStub
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.respool import respool_pb2
from peloton.api.v1alpha.respool.svc import respool_svc_pb2 as svc
from peloton.errors import Aborted, AlreadyExists, InvalidArgument, NotFound, PelotonError, Reason, Unavailable
from peloton.model.ids import ROOT_POOL_ID
from peloton.model.text import quote
from services.api.channels import AsyncLeaderChannels
from services.api.forward import RESMGR
from services.servers.grpc_errors import translate_rpc_errors

M = TypeVar("M", bound=Message)

CALL_TIMEOUT_S = 10.0
"""Timeout for callers without a deadline, in seconds."""

_ERRORS: dict[str, type[PelotonError]] = {
    "alreadyExists": AlreadyExists,
    "invalidResourcePoolConfig": InvalidArgument,
    "invalidPath": InvalidArgument,
    "notFound": NotFound,
    "isNotLeaf": InvalidArgument,
    "isBusy": Aborted,
    "notDeleted": Unavailable,
}
"""Field of an answer's ``error`` -> exception for its status."""


class ResourcePoolService:
    def __init__(self, channels: AsyncLeaderChannels) -> None:
        self._channels = channels

    async def CreateResourcePool(
        self, request: svc.CreateResourcePoolRequest, context: Any
    ) -> svc.CreateResourcePoolResponse:
        if request.respool_id.value:
            raise InvalidArgument(
                f"respool_id {quote(request.respool_id.value)} is given: Peloton chooses the id itself"
            )
        config = _convert(v0.ResourcePoolConfig, request.spec)
        answer = await self._call("CreateResourcePool", v0.CreateRequest(config=config), context)
        respool_id = _convert(peloton_pb2.ResourcePoolID, answer.result)
        return svc.CreateResourcePoolResponse(respool_id=respool_id, warnings=answer.warnings)

    async def GetResourcePool(self, request: svc.GetResourcePoolRequest, context: Any) -> svc.GetResourcePoolResponse:
        asked = v0.GetRequest(includeChildPools=request.include_child_pools)
        if request.HasField("respool_id"):
            asked.id.value = request.respool_id.value
        answer = await self._call("GetResourcePool", asked, context)
        return svc.GetResourcePoolResponse(
            respool=_convert(respool_pb2.ResourcePoolInfo, answer.poolinfo),
            child_respools=[_convert(respool_pb2.ResourcePoolInfo, child) for child in answer.childPools],
        )

    async def DeleteResourcePool(
        self, request: svc.DeleteResourcePoolRequest, context: Any
    ) -> svc.DeleteResourcePoolResponse:
        """Delete the pool by its path, as v0 requires, after looking the path up by its id."""
        asked = v0.GetRequest()
        asked.id.value = request.respool_id.value
        if asked.id.value in ("", ROOT_POOL_ID):
            raise InvalidArgument("cannot delete root resource pool" if asked.id.value else "resource pool ID is null")
        pool = await self._call("GetResourcePool", asked, context)
        await self._call("DeleteResourcePool", v0.DeleteRequest(path=pool.poolinfo.path), context)
        return svc.DeleteResourcePoolResponse()

    async def UpdateResourcePool(
        self, request: svc.UpdateResourcePoolRequest, context: Any
    ) -> svc.UpdateResourcePoolResponse:
        asked = v0.UpdateRequest(config=_convert(v0.ResourcePoolConfig, request.spec), Force=request.Force)
        asked.id.value = request.respool_id.value
        answer = await self._call("UpdateResourcePool", asked, context)
        return svc.UpdateResourcePoolResponse(warnings=answer.warnings)

    async def LookupResourcePoolID(
        self, request: svc.LookupResourcePoolIDRequest, context: Any
    ) -> svc.LookupResourcePoolIDResponse:
        asked = v0.LookupRequest()
        if request.HasField("path"):
            asked.path.value = request.path.value
        answer = await self._call("LookupResourcePoolID", asked, context)
        return svc.LookupResourcePoolIDResponse(respool_id=_convert(peloton_pb2.ResourcePoolID, answer.id))

    async def QueryResourcePools(
        self, request: svc.QueryResourcePoolsRequest, context: Any
    ) -> svc.QueryResourcePoolsResponse:
        answer = await self._call("Query", v0.QueryRequest(), context)
        return svc.QueryResourcePoolsResponse(
            respools=[_convert(respool_pb2.ResourcePoolInfo, pool) for pool in answer.resourcePools]
        )

    async def _call(self, method: str, request: Message, context: Any) -> Any:
        """Call the leading resource manager; raises the error in its answer."""
        call: Any = getattr(ResourceManagerStub(await self._channels.to(RESMGR)), method)
        with translate_rpc_errors("resource manager"):
            answer = await call(request, timeout=context.time_remaining() or CALL_TIMEOUT_S)
        for field, error in answer.error.ListFields():
            refused = _ERRORS[field.name](error.message)
            raise refused.because(Reason.POOL_NOT_FOUND) if isinstance(refused, NotFound) else refused
        return answer


def _convert(kind: type[M], message: Message) -> M:
    return kind.FromString(message.SerializeToString())
