"""TaskConfig of the pods of events: read once for each version of a job, within bounds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless.stateless_pb2 import JobInfo, JobSpec
from peloton.api.v1alpha.job.stateless.svc.stateless_svc_pb2 import GetJobRequest, GetJobResponse
from peloton.api.v1alpha.pod import pod_pb2
from services.aurorabridge.events import tasks as module
from services.aurorabridge.events.tasks import Tasks
from tests.unit.aurorabridge.event_doubles import KEY, error, pod


class Jobs:
    def __init__(self) -> None:
        self.reads: list[str] = []
        self.spec = JobSpec(name="web/prod/shop", owner="ann", instance_count=3)
        self.spec.default_spec.containers.add(image="web:1").resource.cpu_limit = 1

    async def GetJob(self, request: GetJobRequest, timeout: float) -> GetJobResponse:
        self.reads.append(request.version.value)
        if request.version.value == "9-0-0":
            raise error(grpc.StatusCode.NOT_FOUND)
        return GetJobResponse(job_info=JobInfo(spec=self.spec))


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


@pytest.fixture
def tasks(jobs: Jobs) -> Tasks:
    return Tasks(cast(Any, SimpleNamespace(jobs=jobs)))


def at(instance: int, version: str) -> pod_pb2.PodSummary:
    return pod(instance, version=peloton_pb2.EntityVersion(value=version))


async def test_task_of_a_pod(tasks: Tasks, jobs: Jobs) -> None:
    """Pods have the configuration of their own version and instance."""
    jobs.spec.instance_spec[1].containers.add(image="web:2").resource.cpu_limit = 2
    common, pinned = await tasks.of(at(0, "1-0-0")), await tasks.of(at(1, "1-0-0"))

    assert (KEY, KEY, "ann") == (common.job, pinned.job, common.owner.user)
    assert [1.0, 2.0] == [next(one.numCpus for one in each.resources if one.numCpus) for each in (common, pinned)]
    assert ["1-0-0"] == jobs.reads


async def test_pod_whose_version_is_gone(tasks: Tasks) -> None:
    """There is no configuration to publish."""
    assert await tasks.of(at(0, "9-0-0")) is None


async def test_specs_are_bounded(tasks: Tasks, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The specification that was used least recently goes first, by number and by bytes."""
    monkeypatch.setattr(module, "SPECS_MAX", 2)
    for version in ("1-0-0", "2-0-0", "1-0-0", "3-0-0", "1-0-0", "2-0-0"):
        await tasks.of(at(0, version))
    assert ["1-0-0", "2-0-0", "3-0-0", "2-0-0"] == jobs.reads

    monkeypatch.setattr(module, "SPEC_BYTES_MAX", 1)
    await tasks.of(at(0, "4-0-0"))
    assert (0, 0) == (len(tasks._specs), tasks._bytes)
