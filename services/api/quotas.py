"""Quotas of users: jobs that each creates in a minute, and pods of jobs of each that have not ended."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from peloton.access.caller import ANONYMOUS, CallerKind
from peloton.access.quota import ACTIVE_PODS, pods_refusal
from peloton.api.service_names import BULK_SERVICE, JOB_MANAGER, JOB_SERVICE
from peloton.errors import Reason, ResourceExhausted
from peloton.model.ids import JobId
from peloton.model.job import JobRecord
from services.access.caller import CALLER
from services.api.calls import Calls
from services.grpc_handlers import AroundCalls, within
from services.storage.jobs.jobs import Jobs
from services.storage.jobs.search import Search

MINUTE_S = 60.0
USERS_MAX = 10_000
"""Users that are remembered; the one that submitted longest ago is forgotten first."""
SUBMITS = frozenset(
    {
        *(f"/{name}/Create" for name in JOB_MANAGER),
        *(f"/{name}/CreateJob" for name in (*BULK_SERVICE, *JOB_SERVICE)),
    }
)


@dataclass(frozen=True, slots=True)
class Quotas:
    """Quotas of each user; 0: there is no limit."""

    submissions_per_minute: int = 0
    active_pods: int = 0


NO_QUOTAS = Quotas()


class Submissions:
    """Limit of the jobs that each user creates in a minute; 0: there is no limit.

    A user may create a whole minute's jobs at once. Callers without a name share one quota.
    """

    def __init__(self, most: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.most, self._clock_s = most, clock_s
        self._users: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, user: str) -> None:
        """Count a submission. Raises ResourceExhausted beyond the quota."""
        if not self.most:
            return
        user = user or ANONYMOUS.name
        now_s, rate = self._clock_s(), self.most / MINUTE_S
        left, at_s = self._users.get(user, (float(self.most), now_s))
        left = min(left + (now_s - at_s) * rate, float(self.most))
        if left < 1.0:
            wait_s = (1.0 - left) / rate
            raise ResourceExhausted(
                f"user {user} has created {self.most} jobs within a minute, which is the quota: try again in "
                f"{wait_s:.1f} s",
                wait_s,
            ).because(Reason.QUOTA_REACHED, user=user, quota="submissions_per_minute", limit=self.most)
        self._users[user] = left - 1.0, now_s
        self._users.move_to_end(user)
        if len(self._users) > USERS_MAX:
            self._users.popitem(last=False)


class QuotaGate(AroundCalls):
    """Interceptor that counts submissions. Processes of Peloton have no quota."""

    def __init__(self, submissions: Submissions) -> None:
        self._submissions = submissions

    def wrap(self, method: str, handler: Any) -> Any:
        if not self._submissions.most or method not in SUBMITS:
            return handler

        @asynccontextmanager
        async def admit(request: Any, _: Any) -> AsyncIterator[Any]:
            caller = CALLER.get()
            if caller.kind is not CallerKind.ROLE:
                self._submissions.take(caller.name)
            yield request

        return within(handler, admit, handler.request_deserializer)


class _Additions:
    """Additions of one user: they are decided one after the other, and stored at the same time.

    A count serves all additions that arrived before it began: for those it is as new as one of their own.
    """

    def __init__(self) -> None:
        self.deciding, self.all_stored = asyncio.Lock(), asyncio.Event()
        self.all_stored.set()
        self.not_stored = 0  # admitted pods that are possibly not stored yet
        self.arrived = self.served = 0  # number of the last addition, and of the last that the count serves
        self.active = 0  # at the last count, and admitted since
        self.is_exact = False  # no pod is possibly counted twice

    def change(self, pods: int) -> None:
        self.not_stored += pods
        (self.all_stored.clear if self.not_stored else self.all_stored.set)()

    async def count(self, count: Callable[[], Awaitable[int]]) -> None:
        self.served, before = self.arrived, self.not_stored
        self.active, self.is_exact = await count() + before, not before


class PodQuota:
    """Limit of the active pods of each user; 0: there is no limit, and nothing is counted.

    Jobs without a known creator have no quota. For one event loop.
    """

    def __init__(self, most: int, search: Search, jobs: Jobs, calls: Calls) -> None:
        self._most, self._search, self._jobs, self._calls = most, search, jobs, calls
        self._users: WeakValueDictionary[str, _Additions] = WeakValueDictionary()

    @asynccontextmanager
    async def creating(self, job: JobRecord) -> AsyncIterator[None]:
        """Check the quota before the block stores a new job. Raises ResourceExhausted beyond the quota."""
        async with self._adding(job.creator, job.instance_count, job.job_id):
            yield

    @asynccontextmanager
    async def growing(self, job: JobRecord, new_count: int, starts: bool = False) -> AsyncIterator[None]:
        """Check the quota before the block gives a job ``new_count`` instances; ``starts``: also if it has ended.

        The pods belong to the creator of the job, not to the caller. Raises ResourceExhausted beyond the quota.
        """
        before = job.instance_count if job.is_active else 0 if starts else new_count
        async with self._adding(job.creator, new_count - before):
            yield

    @asynccontextmanager
    async def _adding(self, user: str, added: int, job_id: JobId | None = None) -> AsyncIterator[None]:
        if not self._most or not user or added <= 0:
            yield
            return
        of = self._users.setdefault(user, _Additions())
        of.arrived = number = of.arrived + 1
        async with of.deciding:
            refusal = await self._decide(user, of, number, added)
            # A repeated creation is counted itself, and finds its job.
            if refusal and (job_id is None or await self._calls.run(self._jobs.get, job_id) is None):
                raise ResourceExhausted(refusal).because(
                    Reason.QUOTA_REACHED, user=user, quota=ACTIVE_PODS, limit=self._most
                )
            of.active, of.is_exact = of.active + added, False
            of.change(added)
        try:
            yield
        finally:
            of.change(-added)

    async def _decide(self, user: str, of: _Additions, number: int, added: int) -> str:
        """Return why the addition of this number is refused, or ""."""
        count = partial(self._calls.run, self._search.pods_of_creator, user)
        if of.served < number:
            await of.count(count)
        refusal = pods_refusal(user, of.active, added, self._most)
        if refusal and not of.is_exact:
            await of.all_stored.wait()
            await of.count(count)
            refusal = pods_refusal(user, of.active, added, self._most)
        return refusal
