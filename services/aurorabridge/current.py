"""The current state of a job: its spec, its update, and its pods with their specs."""

from __future__ import annotations

from dataclasses import dataclass

import grpc.aio

from peloton.api.convert_v1 import POD_STATE_NUMBERS
from peloton.api.private import bulk_reads_pb2 as reads
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless.stateless_pb2 import JOB_STATE_DELETED, JobSpec
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.model.ids import EntityVersion
from peloton.model.pod import TERMINAL
from services.aurorabridge.backend import Backend
from services.aurorabridge.lookup import pods_of
from services.aurorabridge.mapping.pins import CurrentPod

_ENDS = frozenset(POD_STATE_NUMBERS[state] for state in TERMINAL)
"""States of pods that have ended, and desired states of pods that are being stopped."""


@dataclass(frozen=True)
class Found:
    """The newest job of a name. ``job`` is None if there never was one, or if it is deleted or being deleted."""

    newest_id: str
    job: svc.GetJobResponse | None


async def find_job(backend: Backend, name: str) -> Found:
    newest = ""
    try:
        ids = await backend.jobs.GetJobIDFromJobName(svc.GetJobIDFromJobNameRequest(job_name=name))
        newest = ids.job_id[0].value
        job = await backend.jobs.GetJob(svc.GetJobRequest(job_id=ids.job_id[0]))
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.NOT_FOUND:
            raise
        return Found(newest, None)
    is_going = job.job_info.status.desired_state == JOB_STATE_DELETED
    return Found(newest, None if is_going else job)


async def spec_at(backend: Backend, job_id: peloton_pb2.JobID, version: int) -> JobSpec:
    """Return the spec of a job at a configuration version."""
    wire = peloton_pb2.EntityVersion(value=str(EntityVersion(version, 0, 0)))
    return (await backend.jobs.GetJob(svc.GetJobRequest(job_id=job_id, version=wire))).job_info.spec


async def current_pods(backend: Backend, job_id: str) -> dict[int, CurrentPod]:
    """Return the pods of a job by instance, from one stream. A pod whose configuration is not stored any more has an
    empty spec."""
    pods: dict[int, CurrentPod] = {}
    async for batch in pods_of(backend, [reads.Job(job_id=job_id)]):
        wire = batch.wire
        for instance, state, goal, spec in zip(wire.instance, wire.state, wire.desired_state, wire.spec, strict=True):
            pods[instance] = CurrentPod(batch.spec(spec), not _ENDS.isdisjoint((state, goal)))
    return pods


def config_version(version: peloton_pb2.EntityVersion) -> int:
    return EntityVersion.parse(version.value).config
