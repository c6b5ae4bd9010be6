"""Jobs of the bridge, by their keys or by the labels that have the parts of the keys, with their pods and updates."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from peloton.api.private import bulk_reads_pb2 as reads
from peloton.api.v1alpha.peloton_pb2 import Label
from peloton.api.v1alpha.pod.pod_pb2 import PodSpec
from services.aurorabridge.backend import Backend
from services.aurorabridge.mapping import identity
from services.aurorabridge.method import Refusal

NAMES_PER_CALL, JOBS_PER_CALL = 1_000, 10_000
"""Numbers of names and of job ids that role api takes in one call."""
JOBS_MAX = 20_000
"""Maximum number of jobs that one call reads."""


@dataclass(frozen=True, slots=True)
class PodBatch:
    """Batch of the runs of ``jobs``; ``specs`` are those that have come so far, from number 1 on."""

    wire: reads.ListPodsResponse
    jobs: Sequence[reads.Job]
    specs: Sequence[PodSpec]

    def spec(self, number: int) -> PodSpec:
        """Return a spec by its number; an empty one for a version that is not stored any more."""
        return self.specs[number - 1] if number else PodSpec()


async def jobs_with_keys(backend: Backend, keys: Sequence[Any]) -> list[reads.Job]:
    """Return the jobs with these keys; unknown ones are skipped. Raises Refusal for an invalid key."""
    names = list(dict.fromkeys(map(identity.job_name, keys)))
    found: list[reads.Job] = []
    for at in range(0, len(names), NAMES_PER_CALL):
        request = reads.ListJobsRequest(names=names[at : at + NAMES_PER_CALL])
        found += [job async for batch in backend.bulk.ListJobs(request) for job in batch.jobs]
    return found


async def job_with_key(backend: Backend, key: Any) -> reads.Job | None:
    """Return the job with this key. Raises Refusal for an invalid key."""
    return next(iter(await jobs_with_keys(backend, [key])), None)


async def jobs_like(
    backend: Backend, role: str | None = None, environment: str | None = None, name: str | None = None
) -> AsyncIterator[reads.Job]:
    """Yield the jobs of the bridge whose keys have the parts that are given, from the oldest on. Raises Refusal."""
    parts = ((identity.ROLE, role), (identity.ENVIRONMENT, environment), (identity.NAME, name))
    labels = [Label(key=key, value=value) for key, value in (identity.JOB_MARK, *parts) if value]
    count = 0
    async for batch in backend.bulk.ListJobs(reads.ListJobsRequest(labels=labels)):
        count += len(batch.jobs)
        if count > JOBS_MAX:
            raise Refusal(f"there are more than {JOBS_MAX:,} such jobs: name a role, an environment or a job")
        for job in batch.jobs:
            yield job


async def pods_of(backend: Backend, jobs: Sequence[reads.Job], runs: int = 0) -> AsyncIterator[PodBatch]:
    """Yield the newest ``runs`` of each pod with their events; 0: the current runs without events."""
    for some in _chunks(jobs):
        specs: list[PodSpec] = []
        request = reads.ListPodsRequest(job_ids=[job.job_id for job in some], runs=runs)
        async for batch in backend.bulk.ListPods(request):
            specs += batch.specs
            yield PodBatch(batch, some, specs)


async def updates_of(
    backend: Backend, jobs: Sequence[reads.Job], updates_limit: int, instance_events: bool
) -> AsyncIterator[tuple[reads.Job, list[reads.Update]]]:
    """Yield each job with its updates, newest first."""
    for some in _chunks(jobs):
        ids = [job.job_id for job in some]
        request = reads.ListUpdatesRequest(job_ids=ids, updates_limit=updates_limit, instance_events=instance_events)
        at, mine = 0, list[reads.Update]()
        async for batch in backend.bulk.ListUpdates(request):
            for update in batch.updates:
                if mine and update.job != at:
                    yield some[at], mine
                    mine = []
                at = update.job
                mine.append(update)
        if mine:
            yield some[at], mine


def _chunks(jobs: Sequence[reads.Job]) -> Iterator[Sequence[reads.Job]]:
    return (jobs[at : at + JOBS_PER_CALL] for at in range(0, len(jobs), JOBS_PER_CALL))
