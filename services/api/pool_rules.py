"""Rules that compare a job with its resource pool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from peloton.api.pod_parts import has_amounts, pod_resources
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.model.ids import ROOT_POOL_ID
from peloton.model.resources import RESOURCE_KINDS, UNLIMITED, Resources, is_license
from peloton.model.respool import PoolResource, PoolSpec
from services.api.task_rules import number

_MILLI_KINDS = frozenset({"cpu", "gpu"})
_PREEMPTIBLE = task_pb2.PreemptionPolicy.TYPE_PREEMPTIBLE
_UNSET = task_pb2.PreemptionPolicy.TYPE_INVALID
GANG_PODS_MAX = 10_000
"""Maximum size of a gang, which is placed by one call whose answer names every member."""
_DEPTH_MAX = 64
"""Maximum depth of a pool's path."""


@dataclass(frozen=True, slots=True)
class PoolBounds:
    """Tightest limit per kind between a pool and the root, with the path of the pool that sets it.

    All tuples are in the order of RESOURCE_KINDS, amounts in the small units of ``Resources``. ``reservations`` are the
    pool's own, at ``path``: pods that cannot be preempted must fit into them. Amounts are unlimited without a pool.
    ``kinds`` are the kinds of all clusters; empty if unknown. ``extended`` has the extended resources that the pool
    names; there are none of others.
    """

    limits: tuple[int, ...]
    paths: tuple[str, ...]
    reservations: tuple[int, ...] = (UNLIMITED,) * len(RESOURCE_KINDS)
    path: str = ""
    kinds: frozenset[str] = frozenset()
    extended: tuple[ExtendedBound, ...] = ()


@dataclass(frozen=True, slots=True)
class ExtendedBound:
    """The tightest limit of an extended resource above a pool, the path of the pool that sets it, and the own
    reservation."""

    kind: str
    limit: int
    path: str
    reservation: int


def pool_fault(respool_id: str, pools: Sequence[PoolSpec]) -> str:
    """Return the reason why a job cannot be submitted to the pool, or ""."""
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


def pool_bounds(
    respool_id: str, pools: Sequence[PoolSpec], capacity: Resources | None, kinds: frozenset[str] = frozenset()
) -> PoolBounds:
    """Compute the limits along the path of a pool; the root's limit is the ``capacity`` of all clusters, if known."""
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
        return PoolBounds(tuple(limits), tuple(paths), kinds=kinds)
    reservations = tuple(r.reservation for r in path[0].resources[: len(RESOURCE_KINDS)])
    extended = tuple(_bound_extended(r, path, capacity) for r in path[0].extras)
    return PoolBounds(tuple(limits), tuple(paths), reservations, candidates[0][1], kinds, extended)


def _bound_extended(own: PoolResource, path: Sequence[PoolSpec], capacity: Resources | None) -> ExtendedBound:
    limits = [(pool.resource(own.kind).limit, depth) for depth, pool in enumerate(path)]
    if capacity is not None and not is_license(own.kind):
        limits.append((dict(capacity.extended).get(own.kind, 0), len(path)))
    limit, depth = min(limits)
    return ExtendedBound(own.kind, limit, _path_text(path[depth:]), own.reservation)


def _upwards(respool_id: str, pools: Iterable[PoolSpec]) -> list[PoolSpec]:
    """Return the pool and its ancestors, without the root."""
    by_id: dict[str, PoolSpec] = {pool.respool_id: pool for pool in pools}
    path: list[PoolSpec] = []
    pool = by_id.get(respool_id)
    while pool is not None and not pool.is_root and len(path) < _DEPTH_MAX:
        path.append(pool)
        pool = by_id.get(pool.parent_id)
    return path


def _path_text(upwards: Sequence[PoolSpec]) -> str:
    return "/" + "/".join(pool.name for pool in reversed(upwards))


