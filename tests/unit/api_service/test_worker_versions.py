"""Peloton's WorkerVersionService: versions of the workers on the wire, and refusals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api.v0.workers import workers_pb2 as pb
from peloton.api.v0.workers.workers_pb2_grpc import WorkerVersionServiceStub
from peloton.errors import Aborted
from peloton.lifecycle.worker_ramp import Act, Decision, Fleet, Outlook, Promotion, Tasks, Version
from services.api.server import start
from services.storage.storage import Storage
from tests.unit.api_service.fakes import OneSandbox, RecordedWakes
from tests.unit.api_service.story import expect_refusal

Status = grpc.StatusCode


class Deployment:
    """A deployment with an old version and a new one that ramps."""

    def __init__(self) -> None:
        self.promoted: list[tuple[str, float]] = []

    async def read(self) -> Outlook:
        old = Version("old", 10.0, since_s=11.0, workers=2)
        new = Version("new", 20.0, 21.5, False, 1, 22.0, Tasks(30, 1), Tasks(40, 2), crashes=1)
        fleet = Fleet("old", {"old", "new"}, {"old": old, "new": new}, "new", 25.0, 30.0)
        return Outlook(fleet, Decision(Act.HOLD, "new", "70 of 200 tasks done", 25.0), Promotion.AUTO)

    async def promote(self, build: str, percent: float) -> Outlook:
        self.promoted.append((build, percent))
        return await self.read()

    async def roll_back(self) -> Outlook:
        raise Aborted("no version older than the current one, old, has a worker")


@pytest.fixture
def deployment() -> Deployment:
    return Deployment()


@pytest.fixture
async def address(
    storage: Storage, wakes: RecordedWakes, hosts: OneSandbox, deployment: Deployment
) -> AsyncIterator[str]:
    server = await start(storage, wakes, lambda _: None, "127.0.0.1:0", hosts, workers=deployment)
    yield f"127.0.0.1:{server.port}"
    await server.stop(0)


@pytest.fixture
def workers(channel: grpc.aio.Channel) -> Any:
    return WorkerVersionServiceStub(channel)


async def test_versions_are_listed_the_newest_first(workers: Any) -> None:
    """Each version has its share, its workers, its tasks, and its reason."""
    answer = await workers.QueryWorkerVersions(pb.QueryWorkerVersionsRequest())

    new = pb.WorkerVersion(
        version="new",
        state="RAMPING",
        percent=25.0,
        worker_count=1,
        since_time="1970-01-01T00:00:21Z",
        workflow_tasks_done=30,
        workflow_tasks_failed=1,
        activities_done=40,
        activities_failed=2,
        crash_count=1,
        reason="70 of 200 tasks done",
    )
    old = pb.WorkerVersion(
        version="old", state="CURRENT", percent=75.0, worker_count=2, since_time="1970-01-01T00:00:11Z"
    )
    assert pb.QueryWorkerVersionsResponse(versions=[new, old], promotion="auto") == answer


async def test_a_version_is_promoted_by_name_and_share(workers: Any, deployment: Deployment) -> None:
    """The version runs all workflows if no percentage is given."""
    for percent in (0, 10):
        request = pb.PromoteWorkerVersionRequest(version="new", percent=percent)
        assert 2 == len((await workers.PromoteWorkerVersion(request)).versions)

    assert [("new", 0), ("new", 10)] == deployment.promoted


async def test_what_cannot_be_meant_changes_nothing(workers: Any, deployment: Deployment) -> None:
    """The error names object, rule and numbers."""
    assert (
        Status.INVALID_ARGUMENT,
        "version has 0 characters, want 1 to 200: name one that workers have",
    ) == await expect_refusal(workers.PromoteWorkerVersion(pb.PromoteWorkerVersionRequest()))
    assert (Status.INVALID_ARGUMENT, "percent is 100, at most 99, or 0 for all workflows") == await expect_refusal(
        workers.PromoteWorkerVersion(pb.PromoteWorkerVersionRequest(version="new", percent=100))
    )
    assert (Status.ABORTED, "no version older than the current one, old, has a worker") == await expect_refusal(
        workers.RollBackWorkerVersion(pb.RollBackWorkerVersionRequest())
    )
    assert [] == deployment.promoted
