"""Peloton's HistoryService over real storage: grids, gaps, bounds and refusals."""

from __future__ import annotations

import math
import time as wall
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api.convert_time import rfc3339
from peloton.api.v0.history import history_pb2 as pb
from peloton.api.v0.history.history_pb2_grpc import HistoryServiceStub
from peloton.errors import InvalidArgument
from peloton.model.history import Column, Quantity, Sample, cluster_series, pool_series
from peloton.model.resources import UNLIMITED
from services.api.history_service import INTERVALS_DEFAULT, INTERVALS_MAX, VALUES_MAX, grid_of
from services.api.server import start
from services.storage.storage import Storage
from tests.unit.api_service.fakes import RecordedWakes
from tests.unit.api_service.story import INNER, LEAF, expect_refusal

HOUR_S, DAY_S = 3_600, 86_400
NOW = 1_700_006_400
CPU = Column(Quantity.ALLOCATION, "cpu")
LIMIT = Column(Quantity.LIMIT, "memory")


@pytest.fixture
async def history(storage: Storage) -> AsyncIterator[Any]:
    wakes = RecordedWakes()
    server = await start(storage, wakes, lambda _: None, "127.0.0.1:0", clusters=lambda: {"local": "", "other": ""})
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield HistoryServiceStub(channel)
    await server.stop(0)


def recent() -> int:
    """Return the start of the current minute in seconds; storage still keeps minutes of that time."""
    now_s = int(wall.time())
    return now_s - now_s % 60


def time(at_s: int) -> str:
    return rfc3339(at_s * 1_000_000_000)


def record(storage: Storage, at_s: int, cores: int, **more: int) -> None:
    amounts = {CPU: cores * 1_000, LIMIT: UNLIMITED, Column(Quantity.ADMITTED): more.get("admitted", 0)}
    both = {pool_series(LEAF): amounts, pool_series(INNER): amounts}
    hosts = {cluster_series("local"): {Column(Quantity.HOSTS_UP): cores}}
    pods = more.get("preempted", 0)
    storage.history.add(Sample(at_s, 60, both | hosts, {pool_series(LEAF): (("/b", pods),)} if pods else {}))


def ask(start_s: int, end_s: int, **more: Any) -> pb.GetPoolHistoryRequest:
    return pb.GetPoolHistoryRequest(**{"paths": ["/eng/maps"], "start": time(start_s), "end": time(end_s)} | more)


def column(pool: pb.PoolHistory | pb.ClusterHistory, quantity: pb.Quantity.ValueType, kind: str = "") -> pb.Column:
    (found,) = [each for each in pool.columns if (each.quantity, each.kind) == (quantity, kind)]
    return found


async def test_values_lie_on_a_grid(history: Any, storage: Storage) -> None:
    """Values are in display units; a gap has no covered seconds, and marks have the index of their interval."""
    now_s = recent()
    record(storage, now_s - 240, 1)
    record(storage, now_s - 120, 3, preempted=5, admitted=2)

    answer = await history.GetPoolHistory(ask(now_s - 240, now_s, step_s=60))

    assert (time(now_s - 240), 60, 4) == (answer.start, answer.step_s, answer.count)
    (pool,) = answer.pools
    assert ("/eng/maps", LEAF, [60, 0, 60, 0]) == (pool.path, pool.pool_id, pool.covered_s)
    assert [1, 0, 3, 0] == column(pool, pb.QUANTITY_ALLOCATION, "cpu").values
    assert [] == column(pool, pb.QUANTITY_ALLOCATION, "cpu").maxima, "the same"
    assert [math.inf, 0, math.inf, 0] == column(pool, pb.QUANTITY_LIMIT, "memory").values
    assert [0, 0, 2, 0] == column(pool, pb.QUANTITY_ADMITTED).values
    assert [pb.Preemption(index=2, for_pool="/b", instances=5)] == list(pool.preemptions)


