"""Comparison of configurations: differences that make an update replace a pod."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from peloton.api.compare import same_job, same_task
from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2

DOCKER = mesos_pb2.ContainerInfo.DOCKER


def task() -> task_pb2.TaskConfig:
    config = task_pb2.TaskConfig(name="web")
    config.command.value = "serve"
    config.labels.add(key="a", value="1")
    config.labels.add(key="b", value="2")
    config.ports.add(name="http", envName="PORT")
    config.ports.add(name="admin", value=8080)
    config.container.type = DOCKER
    config.container.docker.image = "web:1"
    return config


def rename(config: task_pb2.TaskConfig) -> None:
    config.name = "other"


def reorder(config: task_pb2.TaskConfig) -> None:
    config.labels.sort(key=lambda label: label.value, reverse=True)
    config.ports.sort(key=lambda port: port.name)


def spell_out_the_network(config: task_pb2.TaskConfig) -> None:
    config.container.docker.network = mesos_pb2.ContainerInfo.DockerInfo.HOST


def bridge(config: task_pb2.TaskConfig) -> None:
    config.container.docker.network = mesos_pb2.ContainerInfo.DockerInfo.BRIDGE


def relabel(config: task_pb2.TaskConfig) -> None:
    config.labels[0].value = "9"


def more_memory(config: task_pb2.TaskConfig) -> None:
    config.resource.memLimitMb = 7


def fewer_ports(config: task_pb2.TaskConfig) -> None:
    del config.ports[0]


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (rename, True),
        (reorder, True),
        (spell_out_the_network, True),
        (bridge, False),
        (relabel, False),
        (more_memory, False),
        (fewer_ports, False),
    ],
)
def test_tasks(change: Callable[[task_pb2.TaskConfig], None], same: bool) -> None:
    """Names, order and the default network are ignored, every other difference counts; neither side is changed."""
    before, after = task(), task()
    change(after)
    kept = after.SerializeToString(deterministic=True)
    assert (same, same) == (same_task(before, after), same_task(after, before))
    assert (task(), kept) == (before, after.SerializeToString(deterministic=True))


def test_jobs() -> None:
    """The change log and the order of labels are ignored; names count."""
    one = job_pb2.JobConfig(name="web", instanceCount=3, defaultConfig=task())
    other = job_pb2.JobConfig()
    other.CopyFrom(one)
    other.changeLog.version = 7
    reorder(other.defaultConfig)
    assert same_job(one, other)
    other.name = "else"
    assert not same_job(one, other)
