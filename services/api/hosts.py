"""What the api asks the host manager itself."""

from __future__ import annotations

import logging
import time
from typing import Protocol

import grpc
import grpc.aio

from peloton.api.private import hostmgr_pb2, hostmgr_pb2_grpc
from peloton.errors import ERRORS, PelotonError, Unavailable
from peloton.model.ids import PodId
from peloton.model.resources import Resources
from services.api.channels import LeaderChannels
from services.api.forward import HOSTMGR

log = logging.getLogger(__name__)

CAPACITY_TIMEOUT_S = 1.0
CAPACITY_AGE_MAX_S = 5.0
"""A known capacity, or the knowledge that it cannot be had, serves so long."""
BROWSE_TIMEOUT_S = 15.0


class Hosts(Protocol):
    async def capacity(self) -> Resources | None:
        """Sum over the hosts of the cluster, None while no host is known."""
        ...

    async def browse_sandbox(self, pod_id: PodId, host: str, agent_id: str) -> hostmgr_pb2.BrowseSandboxResponse:
        """Files of a run's sandbox; raises PelotonError."""
        ...


class RemoteHosts:
    """Hosts, asked of the leading host manager."""

    def __init__(self, channels: LeaderChannels) -> None:
        self._channels = channels
        self._capacity: Resources | None = None
        self._asked_at_s = -CAPACITY_AGE_MAX_S

    async def capacity(self) -> Resources | None:
        now_s = time.monotonic()
        if now_s - self._asked_at_s >= CAPACITY_AGE_MAX_S:
            self._asked_at_s = now_s  # before the call: others use the old value meanwhile
            self._capacity = await self._ask_capacity()
        return self._capacity

    async def _ask_capacity(self) -> Resources | None:
        try:
            stub = hostmgr_pb2_grpc.HostsStub(await self._channels.to(HOSTMGR))
            answer = await stub.ClusterCapacity(hostmgr_pb2.ClusterCapacityRequest(), timeout=CAPACITY_TIMEOUT_S)
        except (Unavailable, grpc.aio.AioRpcError) as error:
            log.warning("the cluster's capacity is not known: %s", error)
            return None
        if not answer.host_count:
            return None
        amounts = answer.capacity
        return Resources(amounts.cpu_milli, amounts.memory_mib, amounts.disk_mib, amounts.gpu_milli)

    async def browse_sandbox(self, pod_id: PodId, host: str, agent_id: str) -> hostmgr_pb2.BrowseSandboxResponse:
        stub = hostmgr_pb2_grpc.HostsStub(await self._channels.to(HOSTMGR))
        request = hostmgr_pb2.BrowseSandboxRequest(pod_id=str(pod_id), hostname=host, agent_id=agent_id)
        try:
            return await stub.BrowseSandbox(request, timeout=BROWSE_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise ERRORS.get(error.code().name, PelotonError)(error.details() or error.code().name) from error
