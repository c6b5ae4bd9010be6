"""Pools: the tree, one of them with its queue, and what they held over time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from google.protobuf.json_format import MessageToDict

from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.history import history_pb2
from peloton.api.v0.respool import respool_pb2
from services.web.api import TIMEOUT_S, Api
from services.web.topics.history import start_of, with_gaps

QUEUE_SHOWN = 100
"""Waiting gangs of a pool's page."""
ALLOCATION: int = history_pb2.QUANTITY_ALLOCATION
QUANTITIES: dict[int, str] = {
    ALLOCATION: "allocation",
    history_pb2.QUANTITY_ENTITLEMENT: "entitlement",
    history_pb2.QUANTITY_RESERVATION: "reservation",
}


async def tree(api: Api, _: str) -> Any:
    """Of each pool, parents first: [path, depth, leaf or not, gangs and instances that wait, amounts], where amounts
    are of each kind that it has anything of: kind -> [reservation, limit or null, share, entitlement, allocation, its
    revocable part, demand]."""
    answer = await api.explain.PoolTree(explain_pb2.PoolTreeRequest(), timeout=TIMEOUT_S)
    return [
        [pool.path, pool.depth, pool.isLeaf, pool.queuedGangs, pool.queuedInstances, _amounts(pool)]
        for pool in answer.pools
    ]


def _amounts(pool: explain_pb2.PoolNode) -> dict[str, list[float | None]]:
    found: dict[str, list[float | None]] = {}
    for one in pool.amounts:
        numbers = (one.reservation, one.limit, one.entitlement, one.allocation, one.demand)
        if any(0 < number < math.inf for number in numbers):
            limit = None if math.isinf(one.limit) else one.limit
            rest = (one.share, one.entitlement, one.allocation, one.slackAllocation, one.demand)
            found[one.kind] = [one.reservation, limit, *rest]
    return found


async def pool(api: Api, path: str) -> Any:
    """As ``PoolWhy`` has it: amounts, queues, who lends to whom, and its queue in order."""
    request = explain_pb2.PoolWhyRequest(path=respool_pb2.ResourcePoolPath(value=path), queueLimit=QUEUE_SHOWN)
    return MessageToDict(await api.explain.PoolWhy(request, timeout=TIMEOUT_S))


async def over_time(api: Api, argument: str) -> Any:
    """``HOURS/KIND/PATH``: allocation of the pool and of those right below it, and what else the pool itself had. A
    value is null where nothing was recorded. ``marks``: [number of the interval, pool, for which pool, instances]."""
    hours, _, rest = argument.partition("/")
    kind, slash, path = rest.partition("/")
    path = slash + path
    request = history_pb2.GetPoolHistoryRequest(paths=[path], levels=1, kinds=[kind], start=start_of(hours))
    answer = await api.history.GetPoolHistory(request, timeout=TIMEOUT_S)
    return {
        "start": answer.start,
        "stepS": answer.step_s,
        "count": answer.count,
        "pools": [_series(one, QUANTITIES if one.path == path else (ALLOCATION,)) for one in answer.pools],
        "marks": [
            [mark.index, one.path, mark.for_pool, mark.instances]
            for one in answer.pools[1:] or answer.pools
            for mark in one.preemptions
        ],
    }


def _series(pool: history_pb2.PoolHistory, quantities: Iterable[int]) -> dict[str, Any]:
    """A column that is 0 throughout is not in the answer."""
    columns = dict.fromkeys(quantities, [0.0] * len(pool.covered_s))
    columns |= {one.quantity: list(one.values) for one in pool.columns if one.quantity in columns}
    found = {QUANTITIES[each]: with_gaps(values, pool.covered_s) for each, values in columns.items()}
    return {"path": pool.path, "isRecorded": any(pool.covered_s), **found}
