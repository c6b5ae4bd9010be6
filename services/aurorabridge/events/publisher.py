"""Publisher of events: follows the bridge's pods and posts each change, in order for each pod and at least once.

Pods are hashed to buckets, each with a bounded queue and a connection of its own. A bucket repeats its POST until the
proxy takes it, and the watch is not read while the queue of its next event is full, so that memory stays bounded
however long the proxy is unavailable. The api disconnects a watch that is not read; it resumes from the last revision
that was read here. The position, from which the next publisher continues, is before the first unpublished event.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Protocol

import grpc
import grpc.aio

from peloton.api.v1alpha.pod import pod_pb2
from services.aurorabridge.events.event import encode_event, is_event
from services.aurorabridge.events.feed import Changes
from services.aurorabridge.events.progress import Progress, Step
from services.aurorabridge.method import Refusal

log = logging.getLogger(__name__)

BUCKETS = 25
QUEUE_MAX = 1_000
BACKOFF_S = 2.0
BACKOFF_MAX_S = 30.0
REFUSED = frozenset({400, 413, 422})
"""Statuses with which the proxy refuses one event for its content: it would refuse it each time."""


class Follows(Protocol):
    def watch(self, after: int) -> AsyncGenerator[Changes, None]: ...
    def list_pods(self) -> AsyncGenerator[Sequence[pod_pb2.PodSummary], None]: ...


class Posts(Protocol):
    async def post(self, body: bytes) -> int: ...
    def close(self) -> None: ...


TaskOf = Callable[[pod_pb2.PodSummary], Awaitable[Any]]
Queue = asyncio.Queue[tuple[Step, pod_pb2.PodSummary]]


class Publisher:
    """``position``: the revision after which events are published; 0: from now on."""

    def __init__(
        self,
        feed: Follows,
        task_of: TaskOf,
        connect: Callable[[], Posts],
        position: int,
        leads: Callable[[], bool] = lambda: True,
        backoff_s: float = BACKOFF_S,
    ) -> None:
        """``leads`` returns whether this process may post."""
        self._feed = feed
        self._task_of = task_of
        self._connect = connect
        self._leads = leads
        self._backoff_s = backoff_s
        self._read_to = position
        self._progress = Progress(position)
        self._published = asyncio.Event()
        self._queues: list[Queue] = [asyncio.Queue(QUEUE_MAX) for _ in range(BUCKETS)]

    @property
    def position(self) -> int:
        return self._progress.position

    async def run(self) -> None:
        """Publish until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number, queue in enumerate(self._queues):
                group.create_task(self._drain(queue), name=f"events {number}")
            await self._follow()

    async def _follow(self) -> None:
        is_too_old = False
        while True:
            try:
                async with aclosing(self._feed.watch(0 if is_too_old else self._read_to)) as changes:
                    async for change in changes:
                        if is_too_old:
                            is_too_old = False
                            await self._publish_all()
                        await self._put(change)
            except grpc.aio.AioRpcError as error:
                is_too_old = is_too_old or error.code() is grpc.StatusCode.OUT_OF_RANGE
                log.warning("the watch of pods ended (%s), watching again: %s", error.code().name, error.details())
            await asyncio.sleep(self._backoff_s)

    async def _publish_all(self) -> None:
        """Publish the present state of all pods, at the position of before: it is complete only after all of them."""
        log.warning(
            "changes of pods after revision %d are kept no more: the present states are published", self._read_to
        )
        async with aclosing(self._feed.list_pods()) as lists:
            async for pods in lists:
                await self._put(Changes(self._read_to, pods))

    async def _put(self, changes: Changes) -> None:
        for pod in filter(is_event, changes.pods):
            queue = self._queues[bucket_of(pod.pod_name.value)]
            while self._progress.is_full:
                self._published.clear()
                await self._published.wait()
            await queue.put((self._progress.begin_event(self._read_to), pod))
        self._progress.reach(changes.revision)
        self._read_to = changes.revision

    async def _drain(self, queue: Queue) -> None:
        proxy = self._connect()
        try:
            while True:
                step, pod = await queue.get()
                await self._publish(proxy, pod)
                step.is_done = True
                self._published.set()
        finally:
            proxy.close()

    async def _publish(self, proxy: Posts, pod: pod_pb2.PodSummary) -> None:
        pause_s = self._backoff_s
        while True:
            try:
                task = await self._task_of(pod)
                if task is None:
                    log.info("pod %s is gone: its event is not published", pod.pod_name.value)
                    return
                body = encode_event(pod, task)
                status = await proxy.post(body) if self._leads() else 0
                if 200 <= status < 300:
                    return
                if status in REFUSED:
                    log.error("the Kafka REST proxy refuses an event of pod %s: status %d", pod.pod_name.value, status)
                    return
                why = f"status {status}" if status else "the lease has expired"
            except Refusal as error:
                log.warning("pod %s has no event, its job was not made by the bridge: %s", pod.pod_name.value, error)
                return
            except (OSError, grpc.aio.AioRpcError) as error:
                why = str(error) or type(error).__name__
            log.warning("an event of pod %s is not published, again in %.0f s: %s", pod.pod_name.value, pause_s, why)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, BACKOFF_MAX_S)


def bucket_of(pod_name: str) -> int:
    return zlib.crc32(pod_name.encode()) % BUCKETS
