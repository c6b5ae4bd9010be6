"""Daemons in the API of jobs."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v0.update import update_pb2
from peloton.api.v0.update.svc import update_svc_pb2
from peloton.model.ids import Hostname
from peloton.model.job import JobState
from peloton.model.pod import PodState
from services.storage.storage import Storage
from tests.unit.api_service.story import ID, JOB, LEAF, NOW_NS

HOSTS = [Hostname("a"), Hostname("b")]


def a_config(count: int = 0) -> job_pb2.JobConfig:
    config = job_pb2.JobConfig(name="logs", type=job_pb2.DAEMON, owningTeam="infra", instanceCount=count)
    config.respoolID.value = LEAF
    config.defaultConfig.command.value = "collect"
    config.defaultConfig.resource.cpuLimit = 0.5
    return config


async def a_daemon(jobs: Any, storage: Storage) -> None:
    """Create a daemon on two hosts."""
    answer = await jobs.Create(job_pb2.CreateRequest(id=ID, config=a_config()))
    assert JOB == answer.jobId.value
    storage.daemons.follow(JOB, "local", HOSTS, NOW_NS)
    storage.jobs.settle(JOB, NOW_NS)


async def test_a_daemon_is_created_without_a_number(jobs: Any, storage: Storage) -> None:
    """The daemon's instance count is the number of its hosts."""
    await a_daemon(jobs, storage)
    info = (await jobs.Get(job_pb2.GetRequest(id=ID))).jobInfo
    assert (job_pb2.DAEMON, 2, "collect") == (
        info.config.type, info.config.instanceCount, info.config.defaultConfig.command.value
    )  # fmt: skip


async def test_a_daemon_with_a_number_is_refused(jobs: Any, storage: Storage) -> None:
    """The count is refused, since it would change with the hosts."""
    answer = await jobs.Create(job_pb2.CreateRequest(id=ID, config=a_config(3)))
    assert "instanceCount is 3: a daemon has an instance on each host" in answer.error.invalidConfig.message
    assert storage.jobs.get(JOB) is None


async def test_it_is_stopped_as_any_job(jobs: Any, tasks: Any, storage: Storage) -> None:
    """All instances stop."""
    await a_daemon(jobs, storage)
    answer = await tasks.Stop(task_pb2.StopRequest(jobId=ID))
    assert [0, 1] == list(answer.stoppedInstanceIds)
    storage.jobs.settle(JOB, NOW_NS)
    assert [PodState.KILLED] * 2 == [pod.state for pod in storage.pods.page(JOB)]


@pytest.mark.parametrize("count", [0, 2])
async def test_it_is_started_again(jobs: Any, tasks: Any, storage: Storage, count: int) -> None:
    """A daemon that never had a host starts as well: hosts that join receive its instances."""
    await jobs.Create(job_pb2.CreateRequest(id=ID, config=a_config()))
    storage.daemons.follow(JOB, "local", HOSTS[:count], NOW_NS)
    await tasks.Stop(task_pb2.StopRequest(jobId=ID))
    storage.jobs.settle(JOB, NOW_NS)
    stopped = storage.jobs.get(JOB)
    assert stopped is not None
    assert JobState.KILLED is stopped.state
    answer = await tasks.Start(task_pb2.StartRequest(jobId=ID))
    assert list(range(count)) == list(answer.startedInstanceIds)
    storage.jobs.settle(JOB, NOW_NS)
    storage.daemons.follow(JOB, "local", HOSTS, NOW_NS)
    assert [JOB] == [daemon.job_id for daemon in storage.daemons.list_wanted()]
    assert [PodState.RUNNING] * 2 == [pod.goal for pod in storage.pods.page(JOB)]


async def test_it_is_updated_as_it_was_read(jobs: Any, updates: Any, storage: Storage) -> None:
    """The update keeps the daemon's hosts."""
    await a_daemon(jobs, storage)
    config = (await jobs.Get(job_pb2.GetRequest(id=ID))).jobInfo.config
    config.defaultConfig.command.value = "collect --more"
    await updates.CreateUpdate(
        update_svc_pb2.CreateUpdateRequest(
            jobId=ID, jobConfig=config, updateConfig=update_pb2.UpdateConfig(batchSize=1)
        )
    )
    record = storage.jobs.get(JOB)
    assert record is not None
    assert (2, 2, True) == (record.instance_count, record.config_version, bool(record.update_id))


async def test_it_does_not_grow_by_hand(jobs: Any, storage: Storage) -> None:
    """Instances follow the hosts, so an update of the count is refused."""
    await a_daemon(jobs, storage)
    with pytest.raises(grpc.aio.AioRpcError, match="job update is only supported for batch jobs"):
        await jobs.Update(job_pb2.UpdateRequest(id=ID, config=a_config(5)))
