"""Lease and position of the Aurora bridge's publisher, through a running server over real storage."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api.private.publisher_pb2 import LeaseRequest, LeaseResponse
from peloton.api.private.publisher_pb2_grpc import EventPublisherStub
from services.api import event_publisher
from services.storage.storage import Storage
from tests.unit.api_service.story import expect_refusal

NOW_S = 1_000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [NOW_S]
    monkeypatch.setattr(event_publisher, "time", SimpleNamespace(time=lambda: now[0]))
    return now


@pytest.fixture
def lease(channel: grpc.aio.Channel, clock: list[float]) -> Callable[..., Any]:
    return EventPublisherStub(channel).Lease


async def test_one_process_has_the_lease(lease: Callable[..., Any], clock: list[float]) -> None:
    """Another one gets it when it has expired, with the position that was stored last."""
    assert LeaseResponse(holds=True) == await lease(LeaseRequest(owner="a", ttl_s=10))
    assert LeaseResponse(holds=True, position=7) == await lease(LeaseRequest(owner="a", ttl_s=10, position=7))
    assert LeaseResponse(position=7) == await lease(LeaseRequest(owner="b", ttl_s=10))
    clock[0] += 11

    assert LeaseResponse(holds=True, position=7) == await lease(LeaseRequest(owner="b", ttl_s=10))
    assert LeaseResponse(position=7) == await lease(LeaseRequest(owner="a", ttl_s=10, position=9))


async def test_position_may_fall(lease: Callable[..., Any]) -> None:
    """Revisions begin lower when the database was restored from a backup."""
    await lease(LeaseRequest(owner="a", ttl_s=10, position=7))
    assert LeaseResponse(holds=True, position=3) == await lease(LeaseRequest(owner="a", ttl_s=10, position=3))


async def test_released_lease(lease: Callable[..., Any], storage: Storage) -> None:
    """A lease of no time is free at once, and keeps the position."""
    await lease(LeaseRequest(owner="a", ttl_s=10))
    await lease(LeaseRequest(owner="a", ttl_s=0, position=5))

    assert LeaseResponse(holds=True, position=5) == await lease(LeaseRequest(owner="b", ttl_s=10))
    assert 5 == storage.watch_log.read_published()


@pytest.mark.parametrize(
    "request_",
    [
        LeaseRequest(ttl_s=1),
        LeaseRequest(owner="x" * 201, ttl_s=1),
        LeaseRequest(owner="a\0", ttl_s=1),
        LeaseRequest(owner="a", ttl_s=61),
        LeaseRequest(owner="a", ttl_s=-1),
        LeaseRequest(owner="a", ttl_s=float("nan")),
        LeaseRequest(owner="a", ttl_s=1, position=2**63),
    ],
    ids=lambda request: str(request)[:30],
)
async def test_invalid_leases(lease: Callable[..., Any], request_: LeaseRequest) -> None:
    """A lease that could not be stored, or would keep others out for long, is refused."""
    code, _ = await expect_refusal(lease(request_))
    assert grpc.StatusCode.INVALID_ARGUMENT == code
