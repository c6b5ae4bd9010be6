"""Pool trees as a large organisation might have them, drawn from a seed: uneven, of four levels, with all settings."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from random import Random

from peloton.model.ids import ROOT_POOL_ID, RespoolId
from peloton.model.resources import RESOURCE_KINDS, UNLIMITED, Resources
from peloton.model.respool import PoolResource, PoolSpec, ReservationType

DEPTH = 4
CAPACITY = Resources.of(cpu=1_600_000, memory_mb=6e9, disk_mb=50e9, gpu=4_000)
"""50,000 hosts of 32 cores; a few have gpus."""
SLACK = Resources.of(cpu=200_000)
_CHILDREN = (100, 20, 5)
"""Leaves below a pool of depth 1, 2 and 3, on average."""


def organisation(leaf_count: int, seed: int = 1) -> list[PoolSpec]:
    """``leaf_count`` leaves at depth 3 and 4 and the pools above them, parents first."""
    random = Random(seed)
    pools: list[PoolSpec] = []
    chain: list[RespoolId] = [ROOT_POOL_ID]  # where the next leaf may go: a pool of each depth
    left = [0, 0, 0]  # leaves that remain for the pools of the chain
    for _ in range(leaf_count):
        depth = next((depth for depth, count in enumerate(left) if count <= 0), None)
        for at in range(depth, DEPTH - 1) if depth is not None else ():
            size = _CHILDREN[at]
            left[at] = random.randint(size // 2, size + size // 2)
            chain[at + 1 :] = [_add(random, pools, chain[at], size / leaf_count)]
        left = [count - 1 for count in left]
        parent = chain[-2] if depth is None and random.random() < 0.1 else chain[-1]  # every inner pool has children
        _add(random, pools, parent, 1 / leaf_count)
    return pools


def _add(random: Random, pools: list[PoolSpec], parent: RespoolId, part: float) -> RespoolId:
    """Add a pool with about this part of the cluster."""
    name = f"pool{len(pools)}"
    pool_id = RespoolId(str(uuid.uuid5(uuid.NAMESPACE_DNS, name)))
    has_gpus = random.random() < 0.3
    resources = []
    for kind, amount in zip(RESOURCE_KINDS, CAPACITY, strict=True):
        fair = int(amount * part) if kind != "gpu" or has_gpus else 0
        reservation = int(fair * random.choice((0.2, 0.5, 0.8)))
        limit = random.choice((UNLIMITED, fair * 3, fair * 10)) if fair else 0
        share = random.choice((0, 1000, 1000, 2500, 10_000))
        is_static = random.random() < 0.1
        type_ = ReservationType.STATIC if is_static else ReservationType.ELASTIC
        resources.append(PoolResource(kind, reservation, limit, share, type_))
    controller_limit = random.choice((None, 10.0, 50.0))
    pools.append(PoolSpec(pool_id, parent, name, tuple(resources), controller_limit, random.choice((None, 30.0))))
    return pool_id


def leaves(pools: Sequence[PoolSpec]) -> list[RespoolId]:
    parents = {pool.parent_id for pool in pools}
    return [pool.respool_id for pool in pools if pool.respool_id not in parents]
