"""Waiters of Enqueue calls: a call waits for the next cycle, so its workflow sees its admission without a wake-up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from peloton.model.ids import JobId
from peloton.scheduling.admission import Admitted

TIMEOUT_S = 0.5
"""Timeout of a waiter. A cycle comes every 100 ms; a call that waits longer returns, and a wake-up follows later."""


@dataclass(eq=False, slots=True)
class EnqueueWaiter:
    job_id: JobId
    answer: asyncio.Future[int]
    is_queued: bool = False  # memory has its pods: the next cycle considers them

    async def count_admitted(self) -> int:
        """Return how many single pods the next cycle admitted; 0 when none runs within TIMEOUT_S."""
        await asyncio.wait([self.answer], timeout=TIMEOUT_S)
        return self.answer.result() if self.answer.done() else 0


class EnqueueWaiters:
    """The waiters of one event loop: as many as calls under way."""

    def __init__(self, wake: Callable[[Iterable[JobId]], None]) -> None:
        """Take ``wake``, which signals a job whose call was cancelled before it could take its answer."""
        self._wake = wake
        self._waiters: set[EnqueueWaiter] = set()

    @contextmanager
    def waiter(self, job_id: JobId) -> Iterator[EnqueueWaiter]:
        waiter = EnqueueWaiter(job_id, asyncio.get_running_loop().create_future())
        self._waiters.add(waiter)
        try:
            yield waiter
        except BaseException:
            if waiter.answer.done() and waiter.answer.result():
                self._wake([job_id])
            raise
        finally:
            self._waiters.discard(waiter)

    def record_queued(self, job_id: JobId) -> None:
        for waiter in self._waiters:
            waiter.is_queued |= waiter.job_id == job_id

    def resolve(self, jobs: Sequence[JobId], chosen: Iterable[Admitted]) -> list[JobId]:
        """Answer the waiters after a cycle has admitted ``chosen``; return the jobs that still need a wake-up."""
        singles: Counter[JobId] = Counter()
        gangs: set[JobId] = set()
        for one in chosen:
            if one.run.gang_size == 1:
                singles[one.run.job_id] += one.gang_count
            else:
                gangs.add(one.run.job_id)  # launched by a child workflow that the job's workflow starts on its wake-up
        answered = set()
        for waiter in self._waiters:
            if waiter.is_queued and not waiter.answer.done():
                waiter.answer.set_result(singles[waiter.job_id])
                answered.add(waiter.job_id)
        return [job for job in jobs if job not in answered or job in gangs]
