"""Publisher of events: order, at least once, resumption, and bounds, against doubles of the watch and the proxy."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from peloton.api.v1alpha.pod import pod_pb2
from services.aurorabridge.events import progress, publisher
from services.aurorabridge.events.publisher import BUCKETS, QUEUE_MAX, Publisher
from services.aurorabridge.method import Refusal
from tests.unit.aurorabridge.event_doubles import JOB, Log, Proxy, pod, task_of, until

LIFE = ("PENDING", "LAUNCHED", "STARTING", "RUNNING", "FAILED")
AS_AURORA = ("PENDING", "ASSIGNED", "STARTING", "RUNNING", "FAILED")


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def proxy() -> Proxy:
    return Proxy()


@asynccontextmanager
async def publishing(log: Log, proxy: Proxy, position: int = 0) -> AsyncIterator[Publisher]:
    made = Publisher(log, task_of, lambda: proxy, position, backoff_s=0.001)
    running = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def name(instance: int) -> str:
    return f"{JOB}-{instance}-1"


async def test_events_of_each_pod_keep_their_order(log: Log, proxy: Proxy) -> None:
    """A proxy that fails at random gets the states of each pod in their order, each at least once."""
    draw = random.Random(7)
    proxy.status_of = lambda _: draw.choice((200, 200, 503, OSError("reset"))) if draw.random() < 0.5 else 200
    async with publishing(log, proxy) as made:
        await until(lambda: log.watches)
        for state in LIFE:
            log.append(*(pod(instance, state) for instance in range(60)))
        await until(lambda: made.position == 300)

    for instance in range(60):
        assert AS_AURORA == tuple(state for one, state in proxy.taken if one == name(instance))


async def test_first_publisher_begins_with_the_present(log: Log, proxy: Proxy) -> None:
    """Changes are published from the first start on, and the position is known before any of them."""
    log.append(pod(0), pod(1))
    async with publishing(log, proxy) as made:
        await until(lambda: made.position == 2)
        log.append(pod(2))
        await until(lambda: made.position == 3)

    assert [(name(2), "RUNNING")] == proxy.taken


async def test_position_stops_before_the_first_unpublished_event(log: Log, proxy: Proxy) -> None:
    """A successor continues from the position: it repeats later events that were published, and misses none."""
    log.append(pod(99))
    proxy.status_of = lambda task: 503 if task == name(1) else 200
    async with publishing(log, proxy, position=1) as made:
        log.append(*(pod(instance) for instance in range(50)))
        others = [name(n) for n in range(50) if n != 1 and not same_bucket(n, 1)]
        await until(lambda: {task for task, _ in proxy.taken} >= set(others))
        position = made.position
    assert 2 == position  # pod 0 is published, pod 1 is not

    proxy.status_of = lambda _: 200
    async with publishing(log, proxy, position) as made:
        await until(lambda: made.position == 51)
    assert {name(instance) for instance in range(50)} == {task for task, _ in proxy.taken}


def same_bucket(one: int, other: int) -> bool:
    return publisher.bucket_of(f"{JOB}-{one}") == publisher.bucket_of(f"{JOB}-{other}")


async def test_watch_that_ends_is_resumed_where_it_was_read(log: Log, proxy: Proxy) -> None:
    """A disconnected watch loses and repeats nothing."""
    log.append(pod(99))
    log.ends_after = [3, 0, 2]
    async with publishing(log, proxy, position=1) as made:
        log.append(*(pod(instance) for instance in range(10)))
        await until(lambda: made.position == 11)

    assert [1, 4, 4, 6] == log.watches
    assert sorted(name(instance) for instance in range(10)) == sorted(task for task, _ in proxy.taken)


async def test_changes_that_are_kept_no_more(log: Log, proxy: Proxy) -> None:
    """The present state of every pod is published after a gap, and then the changes that follow."""
    log.append(*(pod(instance, "PENDING") for instance in range(10)))
    log.oldest, log.present = 8, [pod(0), pod(1)]
    async with publishing(log, proxy, position=3) as made:
        await until(lambda: made.position == 10)
        log.append(pod(1, "KILLED"))
        await until(lambda: made.position == 11)

    assert [3, 0] == log.watches
    assert [(name(0), "RUNNING"), (name(1), "KILLED"), (name(1), "RUNNING")] == sorted(proxy.taken)
    assert (name(1), "KILLED") == proxy.taken[-1]


async def test_gap_is_filled_again_after_a_kill(log: Log, proxy: Proxy) -> None:
    """The position stays before the gap until the state of every pod is published."""
    log.append(*(pod(instance, "PENDING") for instance in range(10)))
    log.oldest, log.present = 8, [pod(0), pod(1)]
    proxy.status_of = lambda task: 503 if task == name(1) else 200
    async with publishing(log, proxy, position=3) as made:
        await until(lambda: proxy.taken and proxy.posts > 5)
        assert 3 == made.position


async def test_watch_is_not_read_while_queues_are_full(log: Log, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unavailable proxy bounds what is read, and gets all of it later."""
    monkeypatch.setattr(publisher, "QUEUE_MAX", 10)
    proxy.is_open.clear()
    log.append(pod(0))
    async with publishing(log, proxy, position=1) as made:
        log.append(*(pod(instance) for instance in range(2_000)))
        await until(lambda: log.read > 50)
        read = 0
        while read != log.read:
            read = log.read
            await asyncio.sleep(0.05)
        assert read <= BUCKETS * 11 + 2
        proxy.is_open.set()
        await until(lambda: made.position == 2_001)
    assert 1_000 == QUEUE_MAX


