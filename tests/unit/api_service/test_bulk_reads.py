"""The private BulkReads service on the port of the api."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

from peloton.api.private import bulk_reads_pb2 as reads
from peloton.api.private.bulk_reads_pb2_grpc import BulkReadsStub
from peloton.api.service_names import SERVED
from services.api.bulk_reads import BULK_READS
from services.storage.storage import Storage
from tests.unit.api_service.services import create, evolve, spec
from tests.unit.api_service.story import JOB


async def test_a_role_reads_jobs_pods_and_updates(v1: Any, storage: Storage, address: str) -> None:
    """One call each returns a service, its runs with events and specs, and its update; clients do not see the service
    in reflection, and learn the bound that they exceed."""
    await create(v1, spec(2))
    evolve(storage)
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = BulkReadsStub(channel)
        [jobs] = [batch async for batch in stub.ListJobs(reads.ListJobsRequest(names=["web"]))]
        [pods] = [batch async for batch in stub.ListPods(reads.ListPodsRequest(job_ids=[JOB], runs=1))]
        [updates] = [batch async for batch in stub.ListUpdates(reads.ListUpdatesRequest(job_ids=[JOB]))]
        try:
            await anext(aiter(stub.ListPods(reads.ListPodsRequest(runs=101))))
        except grpc.aio.AioRpcError as error:
            refusal = error
    assert [(JOB, spec(2))] == [(job.job_id, job.spec) for job in jobs.jobs]
    assert ([0, 1], [1, 1], [spec().default_spec]) == (list(pods.instance), list(pods.spec), list(pods.specs))
    assert 2 * 4 <= sum(pods.event_count) == len(pods.event)
    assert [JOB] == [[JOB][update.job] for update in updates.updates]
    assert (grpc.StatusCode.INVALID_ARGUMENT, True) == (refusal.code(), "at most 100" in (refusal.details() or ""))
    assert not set(BULK_READS) & set(SERVED)
