"""Topics that are pushed to pages: one poll for all viewers, changes only, and bounds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import Any, cast

import orjson
import pytest
from grpc import StatusCode
from grpc.aio import AioRpcError, Metadata

from peloton.errors import InvalidArgument, NotFound, Unavailable
from services.web import live
from services.web.live import Hub, Topic
from services.web.viewer import Viewer
from tests.unit.web.viewing import code_text_reason

TIMEOUT_S = 20


class Pushed:
    """A topic that counts its polls, and whose value the test sets."""

    def __init__(self) -> None:
        self.value: Any = 1
        self.looks = 0

    async def read(self, api: object, argument: str) -> Any:
        self.looks += 1
        if isinstance(self.value, Exception):
            raise self.value
        return [argument, self.value]


def hub_of(pushed: Pushed) -> Hub:
    topics = {
        "one": Topic(pushed.read, period_s=0.001),
        "job": Topic(pushed.read, period_s=0.001, takes_argument=True),
    }
    return Hub(cast(Any, None), topics)


async def messages(stream: AsyncIterator[bytes]) -> AsyncGenerator[tuple[str, Any]]:
    """Yield (topic, message) of each frame that has one."""
    async for frame in stream:
        if frame.startswith(b"event: "):
            event, data, *_ = frame.decode().splitlines()
            yield event.removeprefix("event: "), orjson.loads(data.removeprefix("data: "))


async def test_a_viewer_gets_what_is_there_and_then_what_changes() -> None:
    """An unchanged value sends nothing."""
    pushed = Pushed()
    hub = hub_of(pushed)
    async with asyncio.timeout(TIMEOUT_S), aclosing(messages(hub.stream(["job:x"]))) as stream:
        first = await anext(stream)
        looks = pushed.looks
        while pushed.looks < looks + 10:
            await asyncio.sleep(0.001)
        pushed.value = 2
        second = await anext(stream)
    await hub.close()

    assert ("job:x", {"value": ["x", 1]}) == first
    assert ("job:x", {"value": ["x", 2]}) == second


async def test_one_read_serves_all_viewers() -> None:
    """Fifty viewers receive each of a hundred values, or later ones, and one poll serves all of them."""
    pushed = Pushed()
    hub = hub_of(pushed)

    async def watch() -> None:
        async with aclosing(messages(hub.stream(["one"]))) as stream:
            async for _, reported in stream:
                if reported["value"][1] == 100:
                    return

    async with asyncio.timeout(TIMEOUT_S):
        viewers = [asyncio.create_task(watch()) for _ in range(50)]
        while pushed.value < 100:
            pushed.value += 1
            await asyncio.sleep(0.002)
        await asyncio.gather(*viewers)
    tasks = [task for task in asyncio.all_tasks() if task.get_name() == "topic one"]
    await hub.close()

    assert 1 == len(tasks)


async def test_a_slow_viewer_gets_the_latest_alone() -> None:
    """Messages do not accumulate for a slow viewer."""
    pushed = Pushed()
    hub = hub_of(pushed)
    async with asyncio.timeout(TIMEOUT_S), aclosing(messages(hub.stream(["one"]))) as stream:
        await anext(stream)
        for value in range(2, 30):
            pushed.value, looks = value, pushed.looks
            while pushed.looks < looks + 2:
                await asyncio.sleep(0.001)
        _, reported = await anext(stream)
    await hub.close()

    assert {"value": ["", 29]} == reported


async def test_large_messages_come_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """The delay of a large message grows with its size, so that a map of 50,000 hosts does not fill the viewer's
    bandwidth."""
    monkeypatch.setattr(live, "BYTES_PER_S", 10_000)
    small, large = Pushed(), Pushed()
    large.value = "x" * 10_000_000
    monkeypatch.setattr(live, "BYTES_MAX", 20_000_000)
    topics = {"small": Topic(small.read, period_s=0.001), "large": Topic(large.read, period_s=0.001)}
    hub = Hub(cast(Any, None), topics)
    async with asyncio.timeout(TIMEOUT_S), aclosing(messages(hub.stream(["small", "large"]))) as stream:
        assert {"small", "large"} == {(await anext(stream))[0], (await anext(stream))[0]}
        for value in range(2, 10):
            small.value = large.value = value
            assert ("small", {"value": ["", value]}) == await anext(stream)
    await hub.close()

    assert 1 == large.looks


async def test_a_refusal_is_reported_and_the_topic_continues() -> None:
    """The error has the refusal's code; a bug is reported without its text, and an outage of the api as one."""
    pushed, began_ms = Pushed(), time.time_ns() // 1_000_000
    hub = hub_of(pushed)
    async with asyncio.timeout(TIMEOUT_S), aclosing(messages(hub.stream(["one"]))) as stream:
        await anext(stream)
        pushed.value = NotFound("no such job")
        _, refused = await anext(stream)
        pushed.value = KeyError("secret")
        _, broken = await anext(stream)
        pushed.value = AioRpcError(StatusCode.UNAVAILABLE, Metadata(), Metadata(), "failed to connect to all addresses")
        _, away = await anext(stream)
        pushed.value = 3
        _, fine = await anext(stream)
    await hub.close()

    assert ("not_found", "no such job", "OBJECT_NOT_FOUND") == code_text_reason(refused["error"])
    assert {"code": "internal", "message": "KeyError: see the log of role web"} == broken["error"]
    assert ("unavailable", "the api does not answer: failed to connect to all addresses") == tuple(
        away["error"].values()
    )
    assert began_ms <= refused["asOfMs"] == broken["asOfMs"] == away["asOfMs"] <= time.time_ns() // 1_000_000
    assert {"value": ["", 3]} == fine


