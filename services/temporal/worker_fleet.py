"""Reads and writes the fleet of workers, a worker deployment of Temporal.

Workers report by heartbeats, which the SDK sends for each worker object: identity, start, and tasks since then.
Metadata of a version hold the rest: the reason why it was rejected, and the starts of its workers. A worker that stops
cleanly removes its start, so the remaining starts are of workers that crashed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import timedelta
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1 import Payload
from temporalio.api.deployment.v1 import WorkerDeploymentInfo, WorkerDeploymentVersion
from temporalio.api.enums.v1 import (
    TaskQueueType,
    WorkerDeploymentVersionStatus,
    WorkerStatus,
    WorkerVersioningMode,
)
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.worker.v1 import WorkerHeartbeat, WorkerSlotsInfo
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeTaskQueueResponse,
    DescribeWorkerDeploymentRequest,
    DescribeWorkerDeploymentResponse,
    DescribeWorkerDeploymentVersionRequest,
    ListWorkersRequest,
    SetWorkerDeploymentCurrentVersionRequest,
    SetWorkerDeploymentRampingVersionRequest,
    UpdateWorkerDeploymentVersionMetadataRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from peloton.lifecycle.worker_ramp import CRASH_WINDOW_S, Act, Decision, Fleet, Tasks, Version, count_crashes
from peloton.lifecycle.worker_versions import UNVERSIONED, WorkerVersions
from services.temporal.connection import HEARTBEAT
from services.temporal.payloads import CONVERTER
from services.temporal.task_queues import BATCH_QUEUE, RPC_TIMEOUT

log = logging.getLogger(__name__)

DEPLOYMENT = "peloton"
POLL_S = 75.0
"""Seconds within which a live worker polls: a poll lasts a minute."""
SILENCE_S = 10 * HEARTBEAT.total_seconds()
"""Seconds without a heartbeat after which a worker counts as dead. A stopped worker reports its stop."""
RETRYING: Any = {"retry": True, "timeout": RPC_TIMEOUT}
"""Options of calls about the deployment. The server refuses these while a workflow of its own, which keeps the
deployment, begins its next run; the SDK repeats them."""
WORKERS_PER_PAGE, WORKER_PAGES_MAX = 1_000, 10
VERSIONS_MAX = 20
"""Versions whose metadata one read fetches, one call each."""
STARTS_MAX = 20
"""Starts of workers in the metadata of a version."""
VERDICT, START = "peloton-verdict", "peloton-start/"
"""Keys of the metadata of a version: why it was given up, and ``START<milliseconds>/<identity>`` of a worker."""


async def read_versions(client: Client) -> WorkerVersions:
    """Return the versions and live workers, by calls that the server permits often. Raises RPCError."""
    now_s = time.time()
    queue = await _queue(client)
    current = queue.versioning_info.current_deployment_version
    is_managed = current.deployment_name == DEPLOYMENT
    at_work = _at_work(await _beats(client, now_s), queue, now_s)
    return WorkerVersions(current.build_id if is_managed else UNVERSIONED, at_work)


async def read_fleet(client: Client, *, with_past: bool = False) -> Fleet:
    """Return the versions that have workers, are current or ramp; ``with_past`` adds the latest of the others. The
    server answers this only a few times a second. Raises RPCError."""
    now_s = time.time()
    beats, queue = await _beats(client, now_s), await _queue(client)
    at_work, described = _at_work(beats, queue, now_s), await _deployment(client)
    info = described.worker_deployment_info
    routing = info.routing_config
    current, ramping = routing.current_deployment_version, routing.ramping_deployment_version
    named = {current.build_id, ramping.build_id, *at_work} - {UNVERSIONED}
    latest = sorted(info.version_summaries, key=lambda one: -one.create_time.ToNanoseconds())
    shown = [one for one in latest if one.deployment_version.build_id in named]
    if with_past:
        shown += [one for one in latest if one not in shown]
    versions = [await _version(client, one, beats, now_s) for one in shown[:VERSIONS_MAX]]
    return Fleet(
        current.build_id,
        at_work,
        {one.build: one for one in versions},
        ramping.build_id,
        percent=routing.ramping_version_percentage if ramping.build_id else 0.0,
        step_since_s=_seconds(routing.ramping_version_percentage_changed_time),
        token=described.conflict_token,
    )


async def verdicts_of(client: Client, versions: Iterable[str]) -> Set[str]:
    """Return the rejected ones of the versions. Raises RPCError."""
    return {one for one in versions if VERDICT in await _metadata(client, one)}


async def _deployment(client: Client) -> DescribeWorkerDeploymentResponse:
    """Return the deployment; an empty one before its first worker."""
    request = DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=DEPLOYMENT)
    try:
        return await client.workflow_service.describe_worker_deployment(request, **RETRYING)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return DescribeWorkerDeploymentResponse()
        raise


async def _version(
    client: Client,
    summary: WorkerDeploymentInfo.WorkerDeploymentVersionSummary,
    beats: Sequence[WorkerHeartbeat] | None,
    now_s: float,
) -> Version:
    build = summary.deployment_version.build_id
    metadata = await _metadata(client, build)
    own_beats = [beat for beat in beats or () if beat.deployment_version.build_id == build]
    starts = [_start_of(key) for key in metadata if key.startswith(START)]
    up = {beat.worker_identity for beat in own_beats}
    is_draining = summary.status == WorkerDeploymentVersionStatus.WORKER_DEPLOYMENT_VERSION_STATUS_DRAINING
    since = summary.current_since_time, summary.ramping_since_time, summary.last_deactivation_time, summary.create_time
    created_s = _seconds(summary.create_time)
    return Version(
        build,
        created_s,
        since_s=next((_seconds(one) for one in since if _seconds(one)), 0.0),
        is_draining=is_draining,
        workers=len(up),
        # A server without heartbeats shows only the polls of a worker.
        up_since_s=min((_seconds(beat.start_time) for beat in own_beats), default=created_s if beats is None else 0.0),
        workflow_tasks=_tasks(beat.workflow_task_slots_info for beat in own_beats),
        activities=_tasks(
            slots for beat in own_beats for slots in (beat.activity_task_slots_info, beat.local_activity_slots_info)
        ),
        crashes=count_crashes(starts, up if beats is not None else {who for who, _ in starts}, now_s),
        verdict=str(CONVERTER.payload_converter.from_payload(metadata[VERDICT])) if VERDICT in metadata else "",
    )


def _tasks(slots: Iterable[WorkerSlotsInfo]) -> Tasks:
    counts = [(one.total_processed_tasks, one.total_failed_tasks) for one in slots]
    failed = sum(count for _, count in counts)
    return Tasks(sum(count for count, _ in counts) - failed, failed)


async def describe_queue(
    client: Client, name: str, kind: TaskQueueType.ValueType, timeout: timedelta = RPC_TIMEOUT
) -> DescribeTaskQueueResponse:
    """Return the pollers of a task queue, and which version is current there. Raises RPCError."""
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=name), task_queue_type=kind
    )
    return await client.workflow_service.describe_task_queue(request, timeout=timeout)


async def _queue(client: Client) -> DescribeTaskQueueResponse:
    return await describe_queue(client, BATCH_QUEUE, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW)


def _at_work(beats: Sequence[WorkerHeartbeat] | None, queue: DescribeTaskQueueResponse, now_s: float) -> Set[str]:
    """Return versions by heartbeats, which end when a worker is stopped, and until the first one by its polls. By polls
    alone where there are no heartbeats: on an older server, and of workers without a version."""
    if beats is None:
        return polling(queue, now_s - POLL_S)
    just_now = polling(queue, now_s - 5 * HEARTBEAT.total_seconds())
    beating = {beat.deployment_version.build_id for beat in beats}
    return beating | just_now | polling(queue, now_s - POLL_S) & {UNVERSIONED}


def polling(queue: DescribeTaskQueueResponse, since_s: float) -> Set[str]:
    """Return the versions whose workers have polled the queue since then, UNVERSIONED for workers without one."""
    versioned = WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED
    fresh = [poller for poller in queue.pollers if _seconds(poller.last_access_time) > since_s]
    options = [poller.deployment_options for poller in fresh]
    return {one.build_id if one.worker_versioning_mode == versioned else UNVERSIONED for one in options}


async def list_heartbeats(client: Client, timeout: timedelta = RPC_TIMEOUT) -> list[WorkerHeartbeat]:
    """Return the last heartbeat of each worker that the server lists, including stopped ones. Raises RPCError:
    UNIMPLEMENTED on a server without heartbeats.
    """
    found, page = list[WorkerHeartbeat](), b""
    for _ in range(WORKER_PAGES_MAX):
        request = ListWorkersRequest(namespace=client.namespace, page_size=WORKERS_PER_PAGE, next_page_token=page)
        answer = await client.workflow_service.list_workers(request, timeout=timeout)
        found += [one.worker_heartbeat for one in answer.workers_info]
        page = answer.next_page_token
        if not page:
            break
    return found


async def _beats(client: Client, now_s: float) -> Sequence[WorkerHeartbeat] | None:
    """Return the latest heartbeats of live workers; None when the server lists no worker, as it has no heartbeats or
    has just restarted.
    """
    try:
        found = await list_heartbeats(client)
    except RPCError as error:
        if error.status is not RPCStatusCode.UNIMPLEMENTED:
            raise
        return None
    own_beats = [beat for beat in found if beat.deployment_version.deployment_name == DEPLOYMENT]
    up = [
        beat
        for beat in own_beats
        if beat.status == WorkerStatus.WORKER_STATUS_RUNNING and _seconds(beat.heartbeat_time) > now_s - SILENCE_S
    ]
    return up if own_beats else None


def _seconds(time: Timestamp) -> float:
    return time.ToNanoseconds() / 1e9


# -- writing ---------------------------------------------------------------------------------------------------------


async def apply(client: Client, fleet: Fleet, decision: Decision) -> None:
    """Apply a decision to this fleet. Raises RPCError: FAILED_PRECONDITION when the fleet has changed since."""
    match decision.act:
        case Act.MAKE_CURRENT:
            await set_current(client, decision.build, fleet.token)
        case Act.RAMP:
            await set_ramping(client, decision.build, decision.percent, fleet.token)
        case Act.GIVE_UP:
            await give_up(client, decision.build, decision.reason)
            if fleet.ramping == decision.build:
                await set_ramping(client, UNVERSIONED, 0.0, fleet.token)
        case Act.STOP_RAMP:
            await set_ramping(client, UNVERSIONED, 0.0, fleet.token)
        case Act.HOLD:
            return
    is_bad = decision.act is Act.GIVE_UP
    share = f" to {decision.percent:g} % of the workflows" if decision.act is Act.RAMP else ""
    say = log.warning if is_bad else log.info
    say("version %s of the workers: %s%s: %s", decision.build, decision.act, share, decision.reason)


async def set_current(client: Client, version: str, token: bytes = b"") -> None:
    """Make a version current. Raises RPCError: FAILED_PRECONDITION when its workers do not poll all task queues yet, or
    when the fleet is no longer that of the token.
    """
    await client.workflow_service.set_worker_deployment_current_version(
        SetWorkerDeploymentCurrentVersionRequest(
            namespace=client.namespace,
            deployment_name=DEPLOYMENT,
            build_id=version,
            conflict_token=token,
            identity=client.identity,
        ),
        **RETRYING,
    )
    log.info("new workflows start on workers of version %s", version or "none, as releases up to 0.1 have")


async def set_ramping(client: Client, version: str, percent: float, token: bytes = b"") -> bytes:
    """Route this share of the workflows to the version, or none by 0 percent of "". Return the token of the fleet after
    the change. Raises RPCError as ``set_current`` does.
    """
    answer = await client.workflow_service.set_worker_deployment_ramping_version(
        SetWorkerDeploymentRampingVersionRequest(
            namespace=client.namespace,
            deployment_name=DEPLOYMENT,
            build_id=version,
            percentage=percent,
            conflict_token=token,
            identity=client.identity,
        ),
        **RETRYING,
    )
    return answer.conflict_token


async def give_up(client: Client, version: str, reason: str) -> None:
    """Record that the version must not ramp by itself. Raises RPCError."""
    await _remember(client, version, {VERDICT: CONVERTER.payload_converter.to_payload(reason)})


async def pardon(client: Client, version: str) -> None:
    """Forget why the version was given up, and the crashes of its workers. Raises RPCError."""
    metadata = await _metadata(client, version)
    await _remember(client, version, {}, [key for key in metadata if key == VERDICT or key.startswith(START)])


async def note_start(client: Client, version: str, at_s: float) -> bool:
    """Record that this process has started a worker. Return False when the server does not list the version yet; its
    first poll registers it. Raises RPCError.
    """
    try:
        metadata = await _metadata(client, version, must_exist=True)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    starts = sorted((key for key in metadata if key.startswith(START)), key=lambda key: -_start_of(key)[1])
    old = [key for at, key in enumerate(starts, 1) if at >= STARTS_MAX or _start_of(key)[1] < at_s - CRASH_WINDOW_S]
    await _remember(client, version, {_key_of(client, at_s): CONVERTER.payload_converter.to_payload(None)}, old)
    return True


async def forget_start(client: Client, version: str, at_s: float) -> None:
    """Remove the record of ``note_start``: the worker stops cleanly. Raises RPCError."""
    await _remember(client, version, {}, [_key_of(client, at_s)])


def _key_of(client: Client, at_s: float) -> str:
    return f"{START}{at_s * 1e3:.0f}/{client.identity}"


def _start_of(key: str) -> tuple[str, float]:
    """Return the identity, and the start in unix seconds."""
    milliseconds, _, identity = key.removeprefix(START).partition("/")
    return identity, int(milliseconds) / 1e3


async def _metadata(client: Client, version: str, *, must_exist: bool = False) -> Mapping[str, Payload]:
    request = DescribeWorkerDeploymentVersionRequest(
        namespace=client.namespace, deployment_version=_make_version(version)
    )
    try:
        described = await client.workflow_service.describe_worker_deployment_version(request, **RETRYING)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND and not must_exist:
            return {}
        raise
    return dict(described.worker_deployment_version_info.metadata.entries)


async def _remember(client: Client, version: str, entries: Mapping[str, Payload], removed: Sequence[str] = ()) -> None:
    if not entries and not removed:
        return
    await client.workflow_service.update_worker_deployment_version_metadata(
        UpdateWorkerDeploymentVersionMetadataRequest(
            namespace=client.namespace,
            deployment_version=_make_version(version),
            upsert_entries=entries,
            remove_entries=removed,
            identity=client.identity,
        ),
        **RETRYING,
    )


def _make_version(version: str) -> WorkerDeploymentVersion:
    return WorkerDeploymentVersion(deployment_name=DEPLOYMENT, build_id=version)
