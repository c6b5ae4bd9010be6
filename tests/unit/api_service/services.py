"""Specs, stubs and steps of updates for tests of services."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peloton.api.v0 import peloton_pb2 as v0_peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.pod import pod_pb2
from peloton.model.ids import JobId
from services.storage.storage import Storage
from tests.conformance.storage.services import roll
from tests.unit.api_service.story import JOB, LEAF

ID = peloton_pb2.JobID(value=JOB)
UNKNOWN = peloton_pb2.JobID(value="00000000-0000-4000-8000-000000000000")
NOT_UUID = peloton_pb2.JobID(value="job-1")
CHAIN = "code:{} message:{}".format
"""The inner part of an error that quotes its cause."""
UNKNOWN_JOB = CHAIN("not-found", f"job:{UNKNOWN.value} not found")


def spec(instance_count: int = 3, image: str = "web:1", **fields: Any) -> stateless_pb2.JobSpec:
    """Return a valid service in /eng/maps."""
    wanted = stateless_pb2.JobSpec(name="web", owning_team="maps", instance_count=instance_count, **fields)
    wanted.respool_id.value = LEAF
    wanted.sla.preemptible = True  # the pool has no reservation
    wanted.labels.add(key="tier", value="gold")
    wanted.default_spec.labels.add(key="color", value="blue")
    container = wanted.default_spec.containers.add(image=image)
    container.resource.cpu_limit = 1
    container.resource.mem_limit_mb = 64
    container.entrypoint.value = "serve"
    return wanted


def spec_in(respool_id: str) -> stateless_pb2.JobSpec:
    wanted = spec()
    wanted.respool_id.value = respool_id
    return wanted


def spec_with(change: Callable[[stateless_pb2.JobSpec], object]) -> stateless_pb2.JobSpec:
    wanted = spec()
    change(wanted)
    return wanted


def container(wanted: stateless_pb2.JobSpec) -> pod_pb2.ContainerSpec:
    return wanted.default_spec.containers[0]


def service_config(instance_count: int = 3, **fields: Any) -> job_pb2.JobConfig:
    """Return the same service in v0, as a client sends it that has read version 1."""
    config = job_pb2.JobConfig(name="web", type=job_pb2.SERVICE, instanceCount=instance_count, **fields)
    config.changeLog.CopyFrom(v0_peloton_pb2.ChangeLog(version=1))
    config.respoolID.value = LEAF
    config.sla.preemptible = True
    config.defaultConfig.resource.cpuLimit = 1
    config.defaultConfig.command.value = "serve"
    return config


def version(text: str) -> peloton_pb2.EntityVersion:
    return peloton_pb2.EntityVersion(value=text)


def ranges(*pairs: tuple[int, int]) -> list[pod_pb2.InstanceIDRange]:
    return [pod_pb2.InstanceIDRange(**{"from": begin, "to": end}) for begin, end in pairs]


def evolve(storage: Storage, job_id: str = JOB) -> None:
    """Advance the job's update to its end."""
    roll(storage, JobId(job_id))


async def create(v1: Any, wanted: stateless_pb2.JobSpec, job_id: str = JOB, **fields: Any) -> str:
    """Create the service and return its entity version."""
    request = svc.CreateJobRequest(job_id=peloton_pb2.JobID(value=job_id), spec=wanted, **fields)
    response = await v1.CreateJob(request)
    assert response.job_id.value == job_id
    return str(response.version.value)
