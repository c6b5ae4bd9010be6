"""Volumes count against their pools for as long as they exist."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from peloton.api.convert import new_job_record
from peloton.api.v0.job import job_pb2
from peloton.model.ids import JobId, PodId, RespoolId
from peloton.model.job import JobState
from peloton.model.pod import Cause, PodState, PodStatus
from peloton.model.resources import Resources
from peloton.model.volume import VolumeSpec, VolumeState
from services.resmgr.audit import faults
from services.resmgr.explain.dry_run import make_held_reader
from services.resmgr.loop import AdmissionLoop
from services.resmgr.pool_rules import with_defaults
from services.resmgr.recovery import rebuild
from tests.unit.resmgr.world import FAST, World, facts, pool_config

SIZE_MB, POOL_DISK_MB = 600, 1_000
DISK = 2
"""Place in every amount."""
READY, PENDING = PodState.READY, PodState.PENDING


@pytest.fixture
async def loop(world: World) -> AdmissionLoop:
    """Return a loop that runs a cycle when a test calls for one."""
    found = world.loop(replace(FAST, checks_invariants=True))
    await found.learn_capacity()
    return found


def a_pool(world: World, name: str = "p") -> RespoolId:
    """Create a pool with cpu for many pods, and disk for slightly more than one volume."""
    config = pool_config(name, 40, 40)
    config.resources.add(kind="disk", reservation=POOL_DISK_MB, limit=POOL_DISK_MB, share=1)
    pool_id = RespoolId(str(uuid.uuid4()))
    world.storage.pools.put(pool_id, with_defaults(config))
    return pool_id


def a_database(world: World, pool_id: RespoolId, count: int = 1) -> JobId:
    config = job_pb2.JobConfig(name="database", type=job_pb2.SERVICE, instanceCount=count)
    config.respoolID.value = pool_id
    config.defaultConfig.resource.cpuLimit = 1
    config.defaultConfig.volume.containerPath, config.defaultConfig.volume.sizeMB = "data", SIZE_MB
    job_id = JobId(str(uuid.uuid4()))
    world.storage.jobs.create(new_job_record(job_id, config, 1), config, 1)
    world.storage.pods.create(job_id, lambda _: None)
    world.settle(job_id)
    return job_id


def launch(world: World, job_id: JobId, run: int = 1) -> None:
    wanted = {0: VolumeSpec("data", SIZE_MB)}
    assert {0} == world.storage.host_pods.mark_launched(job_id, [(0, run, "h1", "a1", {})], run, "east", wanted)


def end(world: World, job_id: JobId, run: int = 1, cause: Cause = Cause.HOST_LOST) -> None:
    pod = PodStatus(PodId(job_id, 0, run), PodState.LOST, world.now_ns, "h1", "a1", cause=cause)
    world.storage.host_pods.apply_status([pod], "east")
    world.settle(job_id)


async def admit(loop: AdmissionLoop, *jobs: JobId) -> None:
    for job in jobs:
        await loop.enqueue(job, 100)
    await loop.run_cycle()


async def disk(loop: AdmissionLoop, world: World) -> int:
    """Return the disk of pods and volumes after a cycle; check that memory equals a rebuild and adds up to the listed
    holders.
    """
    await loop.run_cycle()
    held = make_held_reader(loop.state)
    for row, amounts in enumerate(loop.state.accounts.non_slack.tolist()):
        assert amounts[DISK] == sum(one.non_slack[DISK] for one in held(row))
    assert [] == list(faults(loop.state))
    assert facts(rebuild(world.storage)) == facts(loop.state)
    return int(loop.state.accounts.non_slack[:, DISK].sum())


async def test_a_volume_is_admitted_with_its_pod(world: World, loop: AdmissionLoop) -> None:
    """The pool has disk for one of two volumes."""
    pool = a_pool(world)
    first, second = a_database(world, pool), a_database(world, pool)

    await admit(loop, first, second)

    assert [{READY: [0]}, {PENDING: [0]}] == [world.states(job) for job in (first, second)]
    assert SIZE_MB == await disk(loop, world)


async def test_a_volume_counts_between_runs_and_its_pod_comes_back(world: World, loop: AdmissionLoop) -> None:
    """The disk of the volume is not given to another pod, and its own pod demands none."""
    pool = a_pool(world)
    first, second = a_database(world, pool), a_database(world, pool)
    await admit(loop, first, second)

    for run in (1, 2, 3):
        launch(world, first, run)
        assert SIZE_MB == await disk(loop, world)
        end(world, first, run)
        assert SIZE_MB == await disk(loop, world)
        assert {PENDING: [0]} == world.states(second)
        await admit(loop, first)
        assert {READY: [0]} == world.states(first)
        assert SIZE_MB == await disk(loop, world)


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_volume_counts_until_its_host_has_destroyed_it(
    world: World, loop: AdmissionLoop, is_lost: bool
) -> None:
    """The volume counts even when its service is stopped; a volume that was given up with its host does not."""
    pool = a_pool(world)
    first, second = a_database(world, pool), a_database(world, pool)
    await admit(loop, first, second)
    launch(world, first)
    world.storage.jobs.set_goal(first, JobState.KILLED, 1)
    end(world, first)
    assert SIZE_MB == await disk(loop, world)
    (volume,) = world.storage.volumes.page(job_id=first)
    if is_lost:
        world.storage.volumes.note({volume.volume_id: (VolumeState.LOST, "gone")}, 1)
        assert SIZE_MB == await disk(loop, world)

    world.storage.volumes.delete(volume.volume_id, True, 1)

    await loop.run_cycle()
    assert ({READY: [0]} if is_lost else {PENDING: [0]}) == world.states(second)
    world.storage.volumes.delete_destroyed([volume.volume_id])
    await loop.run_cycle()
    assert {READY: [0]} == world.states(second)
    assert SIZE_MB == await disk(loop, world)


async def test_a_volume_that_was_never_made_counts_no_more(world: World, loop: AdmissionLoop) -> None:
    """The pod of a volume that was never made demands the disk again."""
    pool = a_pool(world)
    job = a_database(world, pool)
    await admit(loop, job)
    launch(world, job)

    end(world, job, cause=Cause.RESOURCES_GONE)

    assert 0 == await disk(loop, world)
    await admit(loop, job)
    assert SIZE_MB == await disk(loop, world)


async def test_a_given_up_volume_counts_alongside_the_new_one(world: World, loop: AdmissionLoop) -> None:
    """The old volume counts until its host has destroyed it, so there is disk for one only."""
    pool = a_pool(world)
    job = a_database(world, pool)
    await admit(loop, job)
    launch(world, job)
    end(world, job)
    (volume,) = world.storage.volumes.page(job_id=job)
    world.storage.volumes.delete(volume.volume_id, True, 1)

    await admit(loop, job)

    assert {PENDING: [0]} == world.states(job)
    world.storage.volumes.delete_destroyed([volume.volume_id])
    await loop.run_cycle()
    assert {READY: [0]} == world.states(job)
    assert SIZE_MB == await disk(loop, world)


@pytest.mark.parametrize("is_admitted", [False, True])
@pytest.mark.parametrize("is_given_up", [False, True])
async def test_a_queued_pod_that_loses_its_volume_has_disk_for_another(
    world: World, loop: AdmissionLoop, is_given_up: bool, is_admitted: bool
) -> None:
    """The pod was queued without disk: before and after its launch its new volume counts for it. No other pod is given
    that disk.
    """
    pool = a_pool(world)
    first, second = a_database(world, pool), a_database(world, pool)
    await admit(loop, first)
    launch(world, first)
    end(world, first)
    await loop.enqueue(first, 100)
    if is_admitted:
        await loop.run_cycle()
    (volume,) = world.storage.volumes.page(job_id=first)

    if is_given_up:
        world.storage.volumes.note({volume.volume_id: (VolumeState.LOST, "gone")}, 1)
        world.storage.volumes.delete(volume.volume_id, True, 1)
    else:
        assert world.storage.volumes.let_go(volume, 1, False, 1)

    assert SIZE_MB == await disk(loop, world)
    await admit(loop, second)
    assert [{READY: [0]}, {PENDING: [0]}] == [world.states(job) for job in (first, second)]
    launch(world, first, 2)
    assert SIZE_MB == await disk(loop, world)
    end(world, first, 2)
    assert SIZE_MB == await disk(loop, world)
    assert {PENDING: [0]} == world.states(second)


async def test_a_pool_with_volumes_is_not_idle(world: World, loop: AdmissionLoop) -> None:
    """A pool with volumes is not deleted, and its volumes are counted when its tree changes."""
    pool = a_pool(world)
    job = a_database(world, pool)
    await admit(loop, job)
    launch(world, job)
    world.storage.jobs.set_goal(job, JobState.KILLED, 1)
    end(world, job)
    assert SIZE_MB == await disk(loop, world)

    loop.state.put_pool(replace(loop.state.pools[pool], name="q"))

    row = loop.state.tree.row[pool]
    assert not loop.state.accounts.is_idle(row)
    assert Resources(disk_mib=SIZE_MB) == Resources(*loop.state.accounts.non_slack[row].tolist())
    loop.state.drop_pool(pool)
    loop.state.put_pool(next(one for one in rebuild(world.storage).pools.values() if one.respool_id == pool))
    assert SIZE_MB == loop.state.accounts.non_slack[loop.state.tree.row[pool], DISK]
