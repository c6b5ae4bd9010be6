"""Bridges of Aurora over a running server of role api, and the jobs that they make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api.v0.peloton_pb2 import ResourcePoolID
from peloton.api.v0.respool import respool_pb2 as pools_pb
from peloton.model.ids import ROOT_POOL_ID, JobId, RespoolId
from peloton.model.pod import PodState
from peloton.model.resources import RESOURCE_KINDS, UNLIMITED
from peloton.model.respool import PoolResource, PoolSpec
from peloton.model.update import UpdateRecord
from services.aurorabridge.backend import Backend
from services.aurorabridge.method import Refusal
from services.aurorabridge.settings import DEFAULTS, BridgeSettings
from services.aurorabridge.thrift import api
from services.aurorabridge.writes import METHODS
from services.storage.storage import Storage
from tests.conformance.storage.services import roll
from tests.simulation.pool_changes import config_of
from tests.unit.aurorabridge.scenario import KEY, NAME, task_config, update_request

POOL, GPU_POOL = RespoolId("33333333-3333-3333-3333-333333333333"), RespoolId("44444444-4444-4444-4444-444444444444")
THERMOS = BridgeSettings(thermos="/opt/thermos_executor.pex")
INVALID = api.ResponseCode.INVALID_REQUEST


NEVER = 1_000_000
"""Number of a call that no bridge makes."""


class Died(Exception):
    """The end of a bridge, as by kill -9."""


class Pools:
    """Pools of the resource manager: the bridge's, which exist from the start or are created."""

    def __init__(self, storage: Storage, known: dict[str, RespoolId]) -> None:
        self._storage, self.known = storage, known
        self.unavailable = 0
        self.created: list[pools_pb.ResourcePoolConfig] = []
        for path, pool_id in known.items():
            resources = tuple(PoolResource(kind, 10**6, UNLIMITED, 1) for kind in RESOURCE_KINDS)
            storage.pools.put(pool_id, config_of(PoolSpec(pool_id, ROOT_POOL_ID, path.strip("/"), resources)))

    async def LookupResourcePoolID(self, request: Any) -> Any:
        if self.unavailable:
            self.unavailable -= 1
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "no leader"
            )
        response = pools_pb.LookupResponse()
        response.id.value = self.known.get(request.path.value, "")
        return response

    async def CreateResourcePool(self, request: Any) -> Any:
        self.created.append(request.config)
        self.known["/" + request.config.name] = POOL
        self._storage.pools.put(POOL, request.config)
        return pools_pb.CreateResponse(result=ResourcePoolID(value=POOL))


class Mortal:
    """A stub whose process dies before or after one of its calls, and with it all later ones. All stubs of a bridge
    count together."""

    def __init__(self, stub: Any, calls: Iterator[int], dies: tuple[int, str]) -> None:
        self._stub, self._calls, self._dies = stub, calls, dies

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._stub, name)

        async def call(request: Any) -> Any:
            number, (last, when) = next(self._calls), self._dies
            if number > last or (number, when) == (last, "before"):
                raise Died
            try:
                return await method(request)
            finally:
                if number == last:
                    raise Died

        return call


class Bridge(Backend):
    def __init__(
        self,
        address: str,
        pools: Pools,
        settings: BridgeSettings = DEFAULTS,
        dies: tuple[int, str] = (NEVER, ""),
    ) -> None:
        super().__init__(address, settings)
        self.numbers = count()
        self.__dict__["jobs"] = Mortal(self.jobs, self.numbers, dies)
        self.__dict__["pools"] = Mortal(pools, self.numbers, dies)

    async def call(self, method: str, **args: Any) -> Any:
        return await METHODS[method](self, getattr(api.AuroraSchedulerManager, f"{method}_args")(**args))

    async def start(self, request: Any = None, message: str | None = None) -> str:
        """Start an update, and return its id."""
        result = await self.call("startJobUpdate", request=request or update_request(), message=message)
        assert result.startJobUpdateResult.key.job == KEY
        return str(result.startJobUpdateResult.key.id)

    async def steer(self, method: str, update_id: str) -> Any:
        return await self.call(method, key=api.JobUpdateKey(job=KEY, id=update_id))


Make = Callable[..., Bridge]


def jobs_named(storage: Storage) -> list[JobId]:
    return storage.search.services_named(NAME)


def updates(storage: Storage) -> list[UpdateRecord]:
    """Return the updates of all jobs of the name, oldest first."""
    found = [update for job_id in jobs_named(storage) for update in storage.updates.of_job(job_id)]
    return sorted(found, key=lambda update: (update.created_ns, update.config_version))


def finish(storage: Storage) -> UpdateRecord:
    """Take the current update to its end, and return it."""
    (job_id, *_) = jobs_named(storage)
    roll(storage, job_id)
    return updates(storage)[-1]


def runs(storage: Storage) -> dict[int, int]:
    (job_id, *_) = jobs_named(storage)
    return {pod.instance_id: pod.run_id for pod in storage.pods.page(job_id, 0, 1_000)}


def states(storage: Storage) -> list[PodState]:
    (job_id, *_) = jobs_named(storage)
    return [pod.state for pod in storage.pods.page(job_id, 0, 1_000)]


async def refusal(call: Any) -> tuple[int, str]:
    with pytest.raises(Refusal) as caught:
        await call
    return caught.value.code, str(caught.value)


def other_request(count: int = 3, **settings: Any) -> Any:
    return update_request(task_config("sleep 200"), count, api.JobUpdateSettings(**settings))
