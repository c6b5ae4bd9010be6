"""Which host pools a pod may use, and what a host pool announces of its hosts."""

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
"""What a host pool serves for its name alone: four of these names are the original's, which knows no other way to say
it."""


def workload_of(job_type: JobType, shape: PodShape) -> Workload:
    """Daemons go to hosts of all host pools; pods that others made are routed as those of batch jobs."""
    if job_type is JobType.DAEMON:
        return Workload.ANY
    if shape.resources.gpu_milli:
        return Workload.GPU
    if job_type is JobType.SERVICE:
        return Workload.STATEFUL if shape.volume_mib else Workload.STATELESS
    return Workload.SHARED if shape.preemptible else Workload.BATCH


def routed(shape: PodShape, job_type: JobType) -> PodShape:
    return replace(shape, workload=workload_of(job_type, shape))


def served_by_name(name: str) -> frozenset[Workload]:
    """The workloads of a host pool that is made without any."""
    return frozenset({_BY_NAME[name]}) if name in _BY_NAME else frozenset()


def serving(pools: Iterable[HostPool]) -> dict[str, frozenset[Workload]]:
    """What each host pool serves: what it was asked to, and the default one what no other does. Several may serve the
    same."""
    asked = {pool.name: pool.serves for pool in pools}
    left = frozenset(work for work in Workload if work).difference(*asked.values())
    return {name: serves | left if name == DEFAULT_HOST_POOL else serves for name, serves in asked.items()}


def host_pool_labels(name: str, serves: Iterable[Workload], factors: Factors = AT_PAR) -> dict[str, str]:
    """Labels of a host of this host pool."""
    served = ",".join(sorted(serves))
    disk = {DISK_LABEL: str(factors.disk_percent)} if factors.disk_percent != AT_PAR.disk_percent else {}
    return {HOST_POOL_LABEL: name, ORIGINAL_HOST_POOL_LABEL: name, SERVED_LABEL: served, **disk}


def without_host_pool(labels: Mapping[str, _Value]) -> dict[str, _Value]:
    """Of a host, without those of its host pool."""
    return {key: value for key, value in labels.items() if key not in _OF_HOST_POOL}


def host_pool_of(labels: Mapping[str, object]) -> str:
    return _text(labels.get(HOST_POOL_LABEL, ""))


def unserved_by(workload: Workload, labels: Mapping[str, object]) -> str | None:
    """The host pool of a host with these labels, if it does not serve the workload. None: a pod may go there; hosts
    without the label are in no host pool, as host pools are not in use."""
    served = labels.get(SERVED_LABEL)
    if served is None or not workload or workload in _text(served).split(","):
        return None
    return host_pool_of(labels)


def _text(value: object) -> str:
    """Of a label that a host has once; ``lifecycle.constraints`` also counts the values of labels."""
    return value if isinstance(value, str) else next(map(str, value), "") if isinstance(value, Mapping) else ""


# Factors.


def disk_percent(labels: Mapping[str, object]) -> int:
    """With which disk of a host with these labels is announced."""
    text = _text(labels.get(DISK_LABEL, ""))
    return int(text) if text.isdecimal() else AT_PAR.disk_percent


def announced_disk(size_mib: int, percent: int) -> int:
    """What a volume takes of the disk that is announced: it is never announced twice itself, so it takes as much of it
    as its size would be announced as. Rounded up."""
    return -(-size_mib * percent // 100)


def announced_with_volumes(capacity: Resources, volumes_mib: int, factors: Factors) -> Resources:
    """What the host pool announces of a host, of whose disk volumes have so much, which counts once."""
    volumes = Resources(disk_mib=volumes_mib)
    return announced(capacity - volumes, factors) + volumes


def announced(amounts: Resources, factors: Factors) -> Resources:
    """What the host pool announces of so much of a host."""
    return Resources(
        amounts.cpu_milli * factors.cpu_percent // 100,
        amounts.memory_mib * factors.memory_percent // 100,
        amounts.disk_mib * factors.disk_percent // 100,
        amounts.gpu_milli,
    )


def taken(asked: Resources, factors: Factors) -> Resources:
    """What a pod that asks for so much takes of its cluster. Rounded down, so that pods which fit the announced room
    together fit the cluster's; but no cluster accepts a pod that takes nothing."""
    found = Resources(
        asked.cpu_milli * 100 // factors.cpu_percent,
        asked.memory_mib * 100 // factors.memory_percent,
        asked.disk_mib * 100 // factors.disk_percent,
        asked.gpu_milli,
    )
    return found if any(found) else asked


def announced_room(free: Resources, capacity: Resources, held: Resources, factors: Factors) -> Resources:
    """What may be given to pods of a host with ``capacity`` announced, of which its cluster has ``free`` left and whose
    pods have asked for ``held``.

    The first bound is the cluster's. The second one is the host pool's: pods may have been launched under other
    factors, and take more or less of the cluster than they would now."""
    bounds = zip(announced(free, factors), capacity, held, strict=True)
    return Resources(*(max(min(room, have - asked), 0) for room, have, asked in bounds))
