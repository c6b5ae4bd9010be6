"""Quotas of users: jobs that each creates in a minute, and pods of jobs of each that have not ended."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol
from weakref import WeakValueDictionary

from peloton.access.caller import ANONYMOUS, CallerKind
from peloton.access.quota import ACTIVE_PODS, SUBMISSIONS, Limit, pods_refusal, subjects_of_name
from peloton.api.service_names import BULK_SERVICE, JOB_MANAGER, JOB_SERVICE
from peloton.errors import Reason, ResourceExhausted
from peloton.model.ids import JobId
from peloton.model.job import JobRecord
from services.access.caller import CALLER, name_creator
from services.access.quotas import Quotas, list_subjects
from services.api.calls import Calls
from services.servers.grpc_handlers import AroundCalls, within
from services.storage.jobs.jobs import Jobs
from services.storage.jobs.search import Search

MINUTE_S = 60.0
USERS_MAX = 10_000
"""Users that are remembered; the one that submitted longest ago is forgotten first."""
STORED_S = 60.0
"""Time after which the subjects of a user are written again: those that another process has stored may differ."""
SUBMITS = frozenset(
    {
        *(f"/{name}/Create" for name in JOB_MANAGER),
        *(f"/{name}/CreateJob" for name in (*BULK_SERVICE, *JOB_SERVICE)),
    }
)


class Submissions:
    """Limit of the jobs that each user creates in a minute.

    A user may create a whole minute's jobs at once. Callers without a name share one quota.
    """

    def __init__(self, quotas: Quotas) -> None:
        self.are_limited = quotas.has(SUBMISSIONS)
        self._quotas = quotas
        self._users: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, user: str, subjects: Collection[str]) -> None:
        """Count a submission of a user, which is these subjects of rules. Raises ResourceExhausted beyond the quota."""
        limit = self._quotas.find(SUBMISSIONS, subjects)
        if not (most := limit.most):
            return
        user = user or ANONYMOUS.name
        now_s, rate = time.monotonic(), most / MINUTE_S
        left, at_s = self._users.get(user, (float(most), now_s))
        left = min(left + (now_s - at_s) * rate, float(most))
        if left < 1.0:
            wait_s = (1.0 - left) / rate
            raise ResourceExhausted(
                f"user {user} has created {most:,} jobs within a minute, which is the quota; the rule is {limit.rule}: "
                f"try again in {wait_s:.1f} s",
                wait_s,
            ).because(Reason.QUOTA_REACHED, user=user, quota=SUBMISSIONS, limit=most, rule=limit.rule)
        self._users[user] = left - 1.0, now_s
        self._users.move_to_end(user)
        if len(self._users) > USERS_MAX:
            self._users.popitem(last=False)


class QuotaGate(AroundCalls):
    """Interceptor that counts submissions. Processes of Peloton have no quota."""

    def __init__(self, submissions: Submissions) -> None:
        self._submissions = submissions

    def wrap(self, method: str, handler: Any) -> Any:
        if not self._submissions.are_limited or method not in SUBMITS:
            return handler

        @asynccontextmanager
        async def admit(request: Any, _: Any) -> AsyncIterator[Any]:
            caller = CALLER.get()
            if caller.kind is not CallerKind.ROLE:
                self._submissions.take(caller.name, list_subjects(caller))
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


class Records(Protocol):
    """Implemented by ``services.storage.creators``."""

    def put(self, name: str, subjects: Sequence[str]) -> None: ...

    def find(self, name: str) -> tuple[str, ...]: ...


class Creators:
    """Subjects of creators of jobs: a job has the name of its creator alone.

    While there is a file of quotas, each creation of a job or a schedule stores those of its caller for all processes.
    """

    def __init__(self, quotas: Quotas, records: Records, calls: Calls) -> None:
        self._quotas, self._records, self._calls = quotas, records, calls
        self._stored: OrderedDict[str, tuple[tuple[str, ...], float]] = OrderedDict()

    async def note_caller(self) -> None:
        """Store the subjects of the caller, who creates a job or a schedule, unless they were stored a moment ago."""
        if self._quotas.file is None or not (user := name_creator()):
            return
        subjects, now_s = list_subjects(CALLER.get()), time.monotonic()
        stored, at_s = self._stored.get(user, ((), 0.0))
        if subjects == stored and now_s - at_s < STORED_S:
            return
        await self._calls.run(self._records.put, user, subjects)
        self._stored[user] = subjects, now_s
        self._stored.move_to_end(user)
        if len(self._stored) > USERS_MAX:
            self._stored.popitem(last=False)

    async def find_subjects(self, user: str) -> tuple[str, ...]:
        """Return the subjects of a creator: those of the caller, if it is the creator, else those stored last."""
        if user and user == name_creator():
            return list_subjects(CALLER.get())
        stored = await self._calls.run(self._records.find, user) if user and self._quotas.file is not None else ()
        return stored or subjects_of_name(user)


class PodQuota:
    """Limit of the active pods of each user. Nothing is counted for a user without one.

    Jobs without a known creator have no quota. For one event loop.
    """

    def __init__(self, quotas: Quotas, search: Search, jobs: Jobs, creators: Creators, calls: Calls) -> None:
        self._quotas, self._search, self._jobs, self._calls = quotas, search, jobs, calls
        self.creators = creators
        self._users: WeakValueDictionary[str, _Additions] = WeakValueDictionary()

    @asynccontextmanager
    async def creating(self, job: JobRecord) -> AsyncIterator[None]:
        """Check the quota before the block stores a new job. Raises ResourceExhausted beyond the quota."""
        await self.creators.note_caller()
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
        if not self._quotas.has(ACTIVE_PODS) or not user or added <= 0:
            yield
            return
        limit = self._quotas.find(ACTIVE_PODS, await self.creators.find_subjects(user))
        if not limit.most:
            yield
            return
        of = self._users.setdefault(user, _Additions())
        of.arrived = number = of.arrived + 1
        async with of.deciding:
            refusal = await self._decide(user, of, (number, added), limit)
            # A repeated creation is counted itself, and finds its job.
            if refusal and (job_id is None or await self._calls.run(self._jobs.get, job_id) is None):
                raise ResourceExhausted(refusal).because(
                    Reason.QUOTA_REACHED, user=user, quota=ACTIVE_PODS, limit=limit.most, rule=limit.rule
                )
            of.active, of.is_exact = of.active + added, False
            of.change(added)
        try:
            yield
        finally:
            of.change(-added)

    async def _decide(self, user: str, of: _Additions, addition: tuple[int, int], limit: Limit) -> str:
        """Return why an addition, by its number and its pods, is refused, or ""."""
        number, added = addition
        count = partial(self._calls.run, self._search.pods_of_creator, user)
        if of.served < number:
            await of.count(count)
        refusal = pods_refusal(user, of.active, added, limit)
        if refusal and not of.is_exact:
            await of.all_stored.wait()
            await of.count(count)
            refusal = pods_refusal(user, of.active, added, limit)
        return refusal
