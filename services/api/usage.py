"""Usage of pools and owners: hours of allocation, summed from the time series."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from peloton.api.convert_time import rfc3339
from peloton.api.v0.history import history_pb2 as pb
from peloton.errors import InvalidArgument
from peloton.model.history import OWNERS_PREFIX, Column, Quantity, Series, parse_owner_series, pool_series
from peloton.model.ids import RespoolId
from peloton.model.resources import RESOURCE_KINDS
from peloton.model.times import NS_PER_S
from services.storage.history.history import DAY_S, HOUR_S, History

SPAN_DEFAULT_S = 30 * DAY_S
SERIES_DAYS_MAX = 20_000
"""Limit of series times days that one call reads, in one statement: each is one page."""
PER_HOUR = dict(zip(RESOURCE_KINDS, (1_000 * HOUR_S, 1_024 * HOUR_S, 1_024 * HOUR_S, 1_000 * HOUR_S), strict=True))
"""Small units of Resources times seconds, for one core-, GiB- or GPU-hour; of other kinds HOUR_S."""
QUANTITIES = (Quantity.ALLOCATION, Quantity.BORROWED, Quantity.LENT)


class Period(NamedTuple):
    """Seconds ``start_s <= t < end_s``; the start is a full hour."""

    start_s: int
    end_s: int


def read_usage(
    history: History, paths: Mapping[RespoolId, str], chosen: Collection[RespoolId], owners: Collection[str],
    period: Period, is_daily: bool, extended: Collection[str] = (),
) -> pb.GetUsageResponse:  # fmt: skip
    """Sum usage of the ``chosen`` pools, and of ``owners`` in them or all. Raises InvalidArgument.

    ``extended`` are the extended resources of which hours are summed as well. Pools that no longer exist are included
    in rows of owners if all pools are chosen.
    """
    pools = {pool_series(pool_id): (pool_id, "") for pool_id in chosen}
    named = {name: parse_owner_series(name) for name in history.list_names(OWNERS_PREFIX, HOUR_S, *period)}
    is_all = len(chosen) == len(paths)
    by_owner = {
        name: (pool_id, owner)
        for name, (pool_id, owner) in named.items()
        if (pool_id in chosen or (is_all and pool_id not in paths)) and (not owners or owner in owners)
    }
    if owners:
        pools = {}
    days = -(-(period.end_s - period.start_s) // DAY_S)
    if (count := (len(pools) + len(by_owner)) * days) > SERIES_DAYS_MAX:
        raise InvalidArgument(
            f"{len(pools)} pools and {len(by_owner)} owners in pools over {days} days are {count} values, at most "
            f"{SERIES_DAYS_MAX} in one call: want a shorter time, fewer pools or one owner"
        )
    answer = pb.GetUsageResponse(start=rfc3339(period.start_s * NS_PER_S), end=rfc3339(period.end_s * NS_PER_S))
    kinds = (*RESOURCE_KINDS, *sorted(extended))
    columns = [Column(quantity, kind) for quantity in QUANTITIES for kind in kinds]
    found = history.read([*pools, *by_owner], HOUR_S, *period, columns)
    for rows, keys in ((answer.pools, pools), (answer.owners, by_owner)):
        for name in sorted(keys, key=lambda name: (paths.get(keys[name][0], keys[name][0]), keys[name][1])):
            pool_id, owner = keys[name]
            for day, hours in _hours(found.get(name, Series()), kinds, is_daily):
                path = paths.get(pool_id, str(pool_id))
                rows.add(day=day, path=path, pool_id=pool_id, owner=owner, hours=hours)
    return answer


def _hours(series: Series, kinds: Sequence[str], is_daily: bool) -> Iterator[tuple[str, list[pb.KindHours]]]:
    """Yield the hours of each day with any, or of the whole time."""
    amounts = {column: _integral(series, values) for column, values in series.columns.items()}
    days = [at_s // DAY_S if is_daily else 0 for at_s in series.times_s]
    for day, group in groupby(range(len(days)), days.__getitem__):
        at, hours = list(group), []
        for kind in kinds:
            unit = PER_HOUR.get(kind, HOUR_S)
            used, borrowed, lent = (
                sum(of[index] for index in at) / unit if (of := amounts.get(Column(quantity, kind))) else 0.0
                for quantity in QUANTITIES
            )
            if used or lent:
                hours.append(pb.KindHours(kind=kind, used=used, borrowed=borrowed, lent=lent))
        if hours:
            yield rfc3339(day * DAY_S * NS_PER_S)[:10] if is_daily else "", hours


def _integral(series: Series, values: Sequence[int]) -> list[int]:
    return [value * covered_s for value, covered_s in zip(values, series.covered_s, strict=True)]
