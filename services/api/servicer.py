"""Base of the servicers of jobs and pods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, TypeVar

from google.protobuf.message import Message

from peloton.errors import InvalidArgument, NotFound
from peloton.lifecycle.external import owner_refusal
from peloton.model.by_hand import name_person
from peloton.model.ids import JobId
from peloton.model.job import JobRecord
from peloton.ports import PERSON
from services.api.calls import Calls
from services.api.hosts import Hosts
from services.api.pending_reasons import PendingReasons
from services.api.quotas import PodQuota
from services.api.wake import Wake
from services.storage.storage import Storage

Request = TypeVar("Request", bound=Message)
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Backend:
    """Dependencies of servicers."""

    records: Storage
    calls: Calls
    hosts: Hosts
    wake: Wake
    reasons: PendingReasons
    quota: PodQuota


class Servicer:
    def __init__(self, backend: Backend) -> None:
        self._records = backend.records
        self._calls = backend.calls
        self._hosts = backend.hosts
        self._wake = backend.wake
        self._reasons = backend.reasons
        self._quota = backend.quota

    async def _job(self, job_id: JobId | None) -> JobRecord | None:
        """Read a job; ``job_id`` is None for a text that is no job id."""
        return await self._calls.run(self._records.jobs.get, job_id) if job_id else None

    async def _job_or_not_found(self, job_id: JobId | None, text: str) -> JobRecord:
        job = await self._job(job_id)
        if job is None:
            raise NotFound(text)
        return job

    async def _ensure_workflow(self, job_id: JobId) -> None:
        """Start the workflow of an active job, so that a repeated creation never leaves a stored job without one."""
        job = await self._job(job_id)
        if job is not None and job.is_active:
            await self._wake.start(job_id)


def check_managed(job: JobRecord) -> None:
    """Raise InvalidArgument for a job whose pods Peloton does not manage."""
    if why := owner_refusal(job):
        raise InvalidArgument(why)


def by_caller(text: str) -> str:
    """Return the text of a request with the name of its caller."""
    return name_person(text, PERSON.get())


def write(
    method: Callable[[Any, Request, Any], Coroutine[object, object, Answer]],
) -> Callable[[Any, Request, Any], Awaitable[Answer]]:
    """Decorate a writing method: it is rejected while too many writes are in flight, and always runs to its end."""

    @wraps(method)
    async def run_bounded(self: Any, request: Request, context: Any) -> Answer:
        calls: Calls = self._calls
        return await calls.write(request.ByteSize(), partial(method, self, request, context))

    return run_bounded
