"""Peloton's private BulkReads: many jobs, their pods and their updates, in streams of batches.

The service is for other roles, the Aurora bridge among them, which pass on the credentials of their clients: it reads
what public services read, within bounds and in pools that the caller may read. Each batch is a fixed number of queries.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeVar

from peloton.api import convert_v1
from peloton.api.convert_v1_spec import job_spec
from peloton.api.private import bulk_reads_pb2 as reads
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.errors import InvalidArgument
from peloton.model.ids import JobId
from peloton.model.job import JobRecord, JobType
from peloton.model.times import NS_PER_S
from services.access.visible import visible_pools
from services.api.calls import Calls
from services.api.ids import parse_known_id
from services.api.job_query import check_no_nul
from services.api.pod_batches import PodBatches
from services.storage.bulk_reads import Spans, UpdateEventRow, UpdateRow
from services.storage.jobs.job_table import JobFilter, Position
from services.storage.storage import Storage

BULK_READS = (reads.DESCRIPTOR.services_by_name["BulkReads"].full_name,)
NAMES_MAX, LABELS_MAX, JOB_IDS_MAX = 1_000, 16, 10_000
TEXT_MAX = 4_000
"""Maximum length of a name or a label in characters."""
RUNS_MAX = 100
"""Maximum number of runs per instance."""
JOBS_PER_BATCH, RUNS_PER_BATCH = 500, 1_000
UPDATES_PER_BATCH, UPDATES_WITH_INSTANCES_PER_BATCH = 200, 10

T = TypeVar("T")


class BulkReads:
    def __init__(self, records: Storage, calls: Calls) -> None:
        self._records, self._calls = records, calls

    # -- jobs

    async def ListJobs(
        self, request: reads.ListJobsRequest, context: Any
    ) -> AsyncGenerator[reads.ListJobsResponse, None]:
        texts = [*request.names, *(text for label in request.labels for text in (label.key, label.value))]
        check_no_nul(*texts)
        _check_count("names", request.names, NAMES_MAX)
        _check_count("labels", request.labels, LABELS_MAX)
        if texts and (longest := max(map(len, texts))) > TEXT_MAX:
            raise InvalidArgument(f"a name or label has {longest} characters, at most {TEXT_MAX} are allowed")
        visible = await self._calls.run(lambda: visible_pools(self._records.pools.specs()))
        if request.names:
            jobs = await self._calls.run(self._records.bulk.jobs_named, list(request.names), visible)
            for some in _divide(jobs, JOBS_PER_BATCH):
                yield await self._calls.run(self._list_jobs, some)
            return
        wanted = JobFilter(
            pools=visible,
            types=frozenset({JobType.SERVICE}),
            labels=tuple((label.key, label.value) for label in request.labels),
        )
        at: Position | None = None
        while True:
            page = await self._calls.run(self._records.job_table.page, wanted, JOBS_PER_BATCH, at, oldest_first=True)
            yield await self._calls.run(self._list_jobs, page.jobs)
            if (at := page.next) is None:
                return

    def _list_jobs(self, jobs: Sequence[JobRecord]) -> reads.ListJobsResponse:
        keys = [(job.job_id, job.config_version) for job in jobs]
        sent = self._records.configs.job_specs(keys)
        of_v0 = self._records.configs.job_configs([key for key in keys if not sent.get(key)])
        response = reads.ListJobsResponse()
        for job, key in zip(jobs, keys, strict=True):
            found = response.jobs.add(
                job_id=job.job_id,
                name=job.name,
                version=str(job.entity_version),
                config_version=job.config_version,
                instance_count=job.instance_count,
            )
            for state, count in job.pod_counts.items():
                found.pod_counts[convert_v1.POD_STATE_NUMBERS[state.public]] += count
            if sent.get(key):
                found.spec.ParseFromString(sent[key])
                found.spec.ClearField("instance_spec")
            elif key in of_v0:
                found.spec.CopyFrom(job_spec(of_v0[key]))
        return response

    # -- pods

    async def ListPods(
        self, request: reads.ListPodsRequest, context: Any
    ) -> AsyncGenerator[reads.ListPodsResponse, None]:
        if request.runs > RUNS_MAX:
            raise InvalidArgument(f"{request.runs} runs of each instance are asked for, at most {RUNS_MAX} are allowed")
        numbers, limit = _numbers_of(request.job_ids), RUNS_PER_BATCH // max(request.runs, 1)
        batches = PodBatches(self._records.configs, numbers)
        for ids in _divide(sorted(numbers), JOBS_PER_BATCH):
            after = -1
            while ids:
                some = ids if after < 0 else ids[:1]  # the rest of one job by itself: an index finds its beginning
                pods, events = await self._calls.run(self._records.bulk.pods, some, after, limit, request.runs)
                if request.runs:
                    yield await self._calls.run(batches.of_runs, pods, events)
                else:
                    yield await self._calls.run(batches.of_pods, pods)
                if len(pods) == limit:
                    ids, after = ids[ids.index(pods[-1].job_id) :], pods[-1].instance_id
                else:
                    ids, after = ids[len(some) :], -1

    # -- updates

    async def ListUpdates(
        self, request: reads.ListUpdatesRequest, context: Any
    ) -> AsyncGenerator[reads.ListUpdatesResponse, None]:
        numbers = _numbers_of(request.job_ids)
        size = UPDATES_WITH_INSTANCES_PER_BATCH if request.instance_events else UPDATES_PER_BATCH
        for ids in _divide(sorted(numbers), JOBS_PER_BATCH):
            updates = await self._calls.run(self._records.bulk.updates, ids)
            of_jobs = (list(some) for _, some in groupby(updates, attrgetter("job_id")))
            wanted = [update for some in of_jobs for update in some[: request.updates_limit or None]]
            for some in _divide(wanted, size):
                yield await self._calls.run(self._list_updates, some, numbers, request.instance_events)

    def _list_updates(
        self, updates: Sequence[UpdateRow], numbers: dict[JobId, int], with_instances: bool
    ) -> reads.ListUpdatesResponse:
        ids = [update.update_id for update in updates]
        events = self._records.bulk.update_events(ids, with_instances)
        return reads.ListUpdatesResponse(
            updates=[_update(update, numbers[update.job_id], events.get(update.update_id, ())) for update in updates]
        )


def _check_count(what: str, found: Sequence[object], most: int) -> None:
    if len(found) > most:
        raise InvalidArgument(f"{len(found)} {what} are given, at most {most} are allowed")


def _numbers_of(job_ids: Sequence[str]) -> dict[JobId, int]:
    """Return the index of each known job id in a request. Raises InvalidArgument."""
    _check_count("job ids", job_ids, JOB_IDS_MAX)
    found = ((parse_known_id(peloton_pb2.JobID(value=text)), at) for at, text in enumerate(job_ids))
    return {job_id: at for job_id, at in found if job_id is not None}


def _divide(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[at : at + size] for at in range(0, len(items), size))


def _update(update: UpdateRow, job: int, events: Iterable[UpdateEventRow]) -> reads.Update:
    found = reads.Update(
        job=job,
        type=convert_v1.WORKFLOW_TYPE_NUMBERS[update.type],  # type: ignore[arg-type]
        state=convert_v1.WORKFLOW_STATE_NUMBERS[update.state],
        opaque_data=update.opaque_data,
        spec=convert_v1.update_spec(update.spec),
        config_version=update.config_version,
        prev_config_version=update.prev_config_version,
        added=_ranges(update.added),
        updated=_ranges(update.updated),
        removed=_ranges(update.removed),
    )
    last = None
    for event in events:
        if event.spans or event.state is not last:
            state = convert_v1.WORKFLOW_STATE_NUMBERS[event.state]
            found.events.add(time_s=event.time_ns // NS_PER_S, state=state, instances=_ranges(event.spans))
            last = last if event.spans else event.state
    return found


def _ranges(spans: Spans) -> list[pod_pb2.InstanceIDRange]:
    return [pod_pb2.InstanceIDRange(**{"from": first, "to": last}) for first, last in spans]
