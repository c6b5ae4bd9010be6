"""Events of the Aurora bridge over a running server of role api: its watch, its lease and its stored position."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from peloton.model.ids import JobId
from services.aurorabridge.backend import Backend
from services.aurorabridge.events import feed, lease, publisher
from services.aurorabridge.events.feed import Feed
from services.aurorabridge.events.lease import publish
from services.aurorabridge.events.stream import Streams
from services.aurorabridge.events.tasks import Tasks
from services.aurorabridge.mapping.job_spec import job_spec_of
from services.aurorabridge.settings import BridgeSettings
from services.storage.storage import Storage
from tests.conformance.storage.services import roll
from tests.unit.api_service.services import create, spec
from tests.unit.api_service.story import JOB, LEAF
from tests.unit.aurorabridge.event_doubles import Server, serving, until
from tests.unit.aurorabridge.scenario import task_config, update_request
from tests.unit.aurorabridge.test_event_stream import Client

pytestmark = pytest.mark.slow

SETTLED = {f"{JOB}-{instance}-1" for instance in range(3)}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEW_S", 0.02)
    monkeypatch.setattr(publisher, "BACKOFF_S", 0.02)


@pytest.fixture(autouse=True)
async def other_service(v1: Any) -> None:
    """Begin the log of changes: the position in an empty one is that of no position."""
    await create(v1, spec(), "00000000-0000-4000-8000-0000000000bb")


@pytest.fixture
async def proxy() -> AsyncIterator[Server]:
    async with serving() as server:
        yield server


@contextlib.asynccontextmanager
async def bridge(address: str, proxy: Server) -> AsyncIterator[asyncio.Event]:
    """A bridge that publishes; it is killed at the end unless the event was set, which stops it."""
    backend, stop = Backend(address, BridgeSettings(kafka_url=proxy.url)), asyncio.Event()
    running = asyncio.create_task(publish(backend, stop))
    try:
        yield stop
    finally:
        if stop.is_set():
            await running
        await backend.close()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def events(proxy: Server) -> list[tuple[str, str]]:
    """Return task id and status of each posted event, in the order of arrival."""
    tasks = [orjson.loads(body)["task"] for _, body in proxy.requests]
    return [(task["assignedTask"]["taskId"], task["status"]) for task in tasks]


def running_tasks(proxy: Server) -> set[str]:
    return {task for task, status in events(proxy) if status == "RUNNING"}


async def deploy(v1: Any, storage: Storage) -> None:
    await create(v1, job_spec_of(update_request(task_config(tier="revocable")), str(LEAF), None))
    await asyncio.to_thread(roll, storage, JobId(JOB))


async def test_pods_of_the_bridge_are_published(address: str, v1: Any, storage: Storage, proxy: Server) -> None:
    """Each pod's events end with RUNNING, and have the configuration that the client sent."""
    async with bridge(address, proxy):
        await until(storage.watch_log.read_published)  # nothing is missed from here on
        await deploy(v1, storage)
        await until(lambda: running_tasks(proxy) == SETTLED)

    task = orjson.loads(proxy.requests[-1][1])["task"]["assignedTask"]
    assert {"role": "ads", "environment": "prod", "name": "web"} == task["task"]["job"]
    last = dict(events(proxy))
    assert dict.fromkeys(SETTLED, "RUNNING") == last


@pytest.mark.parametrize("is_killed", [True, False])
async def test_next_bridge_continues(
    address: str, v1: Any, storage: Storage, proxy: Server, is_killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes between the end of one bridge and the start of another one are published by the latter."""
    monkeypatch.setattr(lease, "TTL_S", 2.0)  # of the killed one
    monkeypatch.setattr(lease, "MARGIN_S", 0.1)
    async with bridge(address, proxy) as stop:
        await until(storage.watch_log.read_published)
        if not is_killed:
            stop.set()
    await deploy(v1, storage)
    assert [] == events(proxy)

    async with bridge(address, proxy):
        await until(lambda: running_tasks(proxy) == SETTLED)


async def test_one_of_two_bridges_publishes(address: str, v1: Any, storage: Storage, proxy: Server) -> None:
    """Two bridges post each event once while neither dies."""
    async with bridge(address, proxy), bridge(address, proxy):
        await until(storage.watch_log.read_published)
        await deploy(v1, storage)
        await until(lambda: running_tasks(proxy) == SETTLED)

    assert len(set(events(proxy))) == len(events(proxy))


async def test_present_pods_are_published_after_a_gap(
    address: str, v1: Any, storage: Storage, proxy: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bridge whose position is kept no more posts the state of each pod of the bridge, and of no other job."""
    monkeypatch.setattr(feed, "JOBS_PAGE", 1)
    async with bridge(address, proxy) as stop:
        await until(storage.watch_log.read_published)
        stop.set()
    await deploy(v1, storage)
    await create(v1, spec(), "00000000-0000-4000-8000-0000000000cc")  # the newest change stays
    newest = storage.watch_log.bounds()[1]
    storage.watch_log.prune(newest - 1)

    async with bridge(address, proxy):
        await until(lambda: storage.watch_log.read_published() == newest)

    assert sorted((task, "RUNNING") for task in SETTLED) == sorted(events(proxy))


async def test_stream_of_events(address: str, v1: Any, storage: Storage) -> None:
    """A client of server-sent events gets the same, and resumes after the last one that it has."""
    backend = Backend(address)
    streams = Streams(Feed(backend), Tasks(backend))
    first = Client(streams)
    running = asyncio.create_task(first.run())
    await until(lambda: first.frames)
    await deploy(v1, storage)
    await until(lambda: {task for _, task, status in first.events if status == "RUNNING"} == SETTLED)
    streams.close()
    await running

    middle = first.events[len(first.events) // 2][0]
    second = Client(Streams(Feed(backend), Tasks(backend)), middle)
    running = asyncio.create_task(second.run())
    expected = [event for event in first.events if int(event[0]) > int(middle)]
    await until(lambda: len(second.events) >= len(expected))
    second.leaves.set()
    await running
    await backend.close()

    assert expected[-1] == second.events[-1]
