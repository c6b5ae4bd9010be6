"""Live data pushed to pages: each topic is read once for all viewers with the same credentials, encoded once, and sent
when it has changed.

A slow viewer receives the latest message of each topic and misses earlier ones, so that no backlog grows.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import grpc
import orjson

from peloton.errors import InvalidArgument, PelotonError, Unavailable
from peloton.model.text import quote
from services.access.forwarded import FORWARDED, Headers
from services.web.api import Api
from services.web.faults import refusal_of
from services.web.viewer import EVERYBODY, Viewer
from services.web.viewer_checks import Shares

log = logging.getLogger(__name__)

VIEWERS_MAX = 1_000
"""Maximum number of open pages; more are rejected."""
PAGES_OF_A_VIEWER_MAX = 25
"""Maximum number of open pages of one viewer."""
TOPICS_MAX = 2_000
"""Maximum number of topics polled, of all viewers."""
TOPICS_OF_A_VIEWER_MAX = 20
BYTES_MAX = 8 << 20
"""Maximum size of one message."""
BYTES_PER_S = 50_000
"""Maximum average rate of a topic to each viewer: a large message delays the next poll."""
BEAT_S = 15.0
"""Interval of heartbeats on idle connections in seconds, by which both ends detect a dead connection."""
BEAT = b"event: beat\ndata: {}\n\n"
SLOW_S = 5.0
"""Time in seconds after which a poll makes its topic stale: the page shows the old data with its age."""
LINGER_S = 5.0
"""Time in seconds for which a topic without viewers is still polled, so that a reloaded page finds it."""

ReadTopic = Callable[[Api, str], Awaitable[Any]]
"""Function that reads a topic and returns data that orjson can encode; the text follows the colon of the name."""


@dataclass(frozen=True)
class Topic:
    """Kind of topic: ``job:ID`` is the topic ``job`` with the argument ``ID``; ``overview`` has none."""

    read: ReadTopic
    period_s: float = 2.0
    takes_argument: bool = False


@dataclass
class _Viewer:
    """Open page. ``news``: topics with a message that has not been sent to it."""

    who: Viewer
    news: dict[str, None] = field(default_factory=dict)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    is_closed: bool = False


@dataclass
class _Running:
    frame: bytes = b""
    good_ms: int = 0  # unix time of the last successful poll; 0: none
    viewers: list[_Viewer] = field(default_factory=list)
    task: asyncio.Task[None] | None = None


_Key = tuple[Headers, str]
"""Credentials of viewers, and the name of a topic."""


class Hub:
    """Hub for one event loop only. ``close`` ends all streams."""

    def __init__(
        self, api: Api, topics: Mapping[str, Topic], has_ended: Callable[[Viewer], bool] = Viewer.has_expired
    ) -> None:
        self._api, self._has_ended = api, has_ended
        self._topics = topics
        self._running: dict[_Key, _Running] = {}
        self._viewers: list[_Viewer] = []
        self._shares = Shares("pages", PAGES_OF_A_VIEWER_MAX)
        self._is_closed = False

    async def close(self) -> None:
        self._is_closed = True
        for viewer in self._viewers:
            viewer.wake.set()
        tasks = [running.task for running in self._running.values() if running.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def check(self, names: Sequence[str], who: Viewer = EVERYBODY) -> None:
        """Raise InvalidArgument for an unknown topic, Unavailable when there are too many viewers, ResourceExhausted
        when one has too many pages."""
        if not 0 < len(names) <= TOPICS_OF_A_VIEWER_MAX:
            raise InvalidArgument(f"{len(names)} topics: want 1 to {TOPICS_OF_A_VIEWER_MAX}")
        for name in names:
            kind, colon, argument = name.partition(":")
            topic = self._topics.get(kind)
            if topic is None:
                raise InvalidArgument(f"no topic {quote(kind)}: there are {', '.join(sorted(self._topics))}")
            if bool(colon and argument) != topic.takes_argument:
                raise InvalidArgument(f"topic {quote(name)}: want {kind}{':...' if topic.takes_argument else ''}")
        self._shares.check(who)
        if len(self._viewers) >= VIEWERS_MAX and not self._close_page_for(who):
            raise Unavailable(f"{VIEWERS_MAX} pages are open, as many as there may be: close one, or try again later")
        if len(self._running.keys() | {(who.headers, name) for name in names}) > TOPICS_MAX:
            raise Unavailable(f"{TOPICS_MAX} topics are watched, as many as may be: try again later")

    def _close_page_for(self, who: Viewer) -> bool:
        """Close the oldest page of the viewers with the most, unless ``who`` has as many; report whether one closes."""
        counts = Counter(viewer.who.headers for viewer in self._viewers)
        most, count = counts.most_common(1)[0]
        if counts[who.headers] >= count - 1:
            return False
        oldest = next(viewer for viewer in self._viewers if viewer.who.headers == most)
        self._viewers.remove(oldest)
        oldest.is_closed = True
        oldest.wake.set()
        return True

    async def stream(self, names: Sequence[str], who: Viewer = EVERYBODY) -> AsyncIterator[bytes]:
        """Yield frames of server-sent events while the viewer reads them, until its session ends; call ``check`` first.

        Topics are read with the credentials of the viewer, and shared by pages with the same credentials only.
        """
        with self._shares.take(who):
            async with aclosing(self._stream(names, who)) as frames:
                async for frame in frames:
                    yield frame

    async def _stream(self, names: Sequence[str], who: Viewer) -> AsyncGenerator[bytes, None]:
        viewer = _Viewer(who)
        self._viewers.append(viewer)
        joined = {name: self._join(name, viewer) for name in dict.fromkeys(names)}
        try:
            yield b": Peloton\n\n"
            while not self._is_closed and not viewer.is_closed and not self._has_ended(who):
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
            if not viewer.is_closed:
                self._viewers.remove(viewer)
            for running in joined.values():
                running.viewers.remove(viewer)

    def _join(self, name: str, viewer: _Viewer) -> _Running:
        key = (viewer.who.headers, name)
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = _Running()
            context = contextvars.copy_context()
            context.run(FORWARDED.set, viewer.who.headers)
            running.task = asyncio.create_task(self._poll(key, running), name=f"topic {name}", context=context)
        running.viewers.append(viewer)
        if running.frame:
            viewer.news[name] = None
            viewer.wake.set()
        return running

    async def _poll(self, key: _Key, running: _Running) -> None:
        """Poll a topic until it has had no viewers for a while."""
        _, name = key
        kind, _, argument = name.partition(":")
        topic = self._topics[kind]
        idle_s = 0.0
        try:
            while idle_s < LINGER_S:
                looking = asyncio.create_task(self._read(name, topic, argument))
                try:
                    done, _ = await asyncio.wait({looking}, timeout=SLOW_S)
                    if not done:
                        late = f"the api has not answered for {SLOW_S:g} s"
                        self._publish(name, running, {"error": {"code": "deadline_exceeded", "message": late}})
                    value = await looking
                finally:
                    looking.cancel()
                changed = self._publish(name, running, value)
                rest_s = max(topic.period_s, len(running.frame) / BYTES_PER_S) if changed else topic.period_s
                await asyncio.sleep(rest_s)
                idle_s = 0.0 if running.viewers else idle_s + rest_s
        finally:
            del self._running[key]

    def _publish(self, name: str, running: _Running, value: dict[str, Any]) -> bool:
        """Send a message to the viewers of a topic; returns whether it changed.

        An error includes the time of the last successful poll, from which the page shows the age of its data.
        """
        if "error" not in value:
            running.good_ms = time.time_ns() // 1_000_000
        elif running.good_ms:
            value = {**value, "asOfMs": running.good_ms}
        data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)  # maps of messages have no order
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

    async def _read(self, name: str, topic: Topic, argument: str) -> dict[str, Any]:
        try:
            return {"value": await topic.read(self._api, argument)}
        except (grpc.aio.AioRpcError, PelotonError) as error:
            return {"error": refusal_of(error).content()}
        except Exception as error:  # a page shows the error; other topics continue
            log.exception("topic %s", name)
            return {"error": {"code": "internal", "message": f"{type(error).__name__}: see the log of role web"}}
