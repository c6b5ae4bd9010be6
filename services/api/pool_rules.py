"""Rules that compare a job with its resource pool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from peloton.api.convert import resources
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.model.ids import ROOT_POOL_ID
from peloton.model.resources import RESOURCE_KINDS, UNLIMITED, Resources
from peloton.model.respool import PoolSpec
from services.api.task_rules import number

_MILLI_KINDS = frozenset({"cpu", "gpu"})
_PREEMPTIBLE = task_pb2.PreemptionPolicy.TYPE_PREEMPTIBLE
_UNSET = task_pb2.PreemptionPolicy.TYPE_INVALID
GANG_PODS_MAX = 10_000
"""A gang is placed by one call, whose answer names every member."""
_DEPTH_MAX = 64
"""Longest path of pools that is followed."""


@dataclass(frozen=True, slots=True)
class PoolBounds:
    """The tightest limit per kind on the way from a pool to the root, and the path of the pool that sets it.

    All tuples are in the order of RESOURCE_KINDS, amounts in the small units of ``Resources``. ``reservations`` are the
    pool's own, at ``path``: what cannot be preempted must fit in there. Unlimited where there is no pool to ask.
    """

    limits: tuple[int, ...]
    paths: tuple[str, ...]
    reservations: tuple[int, ...] = (UNLIMITED,) * len(RESOURCE_KINDS)
    path: str = ""


def pool_fault(respool_id: str, pools: Sequence[PoolSpec]) -> str:
    """Why a job cannot be submitted to the pool, or ""."""
    if not respool_id:
        return "resource pool ID is null"
    if respool_id == ROOT_POOL_ID:
        return "cannot submit jobs to the `root` resource pool"
    is_known = False
    for pool in pools:
        if pool.parent_id == respool_id and pool.respool_id != respool_id:
            path = _path_text(_upwards(respool_id, pools))
            return f"cannot submit jobs to a non leaf resource pool: {path} has child pools"
        is_known = is_known or pool.respool_id == respool_id
    return "" if is_known else "resource pool not found"


def pool_bounds(respool_id: str, pools: Sequence[PoolSpec], capacity: Resources | None) -> PoolBounds:
    """Limits along the path of a pool. The root's limit is the cluster's ``capacity``; None: not known, no bound."""
    path = _upwards(respool_id, pools)
    candidates = [(tuple(r.limit for r in pool.resources), _path_text(path[depth:])) for depth, pool in enumerate(path)]
    if capacity is not None:
        candidates.append((tuple(capacity), "/"))
    limits: list[int] = []
    paths: list[str] = []
    for k in range(len(RESOURCE_KINDS)):
        limit, _, path_of_limit = min(
            ((limits_of[k], depth, name) for depth, (limits_of, name) in enumerate(candidates)),
            default=(UNLIMITED, 0, ""),
        )
        limits.append(limit)
        paths.append(path_of_limit)
    if not path:
        return PoolBounds(tuple(limits), tuple(paths))
    return PoolBounds(tuple(limits), tuple(paths), tuple(r.reservation for r in path[0].resources), candidates[0][1])


def _upwards(respool_id: str, pools: Iterable[PoolSpec]) -> list[PoolSpec]:
    """The pool and those above it, without the root."""
    by_id: dict[str, PoolSpec] = {pool.respool_id: pool for pool in pools}
    path: list[PoolSpec] = []
    pool = by_id.get(respool_id)
    while pool is not None and not pool.is_root and len(path) < _DEPTH_MAX:
        path.append(pool)
        pool = by_id.get(pool.parent_id)
    return path


def _path_text(upwards: Sequence[PoolSpec]) -> str:
    return "/" + "/".join(pool.name for pool in reversed(upwards))


def pod_faults(
    config: job_pb2.JobConfig,
    overrides: Mapping[int, task_pb2.TaskConfig],
    instances: range,
    plain_instance: int | None,
    bounds: PoolBounds,
) -> Iterator[str]:
    """Pods that ask more than their pool may ever have. ``plain_instance``: the first that runs on the default's
    amounts, None when there is none."""
    default = config.defaultConfig
    if plain_instance is not None:
        pod = overrides.get(plain_instance, default)
        who, asked = f"instance {plain_instance}", resources(default.resource)
        yield from _excess(who, asked, _is_revocable(config, pod), bounds)
        yield from _unreserved(who, asked, config, pod, default, bounds)
    for instance, override in overrides.items():
        if instance in instances and override.HasField("resource"):
            who, asked = f"instance {instance}", resources(override.resource)
            yield from _excess(who, asked, _is_revocable(config, override), bounds)
            yield from _unreserved(who, asked, config, override, default, bounds)


def gang_faults(
    config: job_pb2.JobConfig, overrides: Mapping[int, task_pb2.TaskConfig], bounds: PoolBounds
) -> Iterator[str]:
    """A gang that asks more than its pool may ever have; revocable pods are never part of a gang."""
    size = config.sla.minimumRunningInstances
    if size < 2 or config.sla.revocable:
        return
    default = config.defaultConfig
    members = {instance: pod for instance, pod in overrides.items() if instance < size}
    plain_count = 0 if default.revocable else size - len(members)
    total = resources(default.resource) * plain_count
    for pod in members.values():
        if not pod.revocable:
            total += resources((pod if pod.HasField("resource") else default).resource)
    who = f"the gang of instances 0-{size - 1}"
    if size > GANG_PODS_MAX:
        yield f"{who} has {size} members, at most {GANG_PODS_MAX} can start together"
    yield from _excess(who, total, False, bounds)
    yield from _unreserved(who, total, config, default, default, bounds)


def _excess(who: str, asked: Resources, is_revocable: bool, bounds: PoolBounds) -> Iterator[str]:
    for kind, amount, limit, path in zip(RESOURCE_KINDS, asked, bounds.limits, bounds.paths, strict=True):
        if amount <= limit or (kind == "cpu" and is_revocable):  # revocable cpu is slack, which no limit bounds
            continue
        yield f"{who} asks {kind} {_wire(kind, amount)}, limit of resource pool {path} is {_wire(kind, limit)}"


def _unreserved(
    who: str,
    asked: Resources,
    config: job_pb2.JobConfig,
    pod: task_pb2.TaskConfig,
    default: task_pb2.TaskConfig,
    bounds: PoolBounds,
) -> Iterator[str]:
    """What may not be preempted runs inside its pool's reservation only; more than that would wait for ever."""
    policy = (pod if pod.HasField("preemptionPolicy") else default).preemptionPolicy.type
    is_preemptible = policy == _PREEMPTIBLE or (policy == _UNSET and config.sla.preemptible)
    if is_preemptible or _is_revocable(config, pod):
        return
    for kind, amount, reservation in zip(RESOURCE_KINDS, asked, bounds.reservations, strict=True):
        if amount > reservation:
            yield (
                f"{who} is not preemptible and asks {kind} {_wire(kind, amount)}, reservation of resource pool "
                f"{bounds.path} is {_wire(kind, reservation)} (set sla.preemptible, or raise the reservation)"
            )


def _is_revocable(config: job_pb2.JobConfig, pod: task_pb2.TaskConfig) -> bool:
    return config.sla.revocable or pod.revocable


def _wire(kind: str, amount: int) -> str:
    return number(amount / 1000 if kind in _MILLI_KINDS else amount)
