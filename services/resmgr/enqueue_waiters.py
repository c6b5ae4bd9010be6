"""A call that queues pods waits for the next cycle: the workflow learns of its admission at once, without a wake-up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from peloton.model.ids import JobId
from peloton.scheduling.admission import Admitted

PATIENCE_S = 0.5
"""A cycle comes every 100 ms. A call that waits longer returns, and a wake-up follows the admission."""


@dataclass(eq=False, slots=True)
class EnqueueWaiter:
    job_id: JobId
    answer: asyncio.Future[int]
    is_queued: bool = False  # memory has its pods: the next cycle looks at them

    async def admitted_count(self) -> int:
        """Pods that stand alone of those that the next cycle admitted; 0 when none comes."""
        await asyncio.wait([self.answer], timeout=PATIENCE_S)
        return self.answer.result() if self.answer.done() else 0


class EnqueueWaiters:
    """For one event loop. There are as many waiters as calls under way."""

    def __init__(self, wake: Callable[[Iterable[JobId]], None]) -> None:
        """``wake`` signals a job whose call went away before it could take its answer."""
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

    def queued(self, job_id: JobId) -> None:
        for waiter in self._waiters:
            waiter.is_queued |= waiter.job_id == job_id

    def resolve(self, jobs: Sequence[JobId], chosen: Iterable[Admitted]) -> list[JobId]:
        """Answers the waiters after a cycle has admitted ``chosen``; returns the jobs that still need a wake-up."""
        alone: Counter[JobId] = Counter()
        gangs: set[JobId] = set()
        for one in chosen:
            if one.run.gang_size == 1:
                alone[one.run.job_id] += one.gang_count
            else:
                gangs.add(one.run.job_id)  # launched by a workflow of its own, which the job's starts when it looks
        answered = set()
        for waiter in self._waiters:
            if waiter.is_queued and not waiter.answer.done():
                waiter.answer.set_result(alone[waiter.job_id])
                answered.add(waiter.job_id)
        return [job for job in jobs if job not in answered or job in gangs]
