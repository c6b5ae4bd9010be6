"""Resources and ports of tasks, as those of containers and back."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from peloton.api.v1alpha.pod.pod_pb2 import PortSpec, ResourceSpec
from services.aurorabridge.method import Refusal
from services.aurorabridge.thrift import api

GPU_METADATA = "udeploy_num_gpus"
"""Key of the metadata by which clients ask for gpus that Aurora has no field for: a number, perhaps a fraction."""


def needs_gpu(task: Any) -> bool:
    """Return whether the job belongs into the pool of jobs that ask for gpus."""
    has_metadata = any(one.key == GPU_METADATA for one in task.metadata or ())
    return has_metadata or any(one.numGpus is not None for one in task.resources or ())


def resource_spec(task: Any) -> ResourceSpec:
    """Return the resources of a task: those of its list, else those of the fields of older clients. Raises Refusal."""
    amounts = {kind: _amount(task, kind) for kind in ("numCpus", "ramMb", "diskMb", "numGpus")}
    for one in task.metadata or ():
        if one.key == GPU_METADATA:
            amounts["numGpus"] = _gpus(one.value)
    return ResourceSpec(
        cpu_limit=amounts["numCpus"],
        mem_limit_mb=amounts["ramMb"],
        disk_limit_mb=amounts["diskMb"],
        gpu_limit=amounts["numGpus"],
    )


def _amount(task: Any, kind: str) -> float:
    given = [amount for one in task.resources or () if (amount := getattr(one, kind)) is not None]
    return sum(given) if given else getattr(task, kind, None) or 0


def _gpus(text: str | None) -> float:
    try:
        number = float(text or "")
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise Refusal(f"metadata {GPU_METADATA} is {text!r}, want a number of gpus")
    return number


def port_names(task: Any) -> list[str]:
    listed = {one.namedPort for one in task.resources or () if one.namedPort is not None}
    return sorted(listed | set(task.requestedPorts or ()))


def task_fields(resource: ResourceSpec, ports: Iterable[PortSpec]) -> dict[str, Any]:
    """Return the fields of a task that have its resources: the list, and the fields of older clients."""
    names = [port.name for port in ports]
    amounts = {
        "numCpus": resource.cpu_limit,
        "ramMb": int(resource.mem_limit_mb),
        "diskMb": int(resource.disk_limit_mb),
        "numGpus": int(resource.gpu_limit),
    }
    listed = [api.Resource(**{kind: amount}) for kind, amount in amounts.items() if amount > 0]
    listed += [api.Resource(namedPort=name) for name in names]
    del amounts["numGpus"]  # which older clients do not have
    return {**amounts, "requestedPorts": names, "resources": listed}
