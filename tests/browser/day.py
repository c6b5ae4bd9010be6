"""The day before the pictures: two teams lend to each other while a third team's services rise and fall.

Charts of a cluster that is a minute old are empty. These samples are written as the recorder writes its own, from what
a cluster with such pools would have done.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from peloton.model.history import Column, Quantity, Sample, cluster_series, pool_series
from peloton.model.ids import RespoolId
from peloton.model.resources import RESOURCE_KINDS, Resources

DAY_S = 86_400
STEP_S = 300
FINE_STEP_S = 60
FINE_FROM_S = 6 * 3_600
"""Seconds before the end: charts of less than a day have points of a minute."""
RISES, BUSY = (0.25, 0.78), 0.18
"""Times of the day at which the services reclaim what they lent, and the durations."""


def day(end_s: int, capacity: Resources, pools: Mapping[str, str], reserved: Mapping[str, float]) -> Iterator[Sample]:
    """Samples of the day before ``end_s``, a multiple of FINE_STEP_S. ``pools``: path -> id, with "" for the root;
    ``reserved``: path -> share of the
    ``capacity``."""
    fine_s = end_s - FINE_FROM_S
    for at_s in (*range(end_s - DAY_S, fine_s, STEP_S), *range(fine_s, end_s, FINE_STEP_S)):
        at = (at_s - end_s + DAY_S) / DAY_S
        held = allocation(at)
        entitled = {path: max(share, held.get(path, 0.0)) for path, share in reserved.items()} | {"": 1.0}
        amounts = {}
        for path, pool in pools.items():
            quantities = {
                Quantity.RESERVATION: reserved.get(path, 1.0),
                Quantity.ENTITLEMENT: entitled[path],
                Quantity.ALLOCATION: held[path],
                Quantity.LIMIT: 1.0,
                Quantity.BORROWED: max(held[path] - reserved.get(path, 1.0), 0.0),
                Quantity.LENT: lent(path, held, reserved),
            }
            amounts[pool_series(RespoolId(pool))] = _columns(quantities, capacity)
        quantities = {
            Quantity.CAPACITY: 1.0,
            Quantity.REGISTERED: 1.0,
            Quantity.ALLOCATION: held[""],
        }
        amounts[cluster_series("local")] = _columns(quantities, capacity)
        marks: dict[str, tuple[tuple[str, int], ...]] = {}
        if any(rise <= at < rise + FINE_STEP_S / DAY_S for rise in RISES):
            marks = {pool_series(RespoolId(pools[path])): (("/web", 40),) for path in ("", "ml", "ml/training")}
        yield Sample(at_s, FINE_STEP_S, amounts, marks)


def allocation(at: float) -> dict[str, float]:
    """Shares of the cluster ``at`` a moment of the day, from 0 to 1; of pools with pools below also their sum."""
    shops = 0.06 + sum(0.26 * math.sin(math.pi * (at - rise) / BUSY) for rise in RISES if rise < at < rise + BUSY)
    data = 0.1 if int(at * 12) % 3 == 0 else 0.03
    research = 0.12 + 0.06 * math.sin(9 * math.pi * at) if at < 0.95 else 0.0
    wanted = 0.7 if at < 0.93 else 0.2
    training = min(wanted, 0.97 - shops - data - research)
    leaves = {"web": shops, "data": data, "ml/research": research, "ml/training": training}
    return leaves | {"ml": research + training, "": sum(leaves.values())}


def lent(path: str, held: Mapping[str, float], reserved: Mapping[str, float]) -> float:
    """Return the part of a pool's idle reservation that its siblings hold, after what nothing has reserved."""
    parent = path.rpartition("/")[0]
    siblings = [other for other in reserved if other.rpartition("/")[0] == parent]
    if path not in siblings:
        return 0.0
    idle = {each: max(reserved[each] - held[each], 0.0) for each in siblings}
    taken = sum(max(held[each] - reserved[each], 0.0) for each in siblings)
    unreserved = reserved.get(parent, 1.0) - sum(reserved[each] for each in siblings)
    return min(max(taken - unreserved, 0.0), sum(idle.values())) * idle[path] / (sum(idle.values()) or 1.0)


def _columns(shares: Mapping[Quantity, float], capacity: Resources) -> dict[Column, int]:
    return {
        Column(quantity, kind): round(share * amount)
        for quantity, share in shares.items()
        for kind, amount in zip(RESOURCE_KINDS, capacity, strict=True)
        if amount
    }
