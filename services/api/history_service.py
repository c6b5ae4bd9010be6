"""Peloton's HistoryService: time series of pools and clusters, and usage, from storage."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from peloton.api.convert_history import Grid, columns_to_wire, encode_coverage, preemptions_to_wire
from peloton.api.convert_time import rfc3339, unix_seconds
from peloton.api.v0.history import history_pb2 as pb
from peloton.errors import InvalidArgument, NotFound, Reason
from peloton.lifecycle.downsampling import downsample
from peloton.model.history import Column, Quantity, Series, cluster_series, pool_series
from peloton.model.ids import RespoolId
from peloton.model.resources import RESOURCE_KINDS
from peloton.model.respool import PoolSpec, pool_paths
from peloton.model.text import quote, shorten
from peloton.model.times import NS_PER_S
from services.api import usage
from services.api.calls import Calls
from services.api.channels import ClusterLookup
from services.storage.history.history import HOUR_S, MINUTE_S, MINUTES_KEPT_S, History
from services.storage.pools import Pools

INTERVALS_DEFAULT, INTERVALS_MAX = 500, 1_500
SERIES_MAX = 200
VALUES_MAX = 400_000
"""Maximum number of values in one answer, as doubles of 8 bytes."""
SPAN_DEFAULT_S = 6 * HOUR_S
STEPS_S = (60, 120, 300, 600, 900, 1_800, *(hours * HOUR_S for hours in (1, 2, 3, 6, 12, 24, 48, 168)))
"""Steps from which the service chooses."""
POOL_QUANTITIES = (
    Quantity.RESERVATION,
    Quantity.LIMIT,
    Quantity.ENTITLEMENT,
    Quantity.ALLOCATION,
    Quantity.SLACK_ALLOCATION,
    Quantity.DEMAND,
    Quantity.BORROWED,
    Quantity.LENT,
)
CLUSTER_QUANTITIES = (
    Quantity.CAPACITY,
    Quantity.REGISTERED,
    Quantity.ALLOCATION,
    Quantity.SLACK_ALLOCATION,
    Quantity.USE,
    Quantity.SLACK,
)
POOL_COUNTS = (Quantity.ADMITTED, Quantity.PREEMPTED)
CLUSTER_COUNTS = (
    Quantity.HOSTS_UP,
    Quantity.HOSTS_DRAINING,
    Quantity.HOSTS_DRAINED,
    Quantity.HOSTS_DOWN,
    Quantity.HOSTS_MEASURED,
)
Request = pb.GetPoolHistoryRequest | pb.GetClusterHistoryRequest


class HistoryService:
    def __init__(self, history: History, pools: Pools, clusters: ClusterLookup, calls: Calls) -> None:
        self._history, self._pools, self._clusters, self._calls = history, pools, clusters, calls

    async def GetPoolHistory(self, request: pb.GetPoolHistoryRequest, context: Any) -> pb.GetPoolHistoryResponse:
        return await self._calls.run(self._pool_history, request)

    async def GetClusterHistory(
        self, request: pb.GetClusterHistoryRequest, context: Any
    ) -> pb.GetClusterHistoryResponse:
        return await self._calls.run(self._cluster_history, request)

    async def GetUsage(self, request: pb.GetUsageRequest, context: Any) -> pb.GetUsageResponse:
        return await self._calls.run(self._usage, request)

    def _pool_history(self, request: pb.GetPoolHistoryRequest) -> pb.GetPoolHistoryResponse:
        wanted = columns_of(request.kinds, POOL_QUANTITIES, POOL_COUNTS, _list_extras(self._pools.specs()))
        paths = pool_paths(self._pools.specs())
        chosen = chosen_pools(paths, request.paths, request.levels)
        grid = self._grid(request, len(chosen), len(wanted))
        found = self._read([pool_series(pool_id) for pool_id in chosen], grid, wanted)
        pools = []
        for pool_id in chosen:
            series = found.get(pool_series(pool_id), Series())
            one = pb.PoolHistory(
                path=paths[pool_id],
                pool_id=pool_id,
                covered_s=encode_coverage(series, grid),
                columns=columns_to_wire(series, grid, wanted),
                preemptions=preemptions_to_wire(series.preemptions, grid),
            )
            pools.append(one)
        start = rfc3339(grid.start_s * NS_PER_S)
        return pb.GetPoolHistoryResponse(start=start, step_s=grid.step_s, count=grid.count, pools=pools)

    def _cluster_history(self, request: pb.GetClusterHistoryRequest) -> pb.GetClusterHistoryResponse:
        wanted = columns_of(request.kinds, CLUSTER_QUANTITIES, CLUSTER_COUNTS, _list_extras(self._pools.specs()))
        known = sorted(self._clusters())
        chosen = sorted(set(request.clusters)) or known
        for name in chosen:
            if name not in known:
                raise NotFound(f"unknown cluster {shorten(name)}; known clusters: {', '.join(known) or 'none'}")
        grid = self._grid(request, len(chosen), len(wanted))
        found = self._read([cluster_series(name) for name in chosen], grid, wanted)
        clusters = []
        for name in chosen:
            series = found.get(cluster_series(name), Series())
            columns = columns_to_wire(series, grid, wanted)
            clusters.append(pb.ClusterHistory(cluster=name, covered_s=encode_coverage(series, grid), columns=columns))
        start = rfc3339(grid.start_s * NS_PER_S)
        return pb.GetClusterHistoryResponse(start=start, step_s=grid.step_s, count=grid.count, clusters=clusters)

    def _usage(self, request: pb.GetUsageRequest) -> pb.GetUsageResponse:
        end_s = seconds("end", request.end) if request.end else int(time.time())
        start_s = seconds("start", request.start) if request.start else end_s - usage.SPAN_DEFAULT_S
        check_order(start_s, end_s)
        specs = self._pools.specs()
        paths = pool_paths(specs)
        tops = check_paths(paths, request.paths or ["/"])
        chosen = {pool_id for pool_id, path in paths.items() if any(_is_within(path, top) for top in tops)}
        period = usage.Period(start_s - start_s % HOUR_S, end_s)
        return usage.read_usage(
            self._history, paths, chosen, set(request.owners), period, request.daily, extended=_list_extras(specs)
        )

    def _grid(self, request: Request, series_count: int, column_count: int) -> Grid:
        now_s = int(time.time())
        end_s = seconds("end", request.end) if request.end else now_s
        start_s = seconds("start", request.start) if request.start else end_s - SPAN_DEFAULT_S
        return grid_of(start_s, end_s, request.step_s, now_s, series_count, column_count)

    def _read(self, names: Sequence[str], grid: Grid, wanted: Sequence[Column]) -> dict[str, Series]:
        kept_s = MINUTE_S if grid.step_s < HOUR_S else HOUR_S
        found = self._history.read(names, kept_s, grid.start_s, grid.end_s, wanted)
        return {name: downsample(series, grid.step_s) for name, series in found.items()}


def seconds(name: str, text: str) -> int:
    """Parse a time. Raises InvalidArgument."""
    try:
        return unix_seconds(text)
    except (ValueError, OverflowError):
        raise InvalidArgument(f"{name} is {quote(text)}: want a time such as 2026-01-31T08:00:00Z") from None


def _list_extras(pools: Iterable[PoolSpec]) -> set[str]:
    """Return the extended resources of the pools."""
    return {resource.kind for pool in pools for resource in pool.extras}


def columns_of(
    kinds: Iterable[str], quantities: Sequence[Quantity], counts: Sequence[Quantity], extras: Collection[str]
) -> list[Column]:
    """List the columns of the kinds; without any, of RESOURCE_KINDS. ``extras`` are the extended resources of pools.

    Raises InvalidArgument for an unknown kind.
    """
    wanted = list(dict.fromkeys(kinds)) or list(RESOURCE_KINDS)
    for kind in wanted:
        if kind not in RESOURCE_KINDS and kind not in extras:
            known = ", ".join([*RESOURCE_KINDS, *sorted(extras)])
            raise InvalidArgument(f"{quote(kind)} is no kind of resource: want {known}")
    return [Column(quantity, kind) for kind in wanted for quantity in quantities] + [Column(each) for each in counts]


def chosen_pools(paths: dict[RespoolId, str], wanted: Sequence[str], levels: int) -> list[RespoolId]:
    """Return ids of the pools at these paths and ``levels`` levels below them, parents first.

    Raises NotFound, InvalidArgument.
    """
    if not wanted:
        raise InvalidArgument("no path of a pool is given: want at least one, such as /")
    tops = check_paths(paths, wanted)
    found = [
        (_parts(path), pool_id) for pool_id, path in paths.items() if any(_is_within(path, top, levels) for top in tops)
    ]
    if len(found) > SERIES_MAX:
        raise InvalidArgument(f"{len(found)} pools are requested, at most {SERIES_MAX} in one call: want less levels")
    return [pool_id for _, pool_id in sorted(found)]


def check_paths(paths: dict[RespoolId, str], wanted: Iterable[str]) -> set[str]:
    """Return the paths without a slash at the end. Raises NotFound."""
    tops = {each.rstrip("/") or "/" for each in wanted}
    if unknown := sorted(tops - set(paths.values())):
        raise NotFound(f"resource pool {shorten(unknown[0])} not found").because(Reason.POOL_NOT_FOUND, pool=unknown[0])
    return tops


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _is_within(path: str, top: str, levels: int | None = None) -> bool:
    own, above = _parts(path), _parts(top)
    return own[: len(above)] == above and (levels is None or len(own) - len(above) <= levels)


def check_order(start_s: int, end_s: int) -> None:
    """Raise InvalidArgument if the start is not before the end."""
    if start_s >= end_s:
        raise InvalidArgument(f"the start, {rfc3339(start_s * NS_PER_S)}, is not before the end")


def grid_of(start_s: int, end_s: int, step_s: int, now_s: int, series_count: int, column_count: int) -> Grid:
    """Choose the intervals. Raises InvalidArgument for intervals that are not stored, or too many for one answer."""
    check_order(start_s, end_s)
    minutes_from_s = now_s - MINUTES_KEPT_S
    fits = VALUES_MAX // max(series_count * column_count * 2, 1)  # a mean and a maximum
    if step_s:
        if step_s % (MINUTE_S if step_s < HOUR_S else HOUR_S):
            raise InvalidArgument(f"a step of {step_s} s: want a multiple of {MINUTE_S}, and of {HOUR_S} from there on")
        if step_s < HOUR_S and start_s < minutes_from_s:
            raise InvalidArgument(
                f"a step of {step_s} s: from {rfc3339(start_s * NS_PER_S)} on there are hours only; minutes are kept "
                f"for {MINUTES_KEPT_S // HOUR_S} hours"
            )
        grid = _grid(start_s, end_s, step_s)
        if grid.count > min(INTERVALS_MAX, fits):
            raise InvalidArgument(
                f"{grid.count} intervals of {step_s} s of {series_count} series: at most {min(INTERVALS_MAX, fits)} "
                "in one call; want a longer step, a shorter time, less pools or one kind"
            )
        return grid
    for step_s in STEPS_S:
        grid = _grid(start_s, end_s, step_s)
        if grid.count <= min(INTERVALS_DEFAULT, fits) and (step_s >= HOUR_S or start_s >= minutes_from_s):
            return grid
    raise InvalidArgument(
        f"{(end_s - start_s) // HOUR_S} hours of {series_count} series are more than an answer has: want a shorter time"
    )


def _grid(start_s: int, end_s: int, step_s: int) -> Grid:
    begin_s = start_s - start_s % step_s
    return Grid(begin_s, step_s, -((begin_s - end_s) // step_s))
