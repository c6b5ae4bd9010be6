"""The current state of a job: its spec, its update, and its pods with their specs."""

from __future__ import annotations

from dataclasses import dataclass

import grpc.aio

from peloton.api.convert_v1 import POD_STATES
from peloton.api.merge import merge_config
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless.stateless_pb2 import JobSpec
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.pod.pod_pb2 import PodSpec, PodStatus
from peloton.model.ids import EntityVersion, PodName
from peloton.model.pod import TERMINAL
from services.aurorabridge.backend import Backend
from services.aurorabridge.mapping.pins import CurrentPod


@dataclass(frozen=True)
class Found:
    """The newest job of a name. ``job`` is None if there never was one, or if it is deleted."""

    newest_id: str
    job: svc.GetJobResponse | None


async def find_job(backend: Backend, name: str) -> Found:
    newest = ""
    try:
        ids = await backend.jobs.GetJobIDFromJobName(svc.GetJobIDFromJobNameRequest(job_name=name))
        newest = ids.job_id[0].value
        return Found(newest, await backend.jobs.GetJob(svc.GetJobRequest(job_id=ids.job_id[0])))
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.NOT_FOUND:
            raise
        return Found(newest, None)


async def spec_at(backend: Backend, job_id: peloton_pb2.JobID, version: int) -> JobSpec:
    """Return the spec of a job at a configuration version."""
    wire = peloton_pb2.EntityVersion(value=str(EntityVersion(version, 0, 0)))
    return (await backend.jobs.GetJob(svc.GetJobRequest(job_id=job_id, version=wire))).job_info.spec


async def current_pods(backend: Backend, job: svc.GetJobResponse) -> dict[int, CurrentPod]:
    """Return the pods of a job by instance: a stream, and one call for each configuration that pods have."""
    info = job.job_info
    specs = {config_version(info.status.version): Merged(info.spec)}
    pods: dict[int, CurrentPod] = {}
    async for response in backend.jobs.ListPods(svc.ListPodsRequest(job_id=info.job_id)):
        for pod in response.pods:
            instance, version = PodName.parse(pod.pod_name.value).instance_id, config_version(pod.status.version)
            if version not in specs:
                specs[version] = Merged(await spec_at(backend, info.job_id, version))
            pods[instance] = CurrentPod(specs[version].spec_of(instance), _is_stopped(pod.status))
    return pods


def config_version(version: peloton_pb2.EntityVersion) -> int:
    return EntityVersion.parse(version.value).config


def _is_stopped(status: PodStatus) -> bool:
    """Return whether a pod has ended, or is being stopped: neither comes back by itself."""
    return POD_STATES.get(status.state) in TERMINAL or POD_STATES.get(status.desired_state) in TERMINAL


class Merged:
    """The specs of a job's instances; equal ones are one object."""

    def __init__(self, job: JobSpec) -> None:
        self._job = job
        self._known: dict[bytes, PodSpec] = {}

    def spec_of(self, instance: int) -> PodSpec:
        if instance not in self._job.instance_spec:  # reading a missing key would create it
            return self._job.default_spec
        override = self._job.instance_spec[instance]
        key = override.SerializeToString(deterministic=True)
        if key not in self._known:
            self._known[key] = merge_config(self._job.default_spec, override)
        return self._known[key]
