"""Routing of pods to host pools, and the resources that a host pool announces of its hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from peloton.model.host_pool import (
    AT_PAR,
    DEFAULT_HOST_POOL,
    DISK_LABEL,
    HOST_POOL_LABEL,
    ORIGINAL_HOST_POOL_LABEL,
    SERVED_LABEL,
    Factors,
    HostPool,
    Workload,
)
from peloton.model.job import JobType
from peloton.model.pod import PodShape
from peloton.model.resources import Resources

_Value = TypeVar("_Value")
_OF_HOST_POOL = frozenset({HOST_POOL_LABEL, ORIGINAL_HOST_POOL_LABEL, SERVED_LABEL, DISK_LABEL})
_BY_NAME = {"batch_reserved": Workload.BATCH} | {work.value: work for work in Workload if work}
"""Workloads that a host pool serves because of its name. Four of the names are the original's, whose API has no other
way to set the workload."""


def workload_of(job_type: JobType, shape: PodShape) -> Workload:
    """Return the workload of a pod. Daemons run in all host pools; external pods are routed like batch pods."""
    if job_type is JobType.DAEMON:
        return Workload.ANY
    if shape.resources.gpu_milli:
        return Workload.GPU
    if job_type is JobType.SERVICE:
        return Workload.STATEFUL if shape.volume_mib else Workload.STATELESS
    return Workload.SHARED if shape.preemptible else Workload.BATCH


def route(shape: PodShape, job_type: JobType) -> PodShape:
    return replace(shape, workload=workload_of(job_type, shape))


def infer_workloads(name: str) -> frozenset[Workload]:
    """Return the workloads of a host pool that is created without any."""
    return frozenset({_BY_NAME[name]}) if name in _BY_NAME else frozenset()


def serving(pools: Iterable[HostPool]) -> dict[str, frozenset[Workload]]:
    """Return the workloads of each host pool: the requested ones, and for the default host pool also all that no other
    serves. Several may serve the same workload."""
    asked = {pool.name: pool.serves for pool in pools}
    left = frozenset(work for work in Workload if work).difference(*asked.values())
    return {name: serves | left if name == DEFAULT_HOST_POOL else serves for name, serves in asked.items()}


def host_pool_labels(name: str, serves: Iterable[Workload], factors: Factors = AT_PAR) -> dict[str, str]:
    """Return the labels of a host in this host pool."""
    served = ",".join(sorted(serves))
    disk = {DISK_LABEL: str(factors.disk_percent)} if factors.disk_percent != AT_PAR.disk_percent else {}
    return {HOST_POOL_LABEL: name, ORIGINAL_HOST_POOL_LABEL: name, SERVED_LABEL: served, **disk}


def without_host_pool(labels: Mapping[str, _Value]) -> dict[str, _Value]:
    """Return the labels of a host except the labels of its host pool."""
    return {key: value for key, value in labels.items() if key not in _OF_HOST_POOL}


def host_pool_of(labels: Mapping[str, object]) -> str:
    return _text_of(labels.get(HOST_POOL_LABEL, ""))


def find_unserving(workload: Workload, labels: Mapping[str, object]) -> str | None:
    """Return the host pool of a host with these labels if it does not serve the workload. None: a pod may use the host;
    hosts without the label are in no host pool, as host pools are not in use."""
    served = labels.get(SERVED_LABEL)
    if served is None or not workload or workload in _text_of(served).split(","):
        return None
    return host_pool_of(labels)


def _text_of(value: object) -> str:
    """Return the value of a label that a host has once; ``lifecycle.constraints`` also maps values to counts."""
    return value if isinstance(value, str) else next(map(str, value), "") if isinstance(value, Mapping) else ""


# Factors.


def disk_percent(labels: Mapping[str, object]) -> int:
    """Return the factor in percent by which a host with these labels announces disk."""
    text = _text_of(labels.get(DISK_LABEL, ""))
    return int(text) if text.isdecimal() else AT_PAR.disk_percent


def announce_disk(size_mib: int, percent: int) -> int:
    """Return the announced disk that a volume takes, rounded up. Volumes are not overcommitted, so a volume takes the
    share of its size in the announced disk."""
    return -(-size_mib * percent // 100)


def announce_with_volumes(capacity: Resources, volumes_mib: int, factors: Factors) -> Resources:
    """Return the announced capacity of a host with volumes on its disk, which are not overcommitted."""
    volumes = Resources(disk_mib=volumes_mib)
    return announce(capacity - volumes, factors) + volumes


def announce(amounts: Resources, factors: Factors) -> Resources:
    """Return the resources that a host pool announces for this part of a host."""
    return replace(
        amounts,
        cpu_milli=amounts.cpu_milli * factors.cpu_percent // 100,
        memory_mib=amounts.memory_mib * factors.memory_percent // 100,
        disk_mib=amounts.disk_mib * factors.disk_percent // 100,
    )


def scale_request(asked: Resources, factors: Factors) -> Resources:
    """Return the resources that a pod with this request takes of its cluster. The result is rounded down, so that pods
    that fit the announced resources together fit the cluster, but is never empty, as no cluster accepts a pod without
    resources."""
    found = replace(
        asked,
        cpu_milli=asked.cpu_milli * 100 // factors.cpu_percent,
        memory_mib=asked.memory_mib * 100 // factors.memory_percent,
        disk_mib=asked.disk_mib * 100 // factors.disk_percent,
    )
    return found if any(found) else asked


def compute_announced_free(free: Resources, capacity: Resources, held: Resources, factors: Factors) -> Resources:
    """Return the free announced resources of a host: ``capacity`` is announced, the cluster has ``free`` left, and the
    pods requested ``held``.

    The cluster sets the first bound, the host pool the second: pods may have been launched under other factors, and
    take more or less of the cluster than they would now.
    """
    return Resources.each(
        lambda left, have, asked: max(min(left, have - asked), 0), announce(free, factors), capacity, held
    )
