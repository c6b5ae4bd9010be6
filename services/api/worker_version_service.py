"""Peloton's WorkerVersionService: versions of the workers, as recorded in Temporal."""

from __future__ import annotations

from typing import Any, Protocol

from peloton.api.convert_time import rfc3339_seconds
from peloton.api.v0.workers import workers_pb2 as pb
from peloton.errors import InvalidArgument, Unavailable
from peloton.lifecycle.worker_ramp import Outlook, state_of
from peloton.model.times import NS_PER_S
from services.api.calls import Calls, check_wanted
from services.api.servicer import write

PERCENT_MAX = 99
NAME_MAX = 200


class Workers(Protocol):
    """Port to Temporal; its methods raise Aborted and Unavailable."""

    async def read(self) -> Outlook: ...
    async def promote(self, build: str, percent: float) -> Outlook: ...
    async def roll_back(self) -> Outlook: ...


class NoWorkers:
    """Workers of an api without Temporal."""

    async def read(self) -> Outlook:
        raise Unavailable("this api has no connection to Temporal")

    async def promote(self, build: str, percent: float) -> Outlook:
        return await self.read()

    async def roll_back(self) -> Outlook:
        return await self.read()


class WorkerVersionService:
    def __init__(self, workers: Workers, calls: Calls) -> None:
        self._workers, self._calls = workers, calls

    async def QueryWorkerVersions(
        self, request: pb.QueryWorkerVersionsRequest, context: Any
    ) -> pb.QueryWorkerVersionsResponse:
        seen = await self._workers.read()
        return pb.QueryWorkerVersionsResponse(versions=_wire(seen), promotion=seen.promotion)

    @write
    async def PromoteWorkerVersion(
        self, request: pb.PromoteWorkerVersionRequest, context: Any
    ) -> pb.PromoteWorkerVersionResponse:
        if not request.version or len(request.version) > NAME_MAX:
            length = len(request.version)
            raise InvalidArgument(f"version has {length} characters, want 1 to {NAME_MAX}: name one that workers have")
        if request.percent > PERCENT_MAX:
            raise InvalidArgument(f"percent is {request.percent}, at most {PERCENT_MAX}, or 0 for all workflows")
        check_wanted(context)
        seen = await self._workers.promote(request.version, request.percent)
        return pb.PromoteWorkerVersionResponse(versions=_wire(seen))

    @write
    async def RollBackWorkerVersion(
        self, request: pb.RollBackWorkerVersionRequest, context: Any
    ) -> pb.RollBackWorkerVersionResponse:
        check_wanted(context)
        return pb.RollBackWorkerVersionResponse(versions=_wire(await self._workers.roll_back()))


def _wire(seen: Outlook) -> list[pb.WorkerVersion]:
    builds = reversed(seen.fleet.oldest_first(seen.fleet.versions.keys()))
    return [_version(seen, build) for build in builds]


def _version(seen: Outlook, build: str) -> pb.WorkerVersion:
    version = seen.fleet.version(build)
    return pb.WorkerVersion(
        version=build,
        state=state_of(seen.fleet, build),
        percent=seen.percent_of(build),
        worker_count=version.workers,
        since_time=rfc3339_seconds(int(version.since_s * NS_PER_S)),
        workflow_tasks_done=version.workflow_tasks.done,
        workflow_tasks_failed=version.workflow_tasks.failed,
        activities_done=version.activities.done,
        activities_failed=version.activities.failed,
        crash_count=version.crashes,
        reason=seen.reason_of(build),
    )
