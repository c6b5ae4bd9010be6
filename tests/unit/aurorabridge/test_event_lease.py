"""Election of the bridge that publishes, in virtual time, against a double of the api's lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from peloton.api.private.publisher_pb2 import LeaseRequest, LeaseResponse
from services.aurorabridge.events.lease import TTL_S, PublisherLease, publish_when_elected
from tests.unit.aurorabridge.event_doubles import error
from tests.unit.virtual_time import in_virtual_time


class Api:
    """The lease of the api in virtual time."""

    def __init__(self) -> None:
        self.owner, self.until_s, self.position = "", 0.0, 0
        self.is_away_of: set[str] = set()

    async def lease(self, request: LeaseRequest) -> LeaseResponse:
        now_s = asyncio.get_running_loop().time()
        if request.owner in self.is_away_of:
            raise error(grpc.StatusCode.UNAVAILABLE, "away")
        if self.owner not in ("", request.owner) and now_s < self.until_s:
            return LeaseResponse(position=self.position)
        self.owner, self.until_s = request.owner, now_s + request.ttl_s
        if request.HasField("position"):
            self.position = request.position
        return LeaseResponse(holds=True, position=self.position)


class Publisher:
    """A publisher that publishes one event a second while it may."""

    def __init__(self, name: str, position: int, leads: Callable[[], bool], posted: list[tuple[str, int]]) -> None:
        self.name, self.position, self.leads, self.posted = name, position, leads, posted
        self.fails = False

    async def run(self) -> None:
        while True:
            await asyncio.sleep(1)
            if self.fails:
                raise RuntimeError("broken")
            if self.leads():
                self.position += 1
                self.posted.append((self.name, self.position))


class Bridge:
    def __init__(self, name: str, api: Api, posted: list[tuple[str, int]]) -> None:
        stub: Any = type("Stub", (), {"Lease": lambda _, request, timeout: api.lease(request)})()
        self.lease = PublisherLease(stub, asyncio.get_running_loop().time)
        self.stop = asyncio.Event()
        self.publishers: list[Publisher] = []
        self.owner = self.lease._owner

        def make(position: int) -> Publisher:
            self.publishers.append(Publisher(name, position, self.lease.leads, posted))
            return self.publishers[-1]

        self.task = asyncio.create_task(publish_when_elected(self.lease, make, self.stop))

    async def end(self) -> None:
        self.stop.set()
        await self.task


@in_virtual_time
async def test_stopped_bridge_hands_over() -> None:
    """The next one continues at once, after the last published event."""
    api, posted = Api(), list[tuple[str, int]]()
    first = Bridge("a", api, posted)
    await asyncio.sleep(10.5)
    second = Bridge("b", api, posted)
    await asyncio.sleep(10.2)
    assert {"a"} == {name for name, _ in posted}
    count = len(posted)
    await first.end()
    await asyncio.sleep(5)
    await second.end()

    assert ("b", count + 1) == posted[count]
    assert list(range(1, len(posted) + 1)) == [position for _, position in posted]


@in_virtual_time
async def test_killed_bridge_is_followed() -> None:
    """The lease expires, and events since the last stored position are published twice rather than never."""
    api, posted = Api(), list[tuple[str, int]]()
    first, second = Bridge("a", api, posted), Bridge("b", api, posted)
    await asyncio.sleep(9.5)
    leader, other = (first, second) if first.publishers else (second, first)
    api.is_away_of.add(leader.owner)  # a killed process releases nothing
    leader.task.cancel()
    leader.publishers[-1].leads = lambda: False
    stored = api.position
    await asyncio.sleep(TTL_S + 5)
    await other.end()

    assert [stored] == [publisher.position - count(posted, publisher) for publisher in other.publishers]


def count(posted: list[tuple[str, int]], publisher: Publisher) -> int:
    return sum(name == publisher.name for name, _ in posted)


@in_virtual_time
async def test_bridge_that_cannot_renew_stops_before_its_successor_begins() -> None:
    """A leader without the api posts no more when another one may lead."""
    api, posted = Api(), list[tuple[str, int]]()
    first = Bridge("a", api, posted)
    await asyncio.sleep(9)
    second = Bridge("b", api, posted)
    api.is_away_of.add(first.owner)
    await asyncio.sleep(TTL_S * 3)
    names = [name for name, _ in posted]
    api.is_away_of.clear()
    await first.end()
    await second.end()

    assert "b" in names
    assert ["b"] * names.count("b") == names[names.index("b") :]


@in_virtual_time
async def test_publisher_that_fails_begins_again() -> None:
    """A failure of the publisher ends neither the bridge nor the events."""
    api, posted = Api(), list[tuple[str, int]]()
    bridge = Bridge("a", api, posted)
    await asyncio.sleep(5)
    bridge.publishers[-1].fails = True
    await asyncio.sleep(20)
    await bridge.end()

    assert 2 == len(bridge.publishers)
    assert bridge.publishers[1].position > bridge.publishers[0].position > 0


@pytest.mark.parametrize("holds", [True, False])
async def test_lease_leads_only_while_held(holds: bool) -> None:
    """The lease begins when it was asked for, and ends some time before it expires."""
    now = [0.0]

    async def answer(request: LeaseRequest, timeout: float) -> LeaseResponse:
        now[0] += 3
        return LeaseResponse(holds=holds, position=4)

    lease = PublisherLease(type("Stub", (), {"Lease": staticmethod(answer)})(), lambda: now[0])
    assert not lease.leads()
    assert (4 if holds else None) == await lease.take()
    now[0] = 8.9
    assert holds == lease.leads()
    now[0] = 9.1
    assert not lease.leads()
