"""Usage of instances, as host managers measure it, with their requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api.private import hostmgr_pb2
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.table import table_pb2
from peloton.api.v0.table.table_pb2_grpc import JobTableServiceStub
from peloton.model.ids import JobId, new_job_id
from services.api.job_table_service import INSTANCES_MAX
from services.storage.storage import Storage
from tests.conformance.storage import builders
from tests.unit.api_service.story import expect_refusal
from tests.unit.api_service.test_overview import World


@pytest.fixture
async def world(storage: Storage) -> AsyncIterator[World]:
    world = World(storage)
    await world.start()
    yield world
    await world.stop()


def a_job(world: World, count: int, cluster: str) -> JobId:
    job_id = builders.a_job(world.storage, count)
    builders.admit(world.storage, job_id)
    builders.launch(world.storage, job_id, cluster=cluster)
    return job_id


async def use(world: World, job_id: str, *instances: int) -> Any:
    request = table_pb2.GetInstanceUseRequest(id=peloton_pb2.JobID(value=job_id), instances=instances)
    return (await JobTableServiceStub(world.channel).GetInstanceUse(request)).instances


async def test_measured_and_not(world: World) -> None:
    """Each instance has its usage and its request; each host manager receives one request."""
    job_id = a_job(world, 3, "east")
    world.managers["east"].uses = [hostmgr_pb2.PodUse(pod_id=f"{job_id}-0-1", cpu_milli=250, memory_mib=60)]
    first, *others = await use(world, job_id)

    assert (0, True, 0.25, 60.0, 1.5, 100.0) == (
        first.instance, first.measured, first.cpuUsed, first.memoryMbUsed, first.cpuAsked, first.memoryMbAsked
    )  # fmt: skip
    assert [(1, False, 0.0), (2, False, 0.0)] == [(one.instance, one.measured, one.cpuUsed) for one in others]
    assert [sorted({first.host, *(one.host for one in others)})] == world.managers["east"].measured


async def test_chosen_instances(world: World) -> None:
    """The answer leaves out instances without a pod on a host."""
    job_id = a_job(world, 3, "east")

    assert [2] == [one.instance for one in await use(world, job_id, 2, 7)]


async def test_a_host_manager_that_does_not_measure(world: World) -> None:
    """The request of an instance is known even if its host manager is older or unavailable."""
    for cluster in ("west", "north"):
        found = await use(world, a_job(world, 2, cluster))
        assert [(False, 1.5), (False, 1.5)] == [(one.measured, one.cpuAsked) for one in found]


async def test_refusals(world: World) -> None:
    """Unknown jobs and too many instances are refused."""
    job_id = a_job(world, 1, "east")

    for unknown in ("", "no-id", new_job_id()):
        code, _ = await expect_refusal(use(world, unknown))
        assert grpc.StatusCode.NOT_FOUND is code
    assert (
        grpc.StatusCode.INVALID_ARGUMENT,
        "101 instances are named, at most 100 are allowed",
    ) == await expect_refusal(use(world, job_id, *range(INSTANCES_MAX + 1)))


async def test_a_job_that_is_on_no_host(world: World) -> None:
    """The answer is empty and no host manager is called."""
    assert [] == list(await use(world, builders.a_job(world.storage, 2)))
    assert [[], []] == [manager.measured for manager in world.managers.values()]
