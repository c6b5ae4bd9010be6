"""A cache of configurations in their form on the wire."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from peloton.api.convert import new_job_record
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.model.ids import new_job_id
from peloton.model.job import JobRecord
from services.api.calls import Calls
from services.api.stored_configs import StoredConfig, StoredConfigs, answer
from services.storage.storage import Storage
from tests.present import require
from tests.unit.api_service.story import ID, JOB, Config, create, end


class Counted:
    """A storage that counts the reads of configurations."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.reads = 0

    def job_config(self, *args: Any, **kwargs: Any) -> job_pb2.JobConfig | None:
        self.reads += 1
        return self._storage.configs.job_config(*args, **kwargs)

    def overrides_size(self, *args: Any) -> tuple[int, int]:
        return self._storage.configs.overrides_size(*args)


@pytest.fixture
def records(storage: Storage) -> Any:
    return Counted(storage)


def store_job(storage: Storage, config: Config, name: str = "shards") -> JobRecord:
    wanted = config(3, name=name)
    wanted.instanceConfig[1].name = "odd"
    job = new_job_record(new_job_id(), wanted, 1)
    storage.jobs.create(job, wanted, 1)
    return job


async def test_each_is_read_once(records: Any, storage: Storage, calls: Calls, config: Config) -> None:
    """Concurrent and later callers share one read, with its instances, and the limits of the default."""
    configs, job = StoredConfigs(records, calls), store_job(storage, config)

    first, *others = await asyncio.gather(*(configs.of(job) for _ in range(20)))
    later = await configs.of(job)

    assert records.reads == 1
    assert first is not None
    assert all(one is first for one in (*others, later))
    assert job_pb2.JobConfig.FromString(first.wire).instanceConfig[1].name == "odd"
    assert (first.limits.memLimitMb, first.own_count) == (64, 1)


async def test_what_is_kept_is_bounded(records: Any, storage: Storage, calls: Calls, config: Config) -> None:
    """The least recently used configuration is read again beyond the bound, and one above the bound is never cached."""
    jobs = [store_job(storage, config, name) for name in ("one", "two", "six")]
    size = len(require(storage.configs.job_config(jobs[0].job_id, overrides=True)).SerializeToString())
    configs = StoredConfigs(records, calls, bytes_max=size * 2 + size // 2)
    tiny = StoredConfigs(records, calls, bytes_max=1)

    for number in (0, 1, 0, 2, 0, 1):
        await configs.of(jobs[number])
    kept = records.reads
    for _ in range(2):
        await tiny.of(jobs[0])

    assert kept == 4  # the second one twice
    assert records.reads == kept + 2


async def test_unknown(records: Any, storage: Storage, calls: Calls, config: Config) -> None:
    """A missing configuration is not cached."""
    configs, job = StoredConfigs(records, calls), store_job(storage, config)

    assert await configs.of(replace(job, config_version=7)) is None
    assert await configs.of(replace(job, config_version=7)) is None
    assert records.reads == 2


async def test_a_job_with_the_id_of_a_deleted_one(jobs: Any, storage: Storage, config: Config) -> None:
    """The answer has the new job's configuration, although version 1 of the same id was cached."""
    for name in ("before", "after"):
        await create(jobs, config(2, name=name), JOB)
        found = (await jobs.Get(job_pb2.GetRequest(id=ID))).jobInfo.config.name
        end(storage)
        await jobs.Delete(job_pb2.DeleteRequest(id=ID))

        assert found == name


async def test_a_job_that_grows(jobs: Any, config: Config) -> None:
    """A read after the growth has the new configuration."""
    await create(jobs, config(2), JOB)
    found = []
    for count in (2, 5, 7):
        await jobs.Update(job_pb2.UpdateRequest(id=ID, config=config(count)))
        reported = (await jobs.Get(job_pb2.GetRequest(id=ID))).jobInfo.config
        found.append((reported.instanceCount, reported.changeLog.version))

    assert found == [(2, 1), (5, 2), (7, 3)]


@pytest.mark.parametrize("name", ["", "x" * 127, "x" * 128, "x" * 70_000])
def test_answer(name: str) -> None:
    """The bytes equal a message with that configuration."""
    info, config = job_pb2.JobInfo(id=peloton_pb2.JobID(value=JOB)), job_pb2.JobConfig(name=name, instanceCount=1)

    wire = answer(info, StoredConfig(config.SerializeToString(), config.defaultConfig.resource, 0))

    assert job_pb2.GetResponse.FromString(wire).jobInfo == job_pb2.JobInfo(
        id=peloton_pb2.JobID(value=JOB), config=config
    )
