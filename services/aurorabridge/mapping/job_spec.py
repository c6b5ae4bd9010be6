"""Requests of updates as specs of jobs."""

from __future__ import annotations

from typing import Any

from thriftpy2.thrift import TDecodeException

from peloton.api.v1alpha.job.stateless.stateless_pb2 import JobSpec
from services.aurorabridge.mapping import constraints, containers, executor, identity, resources, tiers
from services.aurorabridge.method import Refusal


def job_spec_of(request: Any, pool_id: str, thermos: executor.Thermos | None) -> JobSpec:
    """Return the spec of the job that an update wants, the same for equal requests in another order. Raises Refusal."""
    check_request(request)
    try:
        return _job_spec(request, pool_id, thermos)
    except (UnicodeEncodeError, TDecodeException) as error:
        raise Refusal(f"the request has text that is not Unicode: {error}") from error


def _job_spec(request: Any, pool_id: str, thermos: executor.Thermos | None) -> JobSpec:
    task, count = request.taskConfig, request.instanceCount or 0
    name = identity.job_name(task.job)
    user = (task.owner.user if task.owner is not None else None) or ""
    spec = JobSpec(
        name=name,
        owner=user,
        owning_team=user,
        labels=identity.job_labels(task.job),
        instance_count=count,
        sla=tiers.sla_spec(task, count),
    )
    spec.respool_id.value = pool_id
    pod = spec.default_spec
    pod.labels.extend(identity.pod_labels(name, task.metadata))
    pod.containers.add().resource.CopyFrom(resources.resource_spec(task))
    containers.set_container(pod, task.container)
    executor.set_executor(pod, task, thermos)
    constraint = constraints.pod_constraint(task.constraints, name)
    if constraint is not None:
        pod.constraint.CopyFrom(constraint)
    pod.revocable = spec.sla.revocable
    return spec


def check_request(request: Any) -> Any:
    """Return the task of a request. Raises Refusal for a request without one, or with an impossible number."""
    if request is None or request.taskConfig is None:
        raise Refusal("the request has no taskConfig")
    if (request.instanceCount or 0) < 0:
        raise Refusal(f"instanceCount is {request.instanceCount}, want at least 0")
    if (request.taskConfig.priority or 0) < 0:
        raise Refusal(f"priority is {request.taskConfig.priority}, want at least 0")
    return request.taskConfig
