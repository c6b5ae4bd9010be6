"""Versions of workers in Temporal: which is current, and workflows whose version has no worker any more.

Each worker claims that its version be the current one. The leading resource manager moves workflows that are pinned to
a version without workers. Decisions are in ``lifecycle.worker_versions``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Set

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import (
    TaskQueueType,
    WorkerStatus,
    WorkerVersioningMode,
)
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflow.v1 import VersioningOverride, WorkflowExecutionOptions
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeTaskQueueResponse,
    DescribeWorkerDeploymentRequest,
    ListWorkersRequest,
    SetWorkerDeploymentCurrentVersionRequest,
    UpdateWorkflowExecutionOptionsRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from peloton.lifecycle.worker_versions import UNVERSIONED, WorkerVersions
from services.recheck import Recheck
from services.temporal import BATCH_QUEUE, RPC_TIMEOUT
from services.temporal_connection import HEARTBEAT

log = logging.getLogger(__name__)

DEPLOYMENT = "peloton"
POLL_S = 75.0
"""Within which a worker that is there asks for work: a poll lasts a minute."""
SILENCE_S = 4 * HEARTBEAT.total_seconds()
"""After which a worker that sends heartbeats is taken for dead. One that is stopped says so."""
RETRY_S, PERIOD_S = 0.5, 5.0
"""Between looks: while something is to be done, and afterwards."""
FAILURES_SHOWN = 20
"""In a row, before the log says so, once."""
WORKER_PAGES_MAX = 100
MOVES_IN_FLIGHT_MAX = 50
MOVED_MAX = 100_000
"""In one look: as many as there may be jobs."""


async def look(client: Client) -> WorkerVersions:
    """Raises RPCError."""
    now_s = time.time()
    queue = await _queue(client)
    current = queue.versioning_info.current_deployment_version
    is_ours = current.deployment_name == DEPLOYMENT
    return WorkerVersions(current.build_id if is_ours else UNVERSIONED, await _at_work(client, queue, now_s))


async def created(client: Client) -> dict[str, float]:
    """Versions, and when the server saw them first. It answers this only a few times a second. Raises RPCError."""
    request = DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=DEPLOYMENT)
    described = await client.workflow_service.describe_worker_deployment(request, timeout=RPC_TIMEOUT)
    versions = described.worker_deployment_info.version_summaries
    return {one.deployment_version.build_id: _seconds(one.create_time) for one in versions}


async def _queue(client: Client) -> DescribeTaskQueueResponse:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=BATCH_QUEUE),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    return await client.workflow_service.describe_task_queue(request, timeout=RPC_TIMEOUT)


async def _at_work(client: Client, queue: DescribeTaskQueueResponse, now_s: float) -> Set[str]:
    """Versions by heartbeats, which end when a worker is stopped, and until the first one by its polls. By polls alone
    where there are no heartbeats: on an older server, and of workers without a version."""
    try:
        found = await _beating(client, now_s)
    except RPCError as error:
        if error.status is not RPCStatusCode.UNIMPLEMENTED:
            raise
        return _polling(queue, now_s - POLL_S)
    just_now = _polling(queue, now_s - 2 * HEARTBEAT.total_seconds())
    return found | just_now | _polling(queue, now_s - POLL_S) & {UNVERSIONED}


def _polling(queue: DescribeTaskQueueResponse, since_s: float) -> Set[str]:
    versioned = WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED
    fresh = [poller for poller in queue.pollers if _seconds(poller.last_access_time) > since_s]
    options = [poller.deployment_options for poller in fresh]
    return {one.build_id if one.worker_versioning_mode == versioned else UNVERSIONED for one in options}


async def _beating(client: Client, now_s: float) -> Set[str]:
    found, page = set[str](), b""
    for _ in range(WORKER_PAGES_MAX):
        request = ListWorkersRequest(namespace=client.namespace, next_page_token=page)
        answer = await client.workflow_service.list_workers(request, timeout=RPC_TIMEOUT)
        beats = [one.worker_heartbeat for one in answer.workers_info]
        found |= {
            beat.deployment_version.build_id
            for beat in beats
            if beat.deployment_version.deployment_name == DEPLOYMENT
            and beat.status == WorkerStatus.WORKER_STATUS_RUNNING
            and _seconds(beat.heartbeat_time) > now_s - SILENCE_S
        }
        page = answer.next_page_token
        if not page:
            break
    return found


def _seconds(time: Timestamp) -> float:
    return time.ToNanoseconds() / 1e9


async def set_current(client: Client, version: str) -> None:
    """Raises RPCError when its workers do not ask for work on all task queues yet."""
    await client.workflow_service.set_worker_deployment_current_version(
        SetWorkerDeploymentCurrentVersionRequest(
            namespace=client.namespace,
            deployment_name=DEPLOYMENT,
            build_id=version,
            identity=client.identity,
        ),
        timeout=RPC_TIMEOUT,
    )
    log.info("workflows begin on workers of version %s", version or "none, as releases up to 0.1 have")


class _Watch(ABC):
    """Looks at the versions from time to time, until it is closed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._task = asyncio.create_task(self._run(), name=type(self).__name__)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        failures = 0
        while True:
            is_settled = False
            try:
                is_settled, failures = await self._act(await look(self._client)), 0
            except RPCError as error:  # as long as a new worker has not asked for work on all task queues
                failures += 1
                if failures == FAILURES_SHOWN:
                    log.warning("versions of workers in Temporal: %s", error)
            await asyncio.sleep(PERIOD_S if is_settled else RETRY_S)

    @abstractmethod
    async def _act(self, seen: WorkerVersions) -> bool:
        """Whether nothing is left to do. Raises RPCError."""


