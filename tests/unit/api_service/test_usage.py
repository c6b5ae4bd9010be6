"""Usage of pools and owners over real storage: hours by kind, day and owner, and refusals."""

from __future__ import annotations

import time as wall
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api.v0.history import history_pb2 as pb
from peloton.api.v0.history.history_pb2_grpc import HistoryServiceStub
from peloton.model.history import Column, Quantity, Sample, owner_series, pool_series
from peloton.model.ids import RespoolId
from services.api import usage
from services.api.server import start
from services.storage.storage import Storage
from tests.unit.api_service.fakes import RecordedWakes
from tests.unit.api_service.story import INNER, LEAF, expect_refusal
from tests.unit.api_service.test_history import DAY_S, HOUR_S, time

TODAY = int(wall.time()) // DAY_S * DAY_S
GONE = RespoolId("11111111-0000-4000-8000-000000000000")


@pytest.fixture
async def history(storage: Storage) -> AsyncIterator[Any]:
    server = await start(storage, RecordedWakes(), lambda _: None, "127.0.0.1:0")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield HistoryServiceStub(channel)
    await server.stop(0)


def record(storage: Storage, at_s: int, **cores: int) -> None:
    """Record half an hour in which /eng/maps uses what alice and bob hold; the owner of a deleted pool holds memory."""
    total = sum(cores.values())
    amounts = {
        pool_series(LEAF): {Column(Quantity.ALLOCATION, "cpu"): total * 1_000, Column(Quantity.LENT, "gpu"): 500},
        pool_series(INNER): {Column(Quantity.ALLOCATION, "cpu"): total * 1_000},
        owner_series(GONE, "old"): {Column(Quantity.ALLOCATION, "memory"): 2_048},
    }
    for owner, count in cores.items():
        held = {Column(Quantity.ALLOCATION, "cpu"): count * 1_000, Column(Quantity.BORROWED, "cpu"): 1_000}
        amounts[owner_series(LEAF, owner)] = held
    storage.history.add(Sample(at_s, 1_800, amounts))


async def ask(history: Any, **fields: Any) -> pb.GetUsageResponse:
    given = {"start": time(TODAY - 2 * DAY_S), "end": time(TODAY), **fields}
    answer: pb.GetUsageResponse = await history.GetUsage(pb.GetUsageRequest(**given))
    return answer


def lines(rows: Iterable[pb.Usage]) -> list[tuple[str, str, str, str, float, float, float]]:
    return [(one.day, one.path, one.owner, h.kind, h.used, h.borrowed, h.lent) for one in rows for h in one.hours]


@pytest.fixture
def two_days(storage: Storage) -> str:
    """Record an hour and a half on two days. Returns the second day."""
    record(storage, TODAY - DAY_S - 1_800, alice=4, bob=2)
    record(storage, TODAY - DAY_S, alice=4)
    record(storage, TODAY - DAY_S + 1_800, alice=6)
    return time(TODAY - DAY_S)[:10]


@pytest.mark.parametrize("is_folded", [False, True])
async def test_hours_of_pools_and_owners(history: Any, storage: Storage, two_days: str, is_folded: bool) -> None:
    """Cores become core-hours, MiB become GiB-hours; recent samples count like folded ones."""
    while is_folded and storage.history.fold(TODAY):
        pass

    answer = await ask(history)

    assert [
        ("", "/eng", "", "cpu", 8, 0, 0),
        ("", "/eng/maps", "", "cpu", 8, 0, 0),
        ("", "/eng/maps", "", "gpu", 0, 0, 0.75),
    ] == lines(answer.pools)
    assert [
        ("", "/eng/maps", "alice", "cpu", 7, 1.5, 0),
        ("", "/eng/maps", "bob", "cpu", 1, 0.5, 0),
        ("", str(GONE), "old", "memory", 3, 0, 0),
    ] == lines(answer.owners)


async def test_days_and_filters(history: Any, storage: Storage, two_days: str) -> None:
    """Days are those of UTC; a pool has all pools below it, and an owner's rows come alone."""
    daily = await ask(history, daily=True, owners=["alice"], paths=["/eng/"])
    assert [] == lines(daily.pools)
    assert [(time(TODAY - 2 * DAY_S)[:10], 2.0), (two_days, 5.0)] == [(row[0], row[4]) for row in lines(daily.owners)]
    second = await ask(history, start=time(TODAY - DAY_S + HOUR_S - 1), paths=["/eng/maps"])
    assert [5.0] == [row[4] for row in lines(second.owners)], "the start is rounded down to the hour"


async def test_what_is_refused(history: Any, storage: Storage, two_days: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown pools, times that are none, an empty period, and more series and days than one answer has are refused."""
    found = await expect_refusal(history.GetUsage(pb.GetUsageRequest(paths=["/none"])))
    assert (grpc.StatusCode.NOT_FOUND, "resource pool /none not found") == found
    code, text = await expect_refusal(history.GetUsage(pb.GetUsageRequest(start="now")))
    assert (grpc.StatusCode.INVALID_ARGUMENT, True) == (code, text.startswith("start is 'now'"))
    code, text = await expect_refusal(history.GetUsage(pb.GetUsageRequest(start=time(TODAY), end=time(TODAY))))
    assert (grpc.StatusCode.INVALID_ARGUMENT, True) == (code, text.endswith("is not before the end"))
    monkeypatch.setattr(usage, "SERIES_DAYS_MAX", 11)
    code, text = await expect_refusal(
        history.GetUsage(pb.GetUsageRequest(start=time(TODAY - 2 * DAY_S), end=time(TODAY)))
    )
    assert grpc.StatusCode.INVALID_ARGUMENT == code
    assert text.startswith("3 pools and 3 owners in pools over 2 days are 12 values, at most 11 in one call")
