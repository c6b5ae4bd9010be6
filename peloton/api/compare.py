"""Comparison of configurations: decides whether an update has to change an instance."""

from __future__ import annotations

from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.pod_parts import all_parts
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2

_DOCKER_NETWORK = mesos_pb2.ContainerInfo.DockerInfo.HOST
"""Default network of Mesos."""


def same_task(one: task_pb2.TaskConfig, other: task_pb2.TaskConfig) -> bool:
    """Return whether a pod that runs ``one`` need not be replaced for ``other``. Names, the order of labels and ports,
    and an explicit default network of Docker make no difference."""
    first, second = _normalize_task(one), _normalize_task(other)
    if not (one.containerName and other.containerName):  # configurations of 0.1 do not have it
        first.ClearField("containerName")
        second.ClearField("containerName")
    return first == second


def same_job(one: job_pb2.JobConfig, other: job_pb2.JobConfig) -> bool:
    """Return whether replacing ``one`` by ``other`` changes nothing; the change log is ignored."""
    return _normalize_job(one) == _normalize_job(other)


def _normalize_job(config: job_pb2.JobConfig) -> job_pb2.JobConfig:
    copy = job_pb2.JobConfig()
    copy.CopyFrom(config)
    copy.ClearField("changeLog")
    copy.labels.sort(key=lambda label: (label.key, label.value))
    for task in (copy.defaultConfig, *copy.instanceConfig.values()):
        _sort(task)
    return copy


def _normalize_task(task: task_pb2.TaskConfig) -> task_pb2.TaskConfig:
    copy = task_pb2.TaskConfig()
    copy.CopyFrom(task)
    copy.ClearField("name")
    _sort(copy)
    for part in all_parts(copy):
        if part.container.HasField("docker") and not part.container.docker.HasField("network"):
            part.container.docker.network = _DOCKER_NETWORK
    return copy


def _sort(task: task_pb2.TaskConfig) -> None:
    task.labels.sort(key=lambda label: (label.key, label.value))
    for part in all_parts(task):
        part.ports.sort(key=lambda port: (port.name, port.value, port.envName))
