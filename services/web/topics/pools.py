"""Topics of pools: the tree, one pool with its queue, and time series."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from google.protobuf.json_format import MessageToDict

from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.history import history_pb2
from peloton.api.v0.respool import respool_pb2
from services.web.api import TIMEOUT_S, Api
from services.web.topics.history import start_of, with_gaps

QUEUE_SHOWN = 100
"""Number of waiting gangs on a pool's page."""
ALLOCATION: int = history_pb2.QUANTITY_ALLOCATION
QUANTITIES: dict[int, str] = {
    ALLOCATION: "allocation",
    history_pb2.QUANTITY_ENTITLEMENT: "entitlement",
    history_pb2.QUANTITY_RESERVATION: "reservation",
}


async def tree(api: Api, _: str) -> Any:
    """Return the pools, parents first, as [path, depth, is leaf, queued gangs, queued instances, amounts].

    Amounts are kind -> [reservation, limit or null, share, entitlement, allocation, its revocable part, demand], for
    kinds with any amount.
    """
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
    """Return the answer of ``PoolWhy``: amounts, queues, loans, and the pool's queue in order."""
    request = explain_pb2.PoolWhyRequest(path=respool_pb2.ResourcePoolPath(value=path), queueLimit=QUEUE_SHOWN)
    return MessageToDict(await api.explain.PoolWhy(request, timeout=TIMEOUT_S))


async def over_time(api: Api, argument: str) -> Any:
    """Return time series for ``HOURS/KIND/PATH``: allocations of the pool and its children, and the pool's other
    amounts.

    A value is null where no sample was recorded. ``marks``: [index of the interval, pool, for which pool, instances].
    """
    hours, _, rest = argument.partition("/")
    kind, slash, path = rest.partition("/")
    kind, path = unquote(kind), slash + path
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
    """Return the series of a pool; columns missing in the answer are 0 throughout."""
    columns = dict.fromkeys(quantities, [0.0] * len(pool.covered_s))
    columns |= {one.quantity: list(one.values) for one in pool.columns if one.quantity in columns}
    found = {QUANTITIES[each]: with_gaps(values, pool.covered_s) for each, values in columns.items()}
    return {"path": pool.path, "isRecorded": any(pool.covered_s), **found}