class PoolValidator:
    """Validator of a job's requests against its pool; instances with an override are added in rising order."""

    def __init__(self, config: job_pb2.JobConfig, bounds: PoolBounds) -> None:
        self._config = config
        self._bounds = bounds
        self._volume = Resources(disk_mib=config.defaultConfig.volume.sizeMB)
        self._gang_size = config.sla.minimumRunningInstances
        self._gang_total = Resources()  # of members with amounts of their own
        self._default_members = 0 if config.defaultConfig.revocable else self._gang_size

    def add(self, instance: int, override: task_pb2.TaskConfig) -> Iterator[str]:
        has_own = has_amounts(override)
        asked = pod_resources(override, self._config.defaultConfig) + self._volume if has_own else Resources()
        if instance < self._gang_size:
            has_defaults = not override.revocable and not has_own
            self._default_members += int(has_defaults) - int(not self._config.defaultConfig.revocable)
            if not override.revocable:
                self._gang_total += asked
        if has_own:
            yield from self._pod(instance, asked, override)

    def plain(self, instance: int | None, override: task_pb2.TaskConfig | None) -> Iterator[str]:
        """Check the first instance that uses the default's amounts, with its override; None without such an
        instance."""
        if instance is not None:
            asked = pod_resources(self._config.defaultConfig) + self._volume
            yield from self._pod(instance, asked, override or self._config.defaultConfig)

    def gang(self) -> Iterator[str]:
        """Check the gang once all instances are known. Revocable pods are never part of a gang."""
        config, size, default = self._config, self._gang_size, self._config.defaultConfig
        if size < 2 or config.sla.revocable:
            return
        total = self._gang_total
        if self._default_members:  # else no instance uses the default's amounts, which may be invalid
            total += pod_resources(default) * self._default_members
        subject = f"the gang of instances 0-{size - 1}"
        if size > GANG_PODS_MAX:
            yield f"{subject} has {size} members, at most {GANG_PODS_MAX} can start together"
        yield from _excess(subject, total, False, self._bounds)
        yield from _check_unreserved(subject, total, config, default, default, self._bounds)

    def _pod(self, instance: int, asked: Resources, pod: task_pb2.TaskConfig) -> Iterator[str]:
        subject = f"instance {instance}"
        yield from _excess(subject, asked, _is_revocable(self._config, pod), self._bounds)
        yield from _check_unreserved(subject, asked, self._config, pod, self._config.defaultConfig, self._bounds)


def _excess(subject: str, asked: Resources, is_revocable: bool, bounds: PoolBounds) -> Iterator[str]:
    for kind, amount, limit, path in zip(RESOURCE_KINDS, asked, bounds.limits, bounds.paths, strict=True):
        if amount <= limit or (kind == "cpu" and is_revocable):  # revocable cpu is slack, which no limit bounds
            continue
        yield f"{subject} asks {kind} {_wire(kind, amount)}, limit of resource pool {path} is {_wire(kind, limit)}"
    known = {bound.kind: bound for bound in bounds.extended}
    for kind, amount in asked.extended if bounds.path else ():
        if kind not in known:
            names = ", ".join(known) or "no extended resources"
            yield (
                f"{subject} asks {kind} {amount}, and resource pool {bounds.path} has none of it: it has {names} "
                "(name the kind in the resources of the pool and of the pools above it)"
            )
        elif amount > known[kind].limit:
            bound = known[kind]
            yield f"{subject} asks {kind} {amount}, limit of resource pool {bound.path} is {bound.limit}"


def _check_unreserved(
    subject: str,
    asked: Resources,
    config: job_pb2.JobConfig,
    pod: task_pb2.TaskConfig,
    default: task_pb2.TaskConfig,
    bounds: PoolBounds,
) -> Iterator[str]:
    """Check requests that cannot be preempted against the reservation of the pool, beyond which they would never
    run."""
    policy = (pod if pod.HasField("preemptionPolicy") else default).preemptionPolicy.type
    is_preemptible = policy == _PREEMPTIBLE or (policy == _UNSET and config.sla.preemptible)
    if is_preemptible or _is_revocable(config, pod):
        return
    reserved = dict(zip(RESOURCE_KINDS, bounds.reservations, strict=True))
    reserved |= {bound.kind: bound.reservation for bound in bounds.extended}
    for kind, amount in asked.items():
        reservation = reserved.get(kind, UNLIMITED)  # ``_excess`` has refused kinds that the pool does not name
        if amount > reservation:
            yield (
                f"{subject} is not preemptible and asks {kind} {_wire(kind, amount)}, reservation of resource pool "
                f"{bounds.path} is {_wire(kind, reservation)} (set sla.preemptible, or raise the reservation)"
            )


def _is_revocable(config: job_pb2.JobConfig, pod: task_pb2.TaskConfig) -> bool:
    return config.sla.revocable or pod.revocable


def _wire(kind: str, amount: int) -> str:
    return number(amount / 1000 if kind in _MILLI_KINDS else amount)