async def test_a_read_that_takes_long_makes_its_topic_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    """The viewer receives an error during a slow poll, and its answer later."""
    monkeypatch.setattr(live, "SLOW_S", 0.01)
    answered = asyncio.Event()

    async def read(api: object, argument: str) -> str:
        await answered.wait()
        return "late"

    hub = Hub(cast(Any, None), {"one": Topic(read)})
    async with asyncio.timeout(TIMEOUT_S), aclosing(messages(hub.stream(["one"]))) as stream:
        stale = await anext(stream)
        answered.set()
        late = await anext(stream)
    await hub.close()

    error = {"code": "deadline_exceeded", "message": "the api has not answered for 0.01 s"}
    assert (("one", {"error": error}), ("one", {"value": "late"})) == (stale, late)


async def test_a_topic_ends_without_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The polls end some time after the last viewer has left."""
    monkeypatch.setattr(live, "LINGER_S", 0.01)
    pushed = Pushed()
    hub = hub_of(pushed)
    async with asyncio.timeout(TIMEOUT_S):
        async with aclosing(messages(hub.stream(["one"]))) as stream:
            await anext(stream)
        while any(task.get_name() == "topic one" for task in asyncio.all_tasks()):
            await asyncio.sleep(0.001)
        async with aclosing(messages(hub.stream(["one"]))) as stream:
            assert ("one", {"value": ["", 1]}) == await anext(stream)
    await hub.close()


async def test_a_viewer_that_hears_nothing_gets_a_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent stream has heartbeats, so that a dead connection is detected."""
    monkeypatch.setattr(live, "BEAT_S", 0.01)
    hub = hub_of(Pushed())
    async with asyncio.timeout(TIMEOUT_S), aclosing(cast(Any, hub.stream(["one"]))) as stream:
        async for frame in stream:
            if frame == live.BEAT:
                break
    await hub.close()


async def test_all_streams_end_with_the_hub() -> None:
    """The end of the hub ends all streams, so that the process can stop."""
    hub = hub_of(Pushed())
    async with asyncio.timeout(TIMEOUT_S), aclosing(messages(hub.stream(["one"]))) as stream:
        await anext(stream)
        await hub.close()
        assert [] == [reported async for reported in stream]


@pytest.mark.parametrize(
    ("names", "reported"),
    [
        ([], "0 topics: want 1 to 20"),
        (["one"] * 21, "21 topics: want 1 to 20"),
        (["two"], "no topic 'two': there are job, one"),
        (["one:x"], "topic 'one:x': want one"),
        (["job"], "topic 'job': want job:..."),
        (["job:"], "topic 'job:': want job:..."),
    ],
)
async def test_wrong_topics_are_refused(names: list[str], reported: str) -> None:
    """The error lists the known topics."""
    with pytest.raises(InvalidArgument, match=reported):
        hub_of(Pushed()).check(names)


async def test_there_is_a_bound_on_viewers_and_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open streams continue at the bound."""
    hub = hub_of(Pushed())
    async with asyncio.timeout(TIMEOUT_S), aclosing(messages(hub.stream(["job:x"]))) as stream:
        await anext(stream)
        monkeypatch.setattr(live, "TOPICS_MAX", 1)
        hub.check(["job:x"])
        with pytest.raises(Unavailable, match="1 topics are watched, as many as may be"):
            hub.check(["job:y"])
        monkeypatch.setattr(live, "VIEWERS_MAX", 1)
        with pytest.raises(Unavailable, match="1 pages are open, as many as there may be"):
            hub.check(["job:x"])
    await hub.close()


async def test_a_viewer_with_fewer_pages_takes_the_place_of_one_with_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest page of the viewer with the most pages ends at the bound."""
    monkeypatch.setattr(live, "VIEWERS_MAX", 2)
    hub, ann = hub_of(Pushed()), Viewer("ann", (("authorization", "Bearer x"),))
    async with asyncio.timeout(TIMEOUT_S), AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(aclosing(messages(hub.stream(["one"])))) for _ in range(2)]
        for stream in streams:
            await anext(stream)
        with pytest.raises(Unavailable, match="2 pages are open"):
            hub.check(["one"])
        hub.check(["one"], ann)
        own = await stack.enter_async_context(aclosing(messages(hub.stream(["one"], ann))))
        await anext(own)
        assert [] == [message async for message in streams[0]]
        with pytest.raises(Unavailable, match="2 pages are open"):
            hub.check(["one"], ann)
    await hub.close()
