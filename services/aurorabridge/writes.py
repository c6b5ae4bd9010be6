"""Methods that change jobs: they start updates, act on the current one, and stop pods.

A start is one write: it creates the job, or replaces its spec at the version that was read before. The id of a new job
follows from its name and its deleted predecessor, so that of two bridges that create a job one is refused; the version
does the same for replacements.

A bridge may die after that write and before its answer. Its client calls again, and means the update that runs already,
while a client that has read the answer and repeats its request wants a new update, which overwrites the old one. The
opaque data of an update have a digest of its request: the same request again is the same call, unless this process
answered it, or the update began more than a minute ago or has failed (see ``mapping.repeats``).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import grpc.aio
from google.protobuf.json_format import MessageToDict

from peloton.api import convert_v1
from peloton.api.convert_time import unix_seconds
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.peloton_pb2 import JobID, OpaqueData
from peloton.model.aurora_update import PULSE
from services.aurorabridge.backend import Backend
from services.aurorabridge.current import config_version, current_pods, find_job, spec_at
from services.aurorabridge.mapping import identity, opaque
from services.aurorabridge.mapping.executor import Thermos
from services.aurorabridge.mapping.job_spec import check_request, job_spec_of
from services.aurorabridge.mapping.opaque import Opaque
from services.aurorabridge.mapping.pins import instance_specs, read_ranges
from services.aurorabridge.mapping.repeats import digest_of, is_repeat
from services.aurorabridge.mapping.resources import needs_gpu
from services.aurorabridge.mapping.update_spec import create_spec, update_spec
from services.aurorabridge.method import Method, Refusal, empty_result
from services.aurorabridge.pools import find_pool
from services.aurorabridge.settings import BridgeSettings
from services.aurorabridge.thrift import api

ANSWERED_MAX = 10_000
"""Maximum number of started updates that a bridge remembers to have answered."""
_NAMESPACE = uuid.UUID("6f1d4a62-3c0f-4f0e-9f0c-6a9b2f7f5b1e")
"""Namespace of the ids of new jobs."""
_INVALID = api.ResponseCode.INVALID_REQUEST
_ROLLED_BACK_FROM = ("ROLLING_FORWARD", "ROLL_FORWARD_PAUSED", "ROLL_FORWARD_AWAITING_PULSE")
_UNDER_WAY = (stateless_pb2.WORKFLOW_STATE_INITIALIZED, stateless_pb2.WORKFLOW_STATE_ROLLING_FORWARD)
PULSES_TRIED = 3
"""Number of times that a pulse is recorded when other writes come between its reading and its writing."""


# -- start ---------------------------------------------------------------------------------------------------------


async def start_job_update(backend: Backend, args: Any) -> Any:
    request, message = args.request, args.message or ""
    task, settings = check_request(request), backend.settings
    # A request that is refused changes nothing, so the pool comes after the checks.
    spec = await asyncio.to_thread(job_spec_of, request, "", thermos_of(settings))
    asked = update_spec(request.settings, settings.in_place)
    began = opaque.begin(str(uuid.uuid4()), request, message, digest_of(spec, request, message))
    spec.respool_id.value = await find_pool(backend, settings.gpu_pool if needs_gpu(task) else settings.pool)
    found = await find_job(backend, spec.name)
    if found.job is None:
        await _create(backend, spec, request.settings, began, found.newest_id)
    elif _is_repeat(backend, found.job, request, began.request):
        began = _opaque_of(found.job)
    else:
        await _replace(backend, found.job, spec, request.settings, asked, began)
    _remember(backend, began.update_id)
    key = api.JobUpdateKey(job=task.job, id=began.update_id)
    return api.Result(startJobUpdateResult=api.StartJobUpdateResult(key=key))


def thermos_of(settings: BridgeSettings) -> Thermos | None:
    if not settings.thermos:
        return None
    return Thermos(
        settings.thermos,
        settings.thermos_flags,
        settings.thermos_resources,
        settings.thermos_cpu,
        settings.thermos_memory_mib,
    )


async def _create(backend: Backend, spec: stateless_pb2.JobSpec, settings: Any, began: Opaque, newest_id: str) -> None:
    job_id = uuid.uuid5(_NAMESPACE, f"{newest_id}/{spec.name}")
    request = svc.CreateJobRequest(
        job_id=JobID(value=str(job_id)),
        spec=spec,
        create_spec=create_spec(settings),
        opaque_data=OpaqueData(data=began.encode()),
        update_key=began.update_id,
    )
    with _refuse_as_invalid(grpc.StatusCode.ALREADY_EXISTS):
        await backend.jobs.CreateJob(request)


async def _replace(
    backend: Backend,
    job: svc.GetJobResponse,
    spec: stateless_pb2.JobSpec,
    settings: Any,
    asked: stateless_pb2.UpdateSpec,
    began: Opaque,
) -> None:
    ranges = settings.updateOnlyTheseInstances if settings is not None else None
    named = read_ranges(ranges, spec.instance_count)
    pods = await current_pods(backend, job.job_info.job_id.value)
    pinned = await asyncio.to_thread(
        instance_specs, pods, spec.default_spec, spec.instance_count, named, str(uuid.uuid4())
    )
    for instance, pod in pinned.items():
        spec.instance_spec[instance].CopyFrom(pod)
    await _replace_job(backend, job, spec, asked, began, began.update_id)


async def _replace_job(
    backend: Backend,
    job: svc.GetJobResponse,
    spec: stateless_pb2.JobSpec,
    asked: stateless_pb2.UpdateSpec,
    data: Opaque,
    key: str,
) -> None:
    request = svc.ReplaceJobRequest(
        **_at(job),
        spec=spec,
        update_spec=asked,
        opaque_data=OpaqueData(data=data.encode()),
        update_key=key,
    )
    with _refuse_as_invalid(grpc.StatusCode.ABORTED):
        await backend.jobs.ReplaceJob(request)


def _is_repeat(backend: Backend, job: svc.GetJobResponse, request: Any, digest: str) -> bool:
    age_s, was_answered = float("inf"), _opaque_of(job).update_id in backend.answered
    with suppress(ValueError, OverflowError):
        age_s = time.time() - unix_seconds(job.workflow_info.status.creation_time)
    return is_repeat(job, digest, request.metadata, was_answered, age_s)


def _remember(backend: Backend, update_id: str) -> None:
    backend.answered[update_id] = None
    if len(backend.answered) > ANSWERED_MAX:
        del backend.answered[next(iter(backend.answered))]


@contextmanager
def _refuse_as_invalid(code: grpc.StatusCode) -> Iterator[None]:
    """Turn a status into a refusal of the request: another call of a client came first."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        if error.code() is not code:
            raise
        raise Refusal(error.details() or code.name, _INVALID) from error