class VersionClaim(_Watch):
    """Of a worker: makes its version the current one when it should be."""

    def __init__(self, client: Client, version: str) -> None:
        self._version = version
        self._created_s: dict[str, float] = {}
        super().__init__(client)

    async def _act(self, seen: WorkerVersions) -> bool:
        if seen.current == self._version:
            return True
        is_served = seen.current in seen.at_work - {UNVERSIONED}
        if is_served and not self._created_s.keys() >= {seen.current, self._version}:
            self._created_s = await created(self._client)
        if seen.is_claimed_by(self._version, self._created_s):
            await set_current(self._client, self._version)
        return True


class VersionKeeper(_Watch):
    """Of the leading resource manager: moves workflows to the current version whose own one has no workers."""

    current = ""
    """As the search attribute of runs names it; empty while workers have none."""

    def __init__(self, client: Client) -> None:
        self._moves = Recheck()  # versions lose their workers when the set of those at work changes
        super().__init__(client)

    async def _act(self, seen: WorkerVersions) -> bool:
        self.current = f"{DEPLOYMENT}:{seen.current}" if seen.current != UNVERSIONED else ""
        if seen.is_rolled_back:
            await set_current(self._client, UNVERSIONED)
            return False
        if seen.can_take_over and self._moves.is_due(seen.at_work):
            await self._move_all(seen.at_work)
        return True

    async def _move_all(self, at_work: Set[str]) -> None:
        served = ", ".join(f"'{DEPLOYMENT}:{version}'" for version in sorted(at_work))
        query = (
            f"ExecutionStatus = 'Running' AND TemporalWorkerDeployment = '{DEPLOYMENT}' "
            f"AND TemporalWorkflowVersioningBehavior = 'Pinned' AND TemporalWorkerDeploymentVersion NOT IN ({served})"
        )
        found = [one.id async for one in self._client.list_workflows(query, limit=MOVED_MAX, rpc_timeout=RPC_TIMEOUT)]
        if found:
            log.info("%d workflows are pinned to versions without workers, and go on with the current one", len(found))
            self._moves.has_found()
        slots = asyncio.Semaphore(MOVES_IN_FLIGHT_MAX)
        await asyncio.gather(*(self._unpin(workflow_id, slots) for workflow_id in found))

    async def _unpin(self, workflow_id: str, slots: asyncio.Semaphore) -> None:
        """Until the end of its run."""
        request = UpdateWorkflowExecutionOptionsRequest(
            namespace=self._client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=workflow_id),
            workflow_execution_options=WorkflowExecutionOptions(
                versioning_override=VersioningOverride(auto_upgrade=True)
            ),
            update_mask=FieldMask(paths=["versioning_override"]),
            identity=self._client.identity,
        )
        async with slots:
            try:
                await self._client.workflow_service.update_workflow_execution_options(request, timeout=RPC_TIMEOUT)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:  # it has ended meanwhile
                    raise
