"""Calls of the api itself to host managers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

import grpc
import grpc.aio

from peloton.api.error_details import details_of
from peloton.api.private import hostmgr_pb2, hostmgr_pb2_grpc
from peloton.errors import ERRORS, NotFound, PelotonError, Unavailable
from peloton.model.ids import PodId
from peloton.model.resources import Resources, to_extended
from services.api.channels import AsyncLeaderChannels

log = logging.getLogger(__name__)
T = TypeVar("T")

CAPACITY_TIMEOUT_S = 1.0
CAPACITY_AGE_MAX_S = 5.0
"""Age up to which a capacity, or a failure to read it, is reused."""
REFUSAL_AGE_MAX_S = 0.2
"""Age up to which a capacity may refuse a job: hosts may have joined since."""
BROWSE_TIMEOUT_S = 15.0
READ_TIMEOUT_S = 60.0
"""Timeout of reads, which may have to skip a log up to the requested byte."""
EXCHANGE_TIMEOUT_S = 60.0
"""Timeout of exchanges with a command, which may start slowly."""


class Hosts(Protocol):
    async def capacity(self) -> Resources | None:
        """Return the capacity of all hosts, up or in maintenance; None while a cluster is silent or no host is up."""
        ...

    async def kinds(self) -> frozenset[str]:
        """Return the kinds of all clusters; empty while one of them is unknown."""
        ...

    async def refresh(self, age_max_s: float) -> None:
        """Read capacity and kinds again if they are older."""
        ...

    async def browse_sandbox(self, pod_id: PodId, host: str, agent_id: str) -> hostmgr_pb2.BrowseSandboxResponse:
        """List the files of a run's sandbox. Raises PelotonError."""
        ...

    async def read_file(
        self, pod_id: PodId, host: str, agent_id: str, path: str, offset: int, follow: bool
    ) -> hostmgr_pb2.ReadFileResponse:
        """Read a part of a sandbox file through the host manager, for hosts that do not serve files. Raises
        PelotonError."""
        ...

    async def exchange(
        self, request: hostmgr_pb2.ExchangeWithCommandRequest
    ) -> hostmgr_pb2.ExchangeWithCommandResponse:
        """Exchange data with a command in a run, for hosts that do not serve sessions. Raises PelotonError."""
        ...


class RemoteHosts:
    """Implementation of Hosts by calls to the host managers of all clusters."""

    def __init__(self, channels: AsyncLeaderChannels) -> None:
        self._channels = channels
        self._capacity: Resources | None = None
        self._kinds: frozenset[str] = frozenset()
        self._asked_at_s = -CAPACITY_AGE_MAX_S

    async def capacity(self) -> Resources | None:
        await self.refresh(CAPACITY_AGE_MAX_S)
        return self._capacity

    async def kinds(self) -> frozenset[str]:
        await self.refresh(CAPACITY_AGE_MAX_S)
        return self._kinds

    async def refresh(self, age_max_s: float) -> None:
        now_s = time.monotonic()
        if now_s - self._asked_at_s >= age_max_s:
            self._asked_at_s = now_s  # before the call: others use the old values meanwhile
            answers = await self._ask()
            self._capacity = _total(answers)
            kinds = frozenset(answer.kind for answer in answers)
            self._kinds = frozenset() if "" in kinds else kinds

    async def _ask(self) -> list[hostmgr_pb2.ClusterCapacityResponse]:
        """Return the capacities of all clusters, or none while a cluster is silent."""
        try:
            clusters = await self._channels.clusters()
            return await asyncio.gather(*map(self._capacity_of, clusters or [""]))
        except (Unavailable, grpc.aio.AioRpcError) as error:
            log.warning("capacity of all clusters is unknown: %s", error)
            return []

    async def _capacity_of(self, cluster: str) -> hostmgr_pb2.ClusterCapacityResponse:
        stub = hostmgr_pb2_grpc.HostsStub(await self._channels.to_cluster(cluster))
        return await stub.ClusterCapacity(hostmgr_pb2.ClusterCapacityRequest(), timeout=CAPACITY_TIMEOUT_S)

    async def browse_sandbox(self, pod_id: PodId, host: str, agent_id: str) -> hostmgr_pb2.BrowseSandboxResponse:
        """List files through the cluster that knows the host."""
        request = hostmgr_pb2.BrowseSandboxRequest(pod_id=str(pod_id), hostname=host, agent_id=agent_id)
        return await self._first(lambda stub: stub.BrowseSandbox(request, timeout=BROWSE_TIMEOUT_S))

    async def read_file(
        self, pod_id: PodId, host: str, agent_id: str, path: str, offset: int, follow: bool
    ) -> hostmgr_pb2.ReadFileResponse:
        """Read a file through the cluster that knows the pod."""
        request = hostmgr_pb2.ReadFileRequest(
            pod_id=str(pod_id), hostname=host, agent_id=agent_id, path=path, offset=offset, follow=follow
        )
        return await self._first(lambda stub: stub.ReadFile(request, timeout=READ_TIMEOUT_S))

    async def exchange(
        self, request: hostmgr_pb2.ExchangeWithCommandRequest
    ) -> hostmgr_pb2.ExchangeWithCommandResponse:
        """Exchange data through the cluster that knows the pod."""
        return await self._first(lambda stub: stub.ExchangeWithCommand(request, timeout=EXCHANGE_TIMEOUT_S))

    async def _first(self, ask: Callable[[Any], Awaitable[T]]) -> T:
        """Return the answer of the first cluster that finds the requested object. Raises PelotonError."""
        fault: PelotonError | None = None
        for cluster in await self._channels.clusters() or [""]:
            try:
                return await ask(hostmgr_pb2_grpc.HostsStub(await self._channels.to_cluster(cluster)))
            except Unavailable as error:
                fault = error
            except grpc.aio.AioRpcError as error:
                found = ERRORS.get(error.code().name, PelotonError)(error.details() or error.code().name)
                if (details := details_of(error.trailing_metadata())).reason:
                    found.because(details.reason, **details.metadata)
                if not isinstance(found, NotFound | Unavailable):
                    raise found from error
                if fault is None or isinstance(found, Unavailable):
                    fault = found
        assert fault is not None
        raise fault


def _total(answers: Sequence[hostmgr_pb2.ClusterCapacityResponse]) -> Resources | None:
    if not any(answer.host_count for answer in answers):
        return None
    amounts = [answer.registered if answer.HasField("registered") else answer.capacity for answer in answers]
    return sum(
        (Resources(a.cpu_milli, a.memory_mib, a.disk_mib, a.gpu_milli, to_extended(a.extended)) for a in amounts),
        Resources(),
    )