# -- the current update --------------------------------------------------------------------------------------------


async def pause_job_update(backend: Backend, args: Any) -> Any:
    job, _ = await _current(backend, args.key)
    await backend.jobs.PauseJobWorkflow(svc.PauseJobWorkflowRequest(**_at(job)))
    return empty_result()


async def resume_job_update(backend: Backend, args: Any) -> Any:
    job, _ = await _current(backend, args.key)
    await backend.jobs.ResumeJobWorkflow(svc.ResumeJobWorkflowRequest(**_at(job)))
    return empty_result()


async def abort_job_update(backend: Backend, args: Any) -> Any:
    job, _ = await _current(backend, args.key)
    await backend.jobs.AbortJobWorkflow(svc.AbortJobWorkflowRequest(**_at(job)))
    return empty_result()


async def pulse_job_update(backend: Backend, args: Any) -> Any:
    """Let an update that awaits its first pulse continue; a pulse for another one changes nothing."""
    for tried in range(1, PULSES_TRIED + 1):
        job, data = await _current(backend, args.key, _INVALID)
        if not (data.awaits_pulse and _is_paused(job)):
            break
        pulsed = OpaqueData(data=data.and_action(PULSE).encode())
        try:
            await backend.jobs.ResumeJobWorkflow(svc.ResumeJobWorkflowRequest(**_at(job), opaque_data=pulsed))
            break
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.ABORTED or tried == PULSES_TRIED:
                raise
    return api.Result(pulseJobUpdateResult=api.PulseJobUpdateResult(status=api.JobUpdatePulseStatus.OK))


