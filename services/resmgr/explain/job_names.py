"""Names of the jobs that an explanation mentions, read once for each answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from peloton.lifecycle.reason_text import NO_NAMES, Names
from peloton.model.ids import JobId
from peloton.scheduling.eviction import Eviction
from services.resmgr.explain.waiting import ExplainedWait
from services.storage.storage import Storage

NAMES_MAX = 1_000
"""Limit of the job names in one answer; texts call the others by their ids."""


async def names_of(records: Storage, mentioned: Iterable[str]) -> Names:
    """Return id -> name of the jobs that still exist."""
    wanted = sorted({JobId(job_id) for job_id in mentioned if job_id})[:NAMES_MAX]
    if not wanted:
        return NO_NAMES
    return {job.job_id: job.name for job in await asyncio.to_thread(records.jobs.get_many, wanted)}


def in_queues(found: Iterable[ExplainedWait]) -> Iterator[str]:
    """Yield the ids of waiting jobs, of jobs in front of them, and of the holders of the resources they wait for."""
    for wait, holders in found:
        yield wait.run.job_id
        yield wait.reason.job_id
        yield wait.blocking.job_id if wait.blocking else ""
        yield from (holder.job_id for holder in holders)


def in_evictions(evictions: Iterable[Eviction]) -> Iterator[str]:
    for one in evictions:
        yield one.run.job_id
        yield one.grounds.for_job