async def test_longer_steps_have_means_and_maxima(history: Any, storage: Storage) -> None:
    """The hour in progress counts as well, and the marks of an interval are summed."""
    now_s = recent()
    start_s = now_s - now_s % HOUR_S - HOUR_S
    for minute in range(60):
        record(storage, start_s + minute * 60, minute, preempted=1, admitted=1)
    for step_s in (HOUR_S, 1_800):
        answer = await history.GetPoolHistory(ask(start_s, start_s + HOUR_S, step_s=step_s, kinds=["cpu"]))
        (pool,) = answer.pools
        cpu = column(pool, pb.QUANTITY_ALLOCATION, "cpu")
        assert {HOUR_S: ([29.5], [59.0]), 1_800: ([14.5, 44.5], [29.0, 59.0])}[step_s] == (
            list(cpu.values),
            list(cpu.maxima),
        )
        assert {"", "cpu"} == {each.kind for each in pool.columns}
        assert [step_s // 60] * (HOUR_S // step_s) == [mark.instances for mark in pool.preemptions]


async def test_levels_below_a_pool(history: Any, storage: Storage) -> None:
    """Parents precede children; each pool occurs once, and a trailing slash has no effect."""
    record(storage, recent() - 60, 1)

    async def paths(*paths: str, levels: int) -> list[str]:
        request = pb.GetPoolHistoryRequest(paths=paths, levels=levels)
        return [pool.path for pool in (await history.GetPoolHistory(request)).pools]

    assert ["/"] == await paths("/", levels=0)
    assert ["/", "/eng"] == await paths("/", levels=1)
    assert ["/", "/eng", "/eng/maps"] == await paths("/eng/", "/", levels=9)


async def test_clusters(history: Any, storage: Storage) -> None:
    """The answer has all known clusters, or the named ones, with counts of hosts."""
    record(storage, recent() - 60, 7)

    answer = await history.GetClusterHistory(pb.GetClusterHistoryRequest())

    local, other = answer.clusters
    assert ("local", 7) == (local.cluster, max(column(local, pb.QUANTITY_HOSTS_UP).values))
    assert ("other", 0) == (other.cluster, sum(other.covered_s))
    (only,) = (await history.GetClusterHistory(pb.GetClusterHistoryRequest(clusters=["other"]))).clusters
    assert "other" == only.cluster
    found = await expect_refusal(history.GetClusterHistory(pb.GetClusterHistoryRequest(clusters=["x"])))
    assert (grpc.StatusCode.NOT_FOUND, "unknown cluster x; known clusters: local, other") == found


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"paths": []}, "INVALID_ARGUMENT", "no path of a pool is given: want at least one, such as /"),
        ({"paths": ["/eng", "/none"]}, "NOT_FOUND", "resource pool /none not found"),
        ({"kinds": ["cup"]}, "INVALID_ARGUMENT", "'cup' is no kind of resource: want cpu, memory, disk, gpu"),
        ({"start": "now"}, "INVALID_ARGUMENT", "start is 'now': want a time such as 2026-01-31T08:00:00Z"),
        ({"end": "2020-01-01T00:00:00Z"}, "INVALID_ARGUMENT", "is not before the end"),
        ({"step_s": 90}, "INVALID_ARGUMENT", "a step of 90 s: want a multiple of 60, and of 3600 from there on"),
        ({"step_s": 5_400}, "INVALID_ARGUMENT", "a step of 5400 s: want a multiple of 60"),
        ({"start": "2020-01-01T00:00:00Z", "step_s": 60}, "INVALID_ARGUMENT", "minutes are kept for 25 hours"),
        ({"start": "2020-01-01T00:00:00Z", "step_s": 3_600}, "INVALID_ARGUMENT", "at most 1500 in one call"),
    ],
)
async def test_what_cannot_be_meant_is_refused(history: Any, fields: dict[str, Any], code: str, text: str) -> None:
    """The error names the object, the rule and the numbers."""
    request = ask(recent() - HOUR_S, recent(), **fields)
    found, said = await expect_refusal(history.GetPoolHistory(request))
    assert grpc.StatusCode[code] is found
    assert text in (said or "")


def test_the_step_fits() -> None:
    """The step is the shortest one within the bounds: minutes for hours of a day, and at most the values of an
    answer."""
    assert 60 == grid_of(NOW - 6 * HOUR_S, NOW, 0, NOW, 1, 42).step_s
    assert 300 == grid_of(NOW - DAY_S, NOW, 0, NOW, 1, 42).step_s
    assert HOUR_S == grid_of(NOW - 7 * DAY_S, NOW, 0, NOW, 1, 42).step_s
    assert DAY_S == grid_of(NOW - 365 * DAY_S, NOW, 0, NOW, 1, 42).step_s
    for series in (1, 20, 200):
        for days in (1, 30, 150):
            grid = grid_of(NOW - days * DAY_S, NOW, 0, NOW, series, 42)
            assert grid.count <= INTERVALS_DEFAULT < INTERVALS_MAX
            assert grid.count * series * 42 * 2 <= VALUES_MAX
            assert grid.start_s <= NOW - days * DAY_S < grid.start_s + grid.step_s
            assert grid.end_s - grid.step_s < NOW <= grid.end_s
    with pytest.raises(InvalidArgument, match="8760 hours of 200 series are more than an answer has"):
        grid_of(NOW - 365 * DAY_S, NOW, 0, NOW, 200, 42)
