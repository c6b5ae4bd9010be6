"""Resource pools: stored specification and paths."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from peloton.model.ids import ROOT_POOL_ID, RespoolId
from peloton.model.resources import RESOURCE_KINDS


class ReservationType(StrEnum):
    ELASTIC = "ELASTIC"  # an unused reservation is lent to other pools
    STATIC = "STATIC"  # the reservation is assigned even when idle


@dataclass(frozen=True, slots=True)
class PoolResource:
    """Settings of one kind of a pool, in the small units of ``Resources``; share is a weight."""

    kind: str
    reservation: int
    limit: int
    share: int
    type: ReservationType = ReservationType.ELASTIC


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """A resource pool. ``resources`` has exactly one entry per kind, in the order of RESOURCE_KINDS, and then one for
    each extended resource that the pool names."""

    respool_id: RespoolId
    parent_id: RespoolId
    name: str
    resources: tuple[PoolResource, ...]
    controller_limit_percent: float | None = None
    slack_limit_percent: float | None = None
    policy: str = "PriorityFIFO"  # name in the wire's enum

    def __post_init__(self) -> None:
        assert tuple(r.kind for r in self.resources[: len(RESOURCE_KINDS)]) == RESOURCE_KINDS

    @property
    def extras(self) -> tuple[PoolResource, ...]:
        """Return the settings of extended resources. Of one that it does not name, a pool has none."""
        return self.resources[len(RESOURCE_KINDS) :]

    def resource(self, kind: str) -> PoolResource:
        return next((r for r in self.resources if r.kind == kind), PoolResource(kind, 0, 0, 0))

    @property
    def is_root(self) -> bool:
        return self.respool_id == ROOT_POOL_ID


def pool_paths(pools: Iterable[PoolSpec]) -> dict[RespoolId, str]:
    """Return the path of every pool whose ancestors are all in ``pools``; the root itself may be missing."""
    specs = {pool.respool_id: pool for pool in pools}
    paths = {ROOT_POOL_ID: ""}

    def path(respool_id: RespoolId, depth: int) -> str | None:
        if respool_id in paths:
            return paths[respool_id]
        spec = specs.get(respool_id)
        if spec is None or depth > len(specs):
            return None
        above = path(spec.parent_id, depth + 1)
        if above is None:
            return None
        paths[respool_id] = f"{above}/{spec.name}"
        return paths[respool_id]

    for respool_id in specs:
        path(respool_id, 0)
    paths[ROOT_POOL_ID] = "/"
    return paths
