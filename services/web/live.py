"""What pages show, pushed to them: one look at the API for all viewers of a topic, encoded once, sent when it changed.

A viewer that reads slowly gets the latest of each topic and misses what was in between, so that nothing piles up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import orjson

from peloton.errors import InvalidArgument, PelotonError, Unavailable
from peloton.model.text import quote
from services.web.api import Api
from services.web.faults import refusal_of

log = logging.getLogger(__name__)

VIEWERS_MAX = 1_000
"""Open pages; more are refused."""
TOPICS_MAX = 2_000
"""Topics that are looked at, of all viewers."""
TOPICS_OF_A_VIEWER_MAX = 20
BYTES_MAX = 8 << 20
"""Of one message."""
BYTES_PER_S = 50_000
"""Of a topic to each of its viewers, on average: after a large message the next look is later."""
BEAT_S = 15.0
"""A page that heard nothing for so long gets a beat, by which both ends notice a connection that is dead."""
BEAT = b"event: beat\ndata: {}\n\n"
SLOW_S = 5.0
"""A look that takes longer makes its topic stale: the page shows what it has, and since when."""
LINGER_S = 5.0
"""A topic without viewers is looked at for so long: a page that is loaded again finds it."""

Look = Callable[[Api, str], Awaitable[Any]]
"""The message of a topic, which orjson can encode; the text is what follows the colon of its name."""


@dataclass(frozen=True)
class Topic:
    """``job:ID`` is of the topic ``job`` with the argument ``ID``; ``overview`` has none."""

    look: Look
    period_s: float = 2.0
    takes_argument: bool = False


@dataclass
class _Viewer:
    """``news``: topics with a message that it has not been sent."""

    news: dict[str, None] = field(default_factory=dict)
    wake: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class _Running:
    frame: bytes = b""
    good_ms: int = 0  # unix time of the last look that was answered; 0: none was
    viewers: list[_Viewer] = field(default_factory=list)
    task: asyncio.Task[None] | None = None


class Hub:
    """For one event loop only. ``close`` ends all streams."""

    def __init__(self, api: Api, topics: Mapping[str, Topic]) -> None:
        self._api = api
        self._topics = topics
        self._running: dict[str, _Running] = {}
        self._viewers: list[_Viewer] = []
        self._is_closed = False

    async def close(self) -> None:
        self._is_closed = True
        for viewer in self._viewers:
            viewer.wake.set()
        tasks = [running.task for running in self._running.values() if running.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def check(self, names: Sequence[str]) -> None:
        """Raises InvalidArgument naming the topic that is none, Unavailable when there are too many viewers."""
        if not 0 < len(names) <= TOPICS_OF_A_VIEWER_MAX:
            raise InvalidArgument(f"{len(names)} topics: want 1 to {TOPICS_OF_A_VIEWER_MAX}")
        for name in names:
            kind, colon, argument = name.partition(":")
            topic = self._topics.get(kind)
            if topic is None:
                raise InvalidArgument(f"no topic {quote(kind)}: there are {', '.join(sorted(self._topics))}")
            if bool(colon and argument) != topic.takes_argument:
                raise InvalidArgument(f"topic {quote(name)}: want {kind}{':...' if topic.takes_argument else ''}")
        if len(self._viewers) >= VIEWERS_MAX:
            raise Unavailable(f"{VIEWERS_MAX} pages are open, as many as there may be: close one, or try again later")
        if len(self._running.keys() | set(names)) > TOPICS_MAX:
            raise Unavailable(f"{TOPICS_MAX} topics are watched, as many as may be: try again later")

    async def stream(self, names: Sequence[str]) -> AsyncIterator[bytes]:
        """Frames of server-sent events, for as long as the viewer reads them. Call ``check`` before."""
        viewer = _Viewer()
        self._viewers.append(viewer)
        joined = {name: self._join(name, viewer) for name in dict.fromkeys(names)}
        try:
            yield b": Peloton\n\n"
            while not self._is_closed:
                try:
                    async with asyncio.timeout(BEAT_S):
                        await viewer.wake.wait()
                except TimeoutError:
                    yield BEAT
                    continue
                viewer.wake.clear()
                news, viewer.news = viewer.news, {}
                for name in news:
                    yield joined[name].frame
        finally:
            self._viewers.remove(viewer)
            for running in joined.values():
                running.viewers.remove(viewer)

    def _join(self, name: str, viewer: _Viewer) -> _Running:
        running = self._running.get(name)
        if running is None:
            running = self._running[name] = _Running()
            running.task = asyncio.create_task(self._keep_looking(name, running), name=f"topic {name}")
        running.viewers.append(viewer)
        if running.frame:
            viewer.news[name] = None
            viewer.wake.set()
        return running

    async def _keep_looking(self, name: str, running: _Running) -> None:
        """Until nobody has viewed it for a while."""
        kind, _, argument = name.partition(":")
        topic = self._topics[kind]
        idle_s = 0.0
        try:
            while idle_s < LINGER_S:
                looking = asyncio.create_task(self._look(name, topic, argument))
                try:
                    done, _ = await asyncio.wait({looking}, timeout=SLOW_S)
                    if not done:
                        late = f"the api has not answered for {SLOW_S:g} s"
                        self._tell(name, running, {"error": {"code": "deadline_exceeded", "message": late}})
                    told = await looking
                finally:
                    looking.cancel()
                changed = self._tell(name, running, told)
                rest_s = max(topic.period_s, len(running.frame) / BYTES_PER_S) if changed else topic.period_s
                await asyncio.sleep(rest_s)
                idle_s = 0.0 if running.viewers else idle_s + rest_s
        finally:
            del self._running[name]

    def _tell(self, name: str, running: _Running, told: dict[str, Any]) -> bool:
        """Send news to the viewers of a topic; returns whether they are any. An error carries the time of the last
        answer, which the page shows as the age of what it has."""
        if "error" not in told:
            running.good_ms = time.time_ns() // 1_000_000
        elif running.good_ms:
            told = {**told, "asOfMs": running.good_ms}
        data = orjson.dumps(told, option=orjson.OPT_SORT_KEYS)  # maps of messages have no order
        if len(data) > BYTES_MAX:
            message = f"{len(data)} bytes are more than {BYTES_MAX}"
            data = orjson.dumps({"error": {"code": "resource_exhausted", "message": message}})
        frame = b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
        if frame == running.frame:
            return False
        running.frame = frame
        for viewer in running.viewers:
            viewer.news[name] = None
            viewer.wake.set()
        return True

    async def _look(self, name: str, topic: Topic, argument: str) -> dict[str, Any]:
        try:
            return {"value": await topic.look(self._api, argument)}
        except (grpc.aio.AioRpcError, PelotonError) as error:
            return {"error": refusal_of(error).content()}
        except Exception as error:  # a page says so; the others go on
            log.exception("topic %s", name)
            return {"error": {"code": "internal", "message": f"{type(error).__name__}: see the log of role web"}}
