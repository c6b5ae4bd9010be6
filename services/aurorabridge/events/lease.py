"""Election of the one bridge that publishes, by a lease that role api stores with the position of the publisher.

The bridge has no database, ZooKeeper need not be there, and a label would belong to one job. Role api has the leases of
all roles and the log that is followed, so one call renews the lease and stores how far the log is published.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import grpc
import grpc.aio

from peloton.api.private import publisher_pb2 as pb
from peloton.api.private.publisher_pb2_grpc import EventPublisherStub
from services.aurorabridge.backend import Backend
from services.aurorabridge.events.feed import Feed
from services.aurorabridge.events.proxy import Proxy, ProxyUrl
from services.aurorabridge.events.publisher import Publisher
from services.aurorabridge.events.tasks import Tasks

if TYPE_CHECKING:
    from peloton.api.private.publisher_pb2_grpc import EventPublisherAsyncStub

log = logging.getLogger(__name__)

TTL_S = 10.0
RENEW_S = 2.0
CALL_TIMEOUT_S = 2.0
MARGIN_S = 1.0
"""Time before the end of the lease in which nothing is posted any more."""


class Runs(Protocol):
    @property
    def position(self) -> int: ...
    async def run(self) -> None: ...


class PublisherLease:
    """Lease of one process. ``leads`` is true while no other process can hold it."""

    def __init__(self, stub: EventPublisherAsyncStub, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._stub = stub
        self._clock_s = clock_s
        self._owner = f"{socket.gethostname()[:100]}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._until_s = 0.0

    def leads(self) -> bool:
        return self._clock_s() < self._until_s - MARGIN_S

    async def take(self, position: int | None = None, ttl_s: float = TTL_S) -> int | None:
        """Acquire or renew the lease; return the stored position, or None when another process has the lease."""
        began_s = self._clock_s()
        request = pb.LeaseRequest(owner=self._owner, ttl_s=ttl_s, position=position)
        answer = await self._stub.Lease(request, timeout=CALL_TIMEOUT_S)
        self._until_s = began_s + ttl_s if answer.holds else 0.0
        return answer.position if answer.holds else None


async def publish(backend: Backend, stop: asyncio.Event) -> None:
    """Publish events while this process has the lease, until ``stop``; return at once when no proxy is configured.
    Raises InvalidArgument for an address that is no URL.
    """
    if not backend.settings.kafka_url:
        return
    url = ProxyUrl(backend.settings.kafka_url)
    lease = PublisherLease(EventPublisherStub(backend.channel))
    feed, tasks = Feed(backend), Tasks(backend)
    await publish_when_elected(
        lease, lambda position: Publisher(feed, tasks.of, lambda: Proxy(url), position, lease.leads), stop
    )


async def publish_when_elected(lease: PublisherLease, make: Callable[[int], Runs], stop: asyncio.Event) -> None:
    last_failure = ""
    while not stop.is_set():
        try:
            position = await lease.take()
        except grpc.aio.AioRpcError as error:
            if error.code().name != last_failure:
                log.warning("the lease of the publisher cannot be taken: %s", error.details())
            last_failure, position = error.code().name, None
        if position is None:
            await _pause(stop)
        else:
            log.info("this bridge publishes events, after revision %d", position)
            await _lead(lease, make(position), stop)


async def _lead(lease: PublisherLease, publisher: Runs, stop: asyncio.Event) -> None:
    """Publish and renew until the lease is lost, the publisher fails or ``stop``; then release the lease."""
    running = asyncio.create_task(publisher.run(), name="event publisher")
    try:
        while not stop.is_set() and not running.done():
            await _pause(stop)
            try:
                if await lease.take(publisher.position) is None:
                    break
            except grpc.aio.AioRpcError as error:
                log.warning("the lease of the publisher is not renewed: %s", error.details())
                if not lease.leads():
                    break
    finally:
        running.cancel()
        (end,) = await asyncio.gather(running, return_exceptions=True)
        if lease.leads():
            with contextlib.suppress(grpc.aio.AioRpcError):
                await lease.take(publisher.position, ttl_s=0)
    if isinstance(end, Exception):
        log.error("the publisher of events failed", exc_info=end)
        await _pause(stop)


async def _pause(stop: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(RENEW_S):
            await stop.wait()
