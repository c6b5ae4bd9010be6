"""Validation and conversion of client specs to storable configurations."""

from __future__ import annotations

from peloton.api import convert, convert_v1_spec
from peloton.api.cluster_kinds import kind_refusal
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.errors import InvalidArgument, NotFound, Unimplemented
from peloton.model.job import JobRecord
from peloton.model.respool import PoolSpec
from services.api.calls import Calls
from services.api.faults import Faults
from services.api.hosts import REFUSAL_AGE_MAX_S, Hosts
from services.api.pool_rules import PoolBounds, pool_bounds, pool_fault
from services.api.v1.ids import prefix_error
from services.api.validation import clamp_max_failures, job_faults, secret_fault
from services.storage.pools import Pools

_UNKNOWN_POOL = "resource pool not found"


class Specs:
    def __init__(self, pools: Pools, calls: Calls, hosts: Hosts) -> None:
        self._pool_records = pools
        self._calls = calls
        self._hosts = hosts

    async def check_pool(self, respool_id: str) -> None:
        """Raise InvalidArgument or NotFound for a pool that accepts no jobs."""
        if fault := pool_fault(respool_id, await self._pools()):
            raise (NotFound if fault == _UNKNOWN_POOL else InvalidArgument)(fault)

    async def pool_bounds(self, respool_id: str) -> PoolBounds | str:
        """Return the bounds of the pool, or the reason why no job can be submitted to it."""
        pools = await self._pools()
        return pool_fault(respool_id, pools) or await self._bounds(respool_id, pools)

    async def _bounds(self, respool_id: str, pools: tuple[PoolSpec, ...]) -> PoolBounds:
        return pool_bounds(respool_id, pools, await self._hosts.capacity(), await self._hosts.kinds())

    async def refusal(self, config: job_pb2.JobConfig, first_instance: int = 0) -> str:
        """Return the reason to reject the config, or ""; ``first_instance`` skips existing instances of a growing
        job."""
        pools = await self._pools()
        fault = pool_fault(config.respoolID.value, pools)
        return fault or (await self._find_faults(config, pools, first_instance)).message()

    async def _find_faults(
        self, config: job_pb2.JobConfig, pools: tuple[PoolSpec, ...], first_instance: int = 0
    ) -> Faults:
        """Return the faults of a configuration, none of them by a capacity that has grown meanwhile."""
        bounds = await self._bounds(config.respoolID.value, pools)
        faults: Faults = await self._calls.run(job_faults, config, bounds, first_instance)
        if faults:
            await self._hosts.refresh(REFUSAL_AGE_MAX_S)
            if (now := await self._bounds(config.respoolID.value, pools)) != bounds:
                return await self._calls.run(job_faults, config, now, first_instance)
        return faults

    async def _pools(self) -> tuple[PoolSpec, ...]:
        return await self._calls.run(self._pool_records.specs)

    async def new_config(self, spec: stateless_pb2.JobSpec, now_ns: int) -> job_pb2.JobConfig:
        """Convert the spec of a new service. Raises NotFound, Unimplemented and InvalidArgument."""
        with prefix_error("failed to validate resource pool"):
            await self.check_pool(spec.respool_id.value)
        return await self.config_of(spec, now_ns)

    async def config_of(self, spec: stateless_pb2.JobSpec, now_ns: int) -> job_pb2.JobConfig:
        """Convert and validate a spec. Raises Unimplemented and InvalidArgument."""
        with prefix_error("failed to convert job spec"):
            config = await self._calls.run(convert_v1_spec.job_config, spec)
            if refusal := kind_refusals(config, await self._hosts.kinds()):
                raise Unimplemented(refusal)
        with prefix_error("input cannot contain secret volume"):
            if fault := secret_fault(config, is_new=True):
                raise InvalidArgument(fault)
        with prefix_error("invalid job spec"):
            await self.check(config)
        config.changeLog.CopyFrom(peloton_pb2.ChangeLog(version=1, createdAt=now_ns, updatedAt=now_ns))
        return config

    async def check(self, config: job_pb2.JobConfig) -> None:
        """Validate a configuration and clamp its retries. Raises InvalidArgument with all faults."""
        await self._calls.run(clamp_max_failures, config)
        if faults := await self._find_faults(config, await self._pools()):
            raise InvalidArgument(faults.message())


def kind_refusals(config: job_pb2.JobConfig, kinds: frozenset[str]) -> str:
    """Return the reason why some pod of the job can run in none of the clusters, or ""."""
    pods = (config.defaultConfig, *config.instanceConfig.values())
    return next((text for pod in pods if (text := kind_refusal(pod, kinds))), "")


def check_immutable(record: JobRecord, config: job_pb2.JobConfig) -> None:
    """Raise InvalidArgument for changes that a replacement cannot make."""
    if convert.JOB_TYPES.get(config.type) is not record.type:
        raise InvalidArgument("job type is immutable")
    if config.respoolID.value != record.respool_id:
        raise InvalidArgument("resource pool identifier is immutable")
