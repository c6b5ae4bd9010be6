"""Containers of a pod: the main one in the fields of its TaskConfig, further containers, and init containers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from peloton.api.v0.task import task_pb2
from peloton.model.resources import Resources, to_extended

MAIN_CONTAINER = "main"
"""Default name of a pod's first container."""

Part = task_pb2.TaskConfig | task_pb2.ContainerConfig
"""Message that describes one container; both types have the same fields for it."""
AMOUNTS = ("cpuLimit", "memLimitMb", "diskLimitMb", "gpuLimit")


def main_name(task: task_pb2.TaskConfig) -> str:
    return task.containerName or MAIN_CONTAINER


def containers(task: task_pb2.TaskConfig) -> Iterator[tuple[str, Part]]:
    """Yield the containers that run at the same time by name, the main one first."""
    yield main_name(task), task
    for other in task.otherContainers:
        yield other.name, other


def all_parts(task: task_pb2.TaskConfig) -> list[Part]:
    """Return the configurations of all containers, including init containers."""
    return [*(part for _, part in containers(task)), *task.initContainers]


def has_several(task: task_pb2.TaskConfig) -> bool:
    return bool(task.otherContainers or task.initContainers)


def is_checked(task: task_pb2.TaskConfig) -> bool:
    """Return whether checks determine the pod's health. Only Kubernetes runs checks of several containers, and
    readiness checks."""
    if task.healthCheck.enabled:
        return True
    parts = [part for _, part in containers(task)] if task.otherContainers else []
    return any(part.healthCheck.enabled or part.readinessCheck.enabled for part in parts)


class CheckTimes(NamedTuple):
    """Times of a health check in seconds; defaults are Mesos's."""

    delay_s: int
    interval_s: int
    timeout_s: int
    failures_max: int
    """Consecutive failures that end the container."""


def check_times(check: task_pb2.HealthCheckConfig) -> CheckTimes:
    return CheckTimes(
        check.initialIntervalSecs or 15,
        check.intervalSecs or 10,
        check.timeoutSecs or 20,
        check.maxConsecutiveFailures or 3,
    )


def http_port(check: task_pb2.HealthCheckConfig, ports: Mapping[str, int]) -> int:
    """Return the port of an HTTP check. ``ports``: ports of its container, by name."""
    http = check.httpCheck
    return ports.get(http.portName, http.port)


def ports(task: task_pb2.TaskConfig) -> Iterator[task_pb2.PortConfig]:
    """Yield the ports of all containers, in the order in which dynamic ones are assigned."""
    for _, part in containers(task):
        yield from part.ports


def resources(config: task_pb2.ResourceConfig) -> Resources:
    asked = Resources.of(config.cpuLimit, config.memLimitMb, config.diskLimitMb, config.gpuLimit)
    return replace(asked, extended=to_extended(config.extended)) if config.extended else asked


def pod_resources(task: task_pb2.TaskConfig, default: task_pb2.TaskConfig | None = None) -> Resources:
    """Return the sum of the containers that run at the same time, or the largest init container if that is more.
    ``default``: has the fields that ``task``, an override, omits."""
    main = task if default is None or task.HasField("resource") else default
    holder = task if default is None or task.otherContainers else default
    before = task if default is None or task.initContainers else default
    total = sum((resources(other.resource) for other in holder.otherContainers), resources(main.resource))
    for first in before.initContainers:
        total = Resources.each(max, total, resources(first.resource))
    return total


def has_amounts(task: task_pb2.TaskConfig) -> bool:
    """Return whether an override has its own amounts."""
    return task.HasField("resource") or has_several(task)


def limits(task: task_pb2.TaskConfig) -> task_pb2.ResourceConfig:
    """Return the limits of the containers that run at the same time; of a single container, the message itself."""
    if not task.otherContainers:
        return task.resource
    total = task_pb2.ResourceConfig(fdLimit=task.resource.fdLimit)
    for _, part in containers(task):
        for name in AMOUNTS:
            setattr(total, name, getattr(total, name) + getattr(part.resource, name))
        for name, amount in part.resource.extended.items():
            total.extended[name] += amount
    return total
