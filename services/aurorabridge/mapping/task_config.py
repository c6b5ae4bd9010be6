"""Specs of pods as tasks of Aurora: what the bridge answers for a pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from peloton.api.v1alpha.job.stateless.stateless_pb2 import SlaSpec
from peloton.api.v1alpha.pod import pod_pb2
from services.aurorabridge.mapping import constraints, containers, executor, identity, resources, tiers
from services.aurorabridge.thrift import api


class Job(Protocol):
    """Job whose pod is mapped: a JobSpec or a JobSummary."""

    name: str
    owner: str

    @property
    def sla(self) -> SlaSpec: ...


def task_config_of(pod: pod_pb2.PodSpec, job: Job) -> Any:
    """Return the task of a pod with this spec. Raises Refusal for a spec that Aurora has no words for."""
    only = pod.containers[0] if pod.containers else pod_pb2.ContainerSpec()
    return api.TaskConfig(
        job=identity.job_key(job.name),
        owner=api.Identity(user=job.owner),
        isService=True,
        priority=job.sla.priority,
        tier=tiers.tier_of(job.sla),
        metadata=identity.metadata_of(pod.labels),
        constraints=constraints.task_constraints(pod.constraint),
        container=containers.task_container(pod),
        executorConfig=executor.executor_config(pod),
        mesosFetcherUris=executor.fetcher_uris(pod),
        **resources.task_fields(only.resource, only.ports),
    )


def ports_of(pod: pod_pb2.PodSpec) -> Mapping[str, int]:
    """Return the ports of the spec by name: a dynamic port is 0, as clients of the original see it."""
    return {port.name: port.value for container in pod.containers[:1] for port in container.ports}
