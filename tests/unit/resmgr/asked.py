"""ExplainService, served for a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc
import grpc.aio

from peloton.api.v0.explain import explain_pb2 as pb
from peloton.api.v0.explain import explain_pb2_grpc
from peloton.api.v0.job import job_pb2
from peloton.api.v0.peloton_pb2 import JobID
from peloton.api.v0.respool.respool_pb2 import ResourcePoolConfig, ResourcePoolPath
from peloton.model.ids import JobId
from services.resmgr.explain.service import ExplainsWorkflows
from services.resmgr.server import ResmgrServer, serve
from services.resmgr.settings import LoopSettings
from tests.unit.resmgr.test_loop import until
from tests.unit.resmgr.world import FAST, World


class Asked(NamedTuple):
    server: ResmgrServer
    stub: explain_pb2_grpc.ExplainServiceAsyncStub

    async def queue(self, *jobs: JobId) -> None:
        for job in jobs:
            await self.server.loop.enqueue(job, 1000)
            await self.server.loop.run_cycle()

    async def why(self, job: str) -> pb.JobWhyResponse:
        return await self.stub.JobWhy(pb.JobWhyRequest(jobId=JobID(value=job)))

    async def why_pool(self, path: str) -> pb.PoolWhyResponse:
        return await self.stub.PoolWhy(pb.PoolWhyRequest(path=ResourcePoolPath(value=path)))

    async def plan(self, config: ResourcePoolConfig) -> pb.PoolPlanResponse:
        return await self.stub.PoolPlan(pb.PoolPlanRequest(config=config))


@asynccontextmanager
async def asking(
    world: World, settings: LoopSettings = FAST, workflows: ExplainsWorkflows | None = None
) -> AsyncIterator[Asked]:
    server = await serve(world.storage, world.lifecycles, world.hosts, "127.0.0.1:0", settings, workflows=workflows)
    try:
        await until(lambda: server.loop.state.capacity is not None)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            yield Asked(server, explain_pb2_grpc.ExplainServiceStub(channel))
    finally:
        await server.stop()


def job_config(pool: str, count: int, cpu: float, **sla: Any) -> job_pb2.JobConfig:
    config = job_pb2.JobConfig(name="planned", type=job_pb2.BATCH, instanceCount=count)
    config.respoolID.value = pool
    config.sla.CopyFrom(job_pb2.SlaConfig(preemptible=True, **sla))
    config.defaultConfig.resource.cpuLimit = cpu
    return config
