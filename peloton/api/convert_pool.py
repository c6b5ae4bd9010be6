"""Conversion of resource pools from the wire's message to the form for admission."""

from __future__ import annotations

from peloton.api.v0.respool import respool_pb2 as pb
from peloton.model.ids import RespoolId
from peloton.model.resources import RESOURCE_KINDS, UNLIMITED
from peloton.model.respool import PoolResource, PoolSpec, ReservationType

UNITS = {"cpu": 1000, "gpu": 1000}
"""Small units of ``Resources`` in one unit of the wire; of other kinds one."""
SHARE_UNITS = 1000
_SHARE_MAX = 2**40


def pool_spec(pool_id: RespoolId, config: pb.ResourcePoolConfig) -> PoolSpec:
    """Convert a configuration; a missing kind has a share only."""
    wire = {resource.kind: resource for resource in config.resources}
    kinds = (*RESOURCE_KINDS, *sorted(wire.keys() - set(RESOURCE_KINDS)))
    return PoolSpec(
        respool_id=pool_id,
        parent_id=RespoolId(config.parent.value),
        name=config.name,
        resources=tuple(_pool_resource(kind, wire.get(kind, pb.ResourceConfig(share=1))) for kind in kinds),
        controller_limit_percent=config.controllerLimit.maxPercent if config.HasField("controllerLimit") else None,
        slack_limit_percent=config.slackLimit.maxPercent if config.HasField("slackLimit") else None,
        policy=pb.SchedulingPolicy.Name(pb.PriorityFIFO),  # the only policy; see scheduling/eviction.py
    )


def _pool_resource(kind: str, wire: pb.ResourceConfig) -> PoolResource:
    share = min(round(wire.share * SHARE_UNITS), _SHARE_MAX)
    return PoolResource(
        kind=kind,
        reservation=small_amount(kind, wire.reservation),
        limit=small_amount(kind, wire.limit),
        share=max(share, 1) if wire.share > 0 else 0,
        type=ReservationType.STATIC if wire.type == pb.STATIC else ReservationType.ELASTIC,
    )


def small_amount(kind: str, amount: float) -> int:
    """Return the wire's amount in small units, rounded to the nearest; at most UNLIMITED."""
    return round(min(amount * UNITS.get(kind, 1), UNLIMITED))


def wire_amount(kind: str, amount: int) -> float:
    return amount / UNITS.get(kind, 1)
