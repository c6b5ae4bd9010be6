"""Changes of pools during the day, as configurations that the real rules check."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from peloton.api.convert_pool import SHARE_UNITS, wire_amount
from peloton.api.v0.respool import respool_pb2 as pb
from peloton.model.respool import PoolSpec, ReservationType
from services.resmgr.pool_rules import with_defaults


def change_pool(random: Random, pool: PoolSpec) -> PoolSpec:
    """Return the pool with more or less of everything, or with another share."""
    less_or_more = random.choice([0.3, 0.6, 0.9, 1.1, 1.5])
    what = random.choice(["limit", "reservation", "both", "share"])
    resources = []
    for resource in pool.resources:
        scaled = resource
        if what in ("limit", "both"):
            scaled = replace(scaled, limit=int(resource.limit * less_or_more))
        if what in ("reservation", "both"):
            scaled = replace(scaled, reservation=int(resource.reservation * less_or_more))
        if what == "share":
            scaled = replace(scaled, share=max(round(resource.share * less_or_more), 1))
        resources.append(scaled)
    return replace(pool, resources=tuple(resources))


def config_of(pool: PoolSpec) -> pb.ResourcePoolConfig:
    """Return the configuration as a user would have sent it."""
    config = pb.ResourcePoolConfig(name=pool.name)
    config.parent.value = pool.parent_id
    for resource in pool.resources:
        config.resources.add(
            kind=resource.kind,
            reservation=wire_amount(resource.kind, resource.reservation),
            limit=wire_amount(resource.kind, resource.limit),
            share=resource.share / SHARE_UNITS,
            type=pb.STATIC if resource.type is ReservationType.STATIC else pb.ELASTIC,
        )
    if pool.controller_limit_percent is not None:
        config.controllerLimit.maxPercent = pool.controller_limit_percent
    return with_defaults(config)
