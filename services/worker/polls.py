"""Observation of this worker's own polls, as Temporal lists them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.client import Client
from temporalio.service import RPCError

from services.temporal.task_queues import TASK_QUEUES
from services.temporal.worker_fleet import describe_queue
from services.ticks import Ticks, ticking

PERIOD_S = 10.0
FIRST_PERIOD_S = 1.0
"""Seconds between reads until the first polls are listed."""
_KIND = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW


@asynccontextmanager
async def watching_polls(client: Client, note: Callable[[str], None]) -> AsyncIterator[None]:
    """Watch the polls of this worker until the block ends. ``note`` receives what the worker waits for."""
    task = asyncio.create_task(_watch(client, note), name="polls of this worker")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _watch(client: Client, note: Callable[[str], None]) -> None:
    with ticking("polls of this worker", PERIOD_S) as loop:
        while True:
            waits = await read_waits(client, loop)
            note(waits)
            await asyncio.sleep(FIRST_PERIOD_S if waits else PERIOD_S)


async def read_waits(client: Client, loop: Ticks) -> str:
    """Return what the worker waits for. The loop ticks when this worker polls each task queue, and when Temporal does
    not answer: then it only waits. Temporal lists a poll for five minutes.
    """
    try:
        answers = [await describe_queue(client, name, _KIND) for name in TASK_QUEUES]
    except (RPCError, RuntimeError, OSError) as error:
        loop.tick()
        return f"Temporal does not answer: {error}"
    for name, answer in zip(TASK_QUEUES, answers, strict=True):
        if client.identity not in {poller.identity for poller in answer.pollers}:
            return f"it does not poll task queue {name}"
    loop.tick()
    return ""
