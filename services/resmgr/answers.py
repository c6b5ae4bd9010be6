"""Who queues pods hears whether the next cycle admitted them: its workflow goes on at once, and need not be woken."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from peloton.model.ids import JobId
from peloton.scheduling.admission import Admitted

PATIENCE_S = 0.5
"""A cycle comes every 100 ms. Who hears nothing for so long is told by a wake-up."""


@dataclass(eq=False, slots=True)
class Question:
    job_id: JobId
    answer: asyncio.Future[int]
    is_queued: bool = False  # memory has its pods: the next cycle looks at them

    async def admitted_count(self) -> int:
        """Pods that stand alone of those that the next cycle admitted; 0 when none comes."""
        await asyncio.wait([self.answer], timeout=PATIENCE_S)
        return self.answer.result() if self.answer.done() else 0


class AdmissionAnswers:
    """Of one event loop. There are as many questions as calls under way."""

    def __init__(self, wake: Callable[[Iterable[JobId]], None]) -> None:
        """``wake`` tells a job when whoever asked for it went away before the answer."""
        self._wake = wake
        self._questions: set[Question] = set()

    @contextmanager
    def asked(self, job_id: JobId) -> Iterator[Question]:
        question = Question(job_id, asyncio.get_running_loop().create_future())
        self._questions.add(question)
        try:
            yield question
        except BaseException:
            if question.answer.done() and question.answer.result():
                self._wake([job_id])
            raise
        finally:
            self._questions.discard(question)

    def queued(self, job_id: JobId) -> None:
        for question in self._questions:
            question.is_queued |= question.job_id == job_id

    def told(self, jobs: Sequence[JobId], chosen: Iterable[Admitted]) -> list[JobId]:
        """A cycle has admitted these: answers, and returns those of the jobs that did not hear all about themselves."""
        alone: Counter[JobId] = Counter()
        gangs: set[JobId] = set()
        for one in chosen:
            if one.run.gang_size == 1:
                alone[one.run.job_id] += one.gang_count
            else:
                gangs.add(one.run.job_id)  # launched by a workflow of its own, which the job's starts when it looks
        heard = set()
        for question in self._questions:
            if question.is_queued and not question.answer.done():
                question.answer.set_result(alone[question.job_id])
                heard.add(question.job_id)
        return [job for job in jobs if job not in heard or job in gangs]