async def rollback_job_update(backend: Backend, args: Any) -> Any:
    """Roll out the spec before the update, as a new one with the same id; before a creation there were no instances."""
    job, data = await _current(backend, args.key)
    info, workflow = job.job_info, job.workflow_info
    if data.is_rollback or not (_is_paused(job) or workflow.status.state in _UNDER_WAY):
        raise Refusal(f"invalid rollback: update must be in {{{', '.join(_ROLLED_BACK_FROM)}}}", _INVALID)
    before = config_version(workflow.status.prev_version)
    spec = await spec_at(backend, info.job_id, before) if before else info.spec
    if not before:
        spec.instance_count = 0
        spec.instance_spec.clear()
    spec.ClearField("revision")
    asked = workflow.update_spec
    asked.rollback_on_failure, asked.start_paused = False, data.awaits_pulse and _is_paused(job)
    rolled_back = data.and_action(opaque.ROLLBACK)
    await _replace_job(backend, job, spec, asked, rolled_back, f"{data.update_id}/{opaque.ROLLBACK}")
    return empty_result()


async def _current(
    backend: Backend, key: Any, unknown: int = api.ResponseCode.ERROR
) -> tuple[svc.GetJobResponse, Opaque]:
    """Return the job of an update, and the opaque data of its current update, which must be the one of the key."""
    name = identity.job_name(key.job if key is not None else None)
    job = (await find_job(backend, name)).job
    if job is None:
        raise Refusal(f"job {name} not found", unknown)
    data = _opaque_of(job)
    if not data.update_id or data.update_id != key.id:
        raise Refusal("update id does not match current update", _INVALID)
    return job, data


def _is_paused(job: svc.GetJobResponse) -> bool:
    return job.workflow_info.status.state == stateless_pb2.WORKFLOW_STATE_PAUSED


def _at(job: svc.GetJobResponse) -> dict[str, Any]:
    """Return the id and the version of a job, for a write that no other one may precede."""
    return {"job_id": job.job_info.job_id, "version": job.job_info.status.version}


def _opaque_of(job: svc.GetJobResponse) -> Opaque:
    return opaque.decode(job.workflow_info.opaque_data.data)


# -- pods ----------------------------------------------------------------------------------------------------------


async def kill_tasks(backend: Backend, args: Any) -> Any:
    """Stop the named instances of a job with one call, or the whole job. An update that names them starts them."""
    name = identity.job_name(args.job)
    job = (await find_job(backend, name)).job
    if job is None:
        raise Refusal(f"job {name} not found")
    count, named = job.job_info.spec.instance_count, frozenset(args.instances or ())
    if not named or named == set(range(count)):
        await backend.jobs.StopJob(svc.StopJobRequest(**_at(job)))
        return empty_result()
    if beyond := [instance for instance in sorted(named) if not 0 <= instance < count]:
        raise Refusal(f"job {name} has no instance {beyond[0]}: it has {count} instances")
    ranges = [
        task_pb2.InstanceRange(**{"from": getattr(one, "from"), "to": one.to + 1}) for one in convert_v1.ranges(named)
    ]
    job_id = peloton_pb2.JobID(value=job.job_info.job_id.value)
    answer = await backend.tasks.Stop(task_pb2.StopRequest(jobId=job_id, ranges=ranges))
    if answer.HasField("error"):
        raise Refusal(f"pods of job {name} cannot be stopped: {MessageToDict(answer.error)}")
    if answer.invalidInstanceIds:
        raise Refusal(f"instance {answer.invalidInstanceIds[0]} of job {name} has no pod yet; the others are stopped")
    return empty_result()


METHODS: dict[str, Method] = {
    "startJobUpdate": start_job_update,
    "pauseJobUpdate": pause_job_update,
    "resumeJobUpdate": resume_job_update,
    "abortJobUpdate": abort_job_update,
    "rollbackJobUpdate": rollback_job_update,
    "pulseJobUpdate": pulse_job_update,
    "killTasks": kill_tasks,
}