async def test_one_event_that_fails_forever_bounds_the_others(
    log: Log, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others go on without it, but not forever: what lies between it and them is remembered."""
    for module in (progress, publisher):
        monkeypatch.setattr(module, "STEPS_MAX", 100, raising=False)
    proxy.status_of = lambda task: 503 if task == name(0) else 200
    log.append(pod(99))
    async with publishing(log, proxy, position=1):
        log.append(pod(0), *(pod(1, "PENDING" if n % 2 else "RUNNING") for n in range(500)))
        await until(lambda: len(proxy.taken) >= 40)
        taken = 0
        while taken != len(proxy.taken):
            taken = len(proxy.taken)
            await asyncio.sleep(0.05)
        assert taken <= 100


@pytest.mark.parametrize("state", ["INITIALIZED", "DELETED"])
async def test_states_without_events(log: Log, proxy: Proxy, state: str) -> None:
    """Pods that do not exist yet, or any more, are skipped, and the position moves on."""
    log.append(pod(99))
    async with publishing(log, proxy, position=1) as made:
        log.append(pod(0, state), pod(1))
        await until(lambda: made.position == 3)

    assert [(name(1), "RUNNING")] == proxy.taken


async def test_events_that_can_never_be_published(log: Log, proxy: Proxy) -> None:
    """An event that the proxy refuses for its content, and a pod that has no TaskConfig, hold up no others."""

    async def refusing(summary: pod_pb2.PodSummary) -> object:
        if "-2" in str(summary):
            raise Refusal("no tag")
        return None if "-3" in str(summary) else await task_of(summary)

    log.append(pod(99))
    proxy.status_of = lambda task: 413 if task == name(1) else 200
    made = Publisher(log, refusing, lambda: proxy, 1, backoff_s=0.001)
    running = asyncio.create_task(made.run())
    log.append(pod(1), pod(2), pod(3), pod(4))
    await until(lambda: made.position == 5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert [(name(4), "RUNNING")] == proxy.taken


async def test_nothing_is_posted_without_the_lease(log: Log, proxy: Proxy) -> None:
    """A publisher whose lease has expired keeps its events."""
    may_post = [False]
    log.append(pod(99))
    made = Publisher(log, task_of, lambda: proxy, 1, leads=lambda: may_post[0], backoff_s=0.001)
    running = asyncio.create_task(made.run())
    log.append(pod(1))
    await until(lambda: log.read == 2)
    await asyncio.sleep(0.02)
    assert (0, 1) == (proxy.posts, made.position)
    may_post[0] = True
    await until(lambda: made.position == 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
