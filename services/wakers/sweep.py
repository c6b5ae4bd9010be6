"""Finds jobs whose workflows have not yet seen a change, or whose timer is due, and signals only their workflows.

Storage notes each change of a job in the transaction of the change, and the workflow's settle removes the note (see
``peloton/lifecycle/wake.py``). A signal follows nearly every note within a second; the signal of an older note was lost
with the process that was to send it. The leading resource manager sweeps once a minute, and a role that starts sweeps
once: changes that its predecessor committed without a signal are signalled at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from peloton.model.ids import JobId
from peloton.model.times import NS_PER_S
from services.telemetry.metrics import counter
from services.ticks import ticking

log = logging.getLogger(__name__)

PERIOD_S = 60.0
BUSY_PERIOD_S = 5.0
"""Seconds until the next round, after a round that left notes unread."""
SIGNAL_GRACE_S = 10.0
"""Age in seconds below which a note's signal is assumed to be under way."""
PAGE_JOBS = 1_000
ROUND_JOBS_MAX = 10_000
"""Notes that one round reads. No round begins while as many wait to be signalled."""
WOKEN_KEPT_MAX = 100_000
"""Wakings that a pass remembers. Jobs beyond them are woken by each pass."""
WOKEN_AGAIN_MAX_S = 3_600
"""Time after which a note that stays is woken again at the latest."""
FORGET_PAGES_MAX = 50
"""Pages of notes of ended jobs that one round forgets, each in a transaction of its own."""

_WOKEN = counter("peloton.sweep.jobs")
_FIRST: tuple[int, str] = (0, "")


class Notes(Protocol):
    def due(self, until_ns: int, limit: int, after: tuple[int, str] = ...) -> Sequence[tuple[int, JobId]]:
        """Return a page of notes, in their order."""
        ...

    def forget_ended(self, until_ns: int, limit: int) -> int: ...


@dataclass(frozen=True, slots=True)
class _Waking:
    """The last waking of a job, for the note that was due at ``due_ns``."""

    due_ns: int
    age_ns: int

    def is_enough(self, due_ns: int, age_ns: int) -> bool:
        """Return whether the note needs no further signal: it is the same note, and its age has neither doubled since
        the last signal nor grown by an hour.
        """
        return due_ns == self.due_ns and age_ns < self.age_ns + min(self.age_ns, WOKEN_AGAIN_MAX_S * NS_PER_S)


class Sweep:
    """Periodic sweep, from its construction in a running loop until it is closed; ``once`` runs a single round.

    A pass over all notes takes one round or several. A note that remains is signalled again only when its age has
    doubled, or an hour later: while no worker runs, each signal lengthens a history.
    """

    def __init__(
        self,
        notes: Notes,
        wake: Callable[[Iterable[JobId]], None],
        backlog: Callable[[], int] = lambda: 0,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """``backlog``: wake-ups that wait to be sent."""
        self._notes, self._wake, self._backlog = notes, wake, backlog
        self._clock_ns = clock_ns
        self._after = _FIRST  # the note at which the last round ended
        self._wakings: dict[JobId, _Waking] = {}  # of notes that the last pass has seen
        self._seen: dict[JobId, _Waking] = {}  # of notes that this pass has seen so far
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="sweep of jobs with missed changes")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def once(self, grace_s: float = 0.0) -> int:
        """Run one round; return how many jobs it has signalled. Raises errors of storage."""
        until_ns = self._clock_ns() - int(grace_s * NS_PER_S)
        for _ in range(FORGET_PAGES_MAX):
            if await asyncio.to_thread(self._notes.forget_ended, until_ns, PAGE_JOBS) < PAGE_JOBS:
                break
        read_count = woken_count = 0
        while read_count < ROUND_JOBS_MAX:
            page = await asyncio.to_thread(self._notes.due, until_ns, PAGE_JOBS, self._after)
            woken = self._choose(page)
            self._wake(woken)
            read_count += len(page)
            woken_count += len(woken)
            if len(page) < PAGE_JOBS:
                self._after, self._wakings, self._seen = _FIRST, self._seen, {}
                break
            self._after = page[-1]
        if woken_count:
            _WOKEN.add(woken_count)
            log.info("woke %d jobs whose workflows had missed changes", woken_count)
        return woken_count

    def _choose(self, page: Sequence[tuple[int, JobId]]) -> list[JobId]:
        """Return the jobs of a page to signal now, and remember these signals."""
        now_ns = self._clock_ns()
        chosen = []
        for due_ns, job_id in page:
            waking, age_ns = self._wakings.get(job_id), now_ns - due_ns
            if waking is None or not waking.is_enough(due_ns, age_ns):
                chosen.append(job_id)
                waking = _Waking(due_ns, age_ns)
            if len(self._seen) < WOKEN_KEPT_MAX or job_id in self._seen:
                self._seen[job_id] = waking
        return chosen

    async def _run(self) -> None:
        pause_s = PERIOD_S
        with ticking("sweep of jobs that are to be woken", PERIOD_S) as loop:
            while True:
                await asyncio.sleep(pause_s)
                loop.tick()
                pause_s = min(BUSY_PERIOD_S, PERIOD_S)
                if self._backlog() >= ROUND_JOBS_MAX:
                    continue
                try:
                    await self.once(SIGNAL_GRACE_S)
                    if self._after == _FIRST:
                        pause_s = PERIOD_S
                except Exception as error:  # of storage: the next round makes up for it
                    log.warning("sweep of jobs with missed changes failed, retrying: %s", error)
