"""Client of the resource manager's pools, for a role that changes pools under a name of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import grpc

from peloton.api.v0.explain import explain_pb2, explain_pb2_grpc
from peloton.api.v0.peloton_pb2 import ResourcePoolID
from peloton.api.v0.respool import respool_pb2 as pb
from peloton.api.v0.short_names import respool_pb2_grpc
from services.access.caller import ON_BEHALF_OF
from services.servers.grpc_errors import call_peer

CALL_TIMEOUT_S = 20.0
NAME = "resource manager"


class PoolClient:
    def __init__(self, channel: Callable[[], grpc.Channel], name: str) -> None:
        """``channel`` returns a channel to the leader, or raises Unavailable. ``name`` is noted with each change."""
        self._channel = channel
        self._headers = ((ON_BEHALF_OF, quote(name, safe="")),)

    def query(self) -> dict[str, pb.ResourcePoolInfo]:
        """Return all pools by their paths. Raises Peloton's errors, as all methods do."""
        answer = self._call(self._stub().Query, pb.QueryRequest())
        return {one.path.value or "/": one for one in answer.resourcePools}

    def tree(self) -> dict[str, explain_pb2.PoolNode]:
        """Return entitlement, allocation and demand of all pools by their paths."""
        stub = explain_pb2_grpc.ExplainServiceStub(self._channel())
        return {one.path: one for one in self._call(stub.PoolTree, explain_pb2.PoolTreeRequest()).pools}

    def create(self, config: pb.ResourcePoolConfig) -> tuple[str, str]:
        """Return the id of the new pool, and why there is none."""
        answer = self._call(self._stub().CreateResourcePool, pb.CreateRequest(config=config))
        return answer.result.value, _fault(answer)

    def update(self, pool_id: str, config: pb.ResourcePoolConfig) -> str:
        """Return why the pool was not changed, or empty."""
        request = pb.UpdateRequest(id=ResourcePoolID(value=pool_id), config=config)
        return _fault(self._call(self._stub().UpdateResourcePool, request))

    def delete(self, path: str) -> str:
        """Return why the pool was not deleted, or empty."""
        request = pb.DeleteRequest(path=pb.ResourcePoolPath(value=path))
        return _fault(self._call(self._stub().DeleteResourcePool, request))

    def _stub(self) -> respool_pb2_grpc.ResourceManagerStub:
        return respool_pb2_grpc.ResourceManagerStub(self._channel())

    def _call(self, method: Callable[..., Any], request: object) -> Any:
        def with_name(request: object, timeout: float, metadata: Any) -> Any:
            return method(request, timeout=timeout, metadata=(*(metadata or ()), *self._headers))

        return call_peer(NAME, with_name, request, CALL_TIMEOUT_S)


def _fault(answer: Any) -> str:
    """Return the message of the error in an answer, or empty."""
    for _, error in answer.error.ListFields():
        return str(error.message)
    return ""
