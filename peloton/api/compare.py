"""When two configurations of a task are the same: whether an update has to touch an instance."""

from __future__ import annotations

from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.pod_parts import all_parts
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2

_DOCKER_NETWORK = mesos_pb2.ContainerInfo.DockerInfo.HOST
"""What Mesos takes for a network that is not set."""


def same_task(one: task_pb2.TaskConfig, other: task_pb2.TaskConfig) -> bool:
    """Whether a pod that runs ``one`` need not be replaced for ``other``: names and the order of labels and ports do
    not count, nor whether Docker's default network is spelled out."""
    first, second = _resolved(one), _resolved(other)
    if not (one.containerName and other.containerName):  # a configuration of 0.1 does not keep it
        first.ClearField("containerName")
        second.ClearField("containerName")
    return first == second


def same_job(one: job_pb2.JobConfig, other: job_pb2.JobConfig) -> bool:
    """Whether replacing ``one`` by ``other`` changes nothing at all; the change log does not count."""
    return _without_order(one) == _without_order(other)


def _without_order(config: job_pb2.JobConfig) -> job_pb2.JobConfig:
    copy = job_pb2.JobConfig()
    copy.CopyFrom(config)
    copy.ClearField("changeLog")
    copy.labels.sort(key=lambda label: (label.key, label.value))
    for task in (copy.defaultConfig, *copy.instanceConfig.values()):
        _sort(task)
    return copy


def _resolved(task: task_pb2.TaskConfig) -> task_pb2.TaskConfig:
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
