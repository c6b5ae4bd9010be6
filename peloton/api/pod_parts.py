"""The containers of a pod: the one that the fields of its TaskConfig describe, those beside it, and those before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from peloton.api.v0.task import task_pb2
from peloton.model.resources import Resources

MAIN_CONTAINER = "main"
"""Name of a pod's first container unless it has one."""

Part = task_pb2.TaskConfig | task_pb2.ContainerConfig
"""What describes one container; both have the same fields for that."""
AMOUNTS = ("cpuLimit", "memLimitMb", "diskLimitMb", "gpuLimit")


def main_name(task: task_pb2.TaskConfig) -> str:
    return task.containerName or MAIN_CONTAINER


def containers(task: task_pb2.TaskConfig) -> Iterator[tuple[str, Part]]:
    """By name those that run side by side, the main one first."""
    yield main_name(task), task
    for other in task.otherContainers:
        yield other.name, other


def all_parts(task: task_pb2.TaskConfig) -> list[Part]:
    """Of all containers, also of those that run before the others."""
    return [*(part for _, part in containers(task)), *task.initContainers]


def has_several(task: task_pb2.TaskConfig) -> bool:
    return bool(task.otherContainers or task.initContainers)


def is_checked(task: task_pb2.TaskConfig) -> bool:
    """Its health is known by checks. Only Kubernetes runs those of several containers, and those of readiness."""
    if task.healthCheck.enabled:
        return True
    parts = [part for _, part in containers(task)] if task.otherContainers else []
    return any(part.healthCheck.enabled or part.readinessCheck.enabled for part in parts)


class CheckTimes(NamedTuple):
    """Of a check of health, in seconds, with Mesos's own numbers where none are given."""

    delay_s: int
    interval_s: int
    timeout_s: int
    failures_max: int
    """So many in a row end the container."""


def check_times(check: task_pb2.HealthCheckConfig) -> CheckTimes:
    return CheckTimes(
        check.initialIntervalSecs or 15,
        check.intervalSecs or 10,
        check.timeoutSecs or 20,
        check.maxConsecutiveFailures or 3,
    )


def http_port(check: task_pb2.HealthCheckConfig, ports: Mapping[str, int]) -> int:
    """Return the port that an HTTP check asks. ``ports``: those of its container, by name."""
    http = check.httpCheck
    return ports.get(http.portName, http.port)


def ports(task: task_pb2.TaskConfig) -> Iterator[task_pb2.PortConfig]:
    """Of all containers, in the order in which dynamic ones are dealt."""
    for _, part in containers(task):
        yield from part.ports


def resources(config: task_pb2.ResourceConfig) -> Resources:
    return Resources.of(config.cpuLimit, config.memLimitMb, config.diskLimitMb, config.gpuLimit)


def pod_resources(task: task_pb2.TaskConfig, default: task_pb2.TaskConfig | None = None) -> Resources:
    """Of the containers that run side by side, or of the greatest before them if that is more. ``default``: has the
    fields that ``task``, an override, leaves out."""
    main = task if default is None or task.HasField("resource") else default
    beside = task if default is None or task.otherContainers else default
    before = task if default is None or task.initContainers else default
    total = sum((resources(other.resource) for other in beside.otherContainers), resources(main.resource))
    for first in before.initContainers:
        total = Resources(*map(max, total, resources(first.resource)))
    return total


def has_amounts(task: task_pb2.TaskConfig) -> bool:
    """An override has amounts of its own."""
    return task.HasField("resource") or has_several(task)


def limits(task: task_pb2.TaskConfig) -> task_pb2.ResourceConfig:
    """Of the containers that run side by side; of a pod with one container its own message."""
    if not task.otherContainers:
        return task.resource
    total = task_pb2.ResourceConfig(fdLimit=task.resource.fdLimit)
    for _, part in containers(task):
        for name in AMOUNTS:
            setattr(total, name, getattr(total, name) + getattr(part.resource, name))
    return total
