"""The client for event loops is like the one for threads."""

from __future__ import annotations

import asyncio
from typing import get_type_hints

import grpc
import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.bulk import bulk_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.api.v1alpha.watch.svc import watch_svc_pb2
from peloton.client import HOSTMGR, AsyncClient, Client
from peloton.client.services import Services, Stub
from tests.unit.cli.fake_api import FakeApi


def test_both_clients_have_the_same_services() -> None:
    """One table has the stubs of both."""
    rows = {name for name, row in vars(Services).items() if isinstance(row, Stub)}

    assert len(rows) > 20
    for kind in (Client, AsyncClient):
        assert not {name for name, row in vars(kind).items() if isinstance(row, Stub)}
        assert issubclass(kind, Services)
    assert get_type_hints(Services.__init__)


async def test_headers_and_deadlines(api: FakeApi) -> None:
    """Each call has the headers and the default timeout, a watch has none, and a caller's own timeout counts."""
    api.answers["jobs.GetActiveJobs"] = [job_pb2.GetActiveJobsResponse()]
    api.answers["services.ListJobs"] = [[stateless_svc_pb2.ListJobsResponse()]]
    api.answers["watches.Watch"] = [[watch_svc_pb2.WatchResponse(watch_id="job_1")]]
    async with AsyncClient(api.address, timeout_s=600) as client:
        await client.jobs.GetActiveJobs(job_pb2.GetActiveJobsRequest(), metadata=(("username", "ann"),))
        await client.jobs.GetActiveJobs(job_pb2.GetActiveJobsRequest(), timeout=60)
        assert 1 == len([each async for each in client.services.ListJobs(stateless_svc_pb2.ListJobsRequest())])
        assert 1 == len([each async for each in client.watches.Watch(watch_svc_pb2.WatchRequest())])
    default, own, listed, watched = api.calls

    assert ("ann", "proto", "peloton-jobmgr") == tuple(
        default.headers[name] for name in ("username", "rpc-encoding", "rpc-service")
    )
    assert own.time_left_s < 300 < default.time_left_s
    assert 300 < listed.time_left_s < 900
    assert watched.time_left_s is None or watched.time_left_s > 10**6


async def test_many_calls_at_once(api: FakeApi) -> None:
    """Calls wait for each other's answers only if they want to."""
    api.answers["jobs.GetActiveJobs"] = [job_pb2.GetActiveJobsResponse(ids=[peloton_pb2.JobID(value="a")])]
    async with AsyncClient("127.0.0.1:1", overrides={HOSTMGR: "127.0.0.1:2", "peloton-jobmgr": api.address}) as client:
        answers = await asyncio.gather(*(client.jobs.GetActiveJobs(job_pb2.GetActiveJobsRequest()) for _ in range(50)))

    assert ["a"] * 50 == [answer.ids[0].value for answer in answers]
    assert api.address == client.last_address


async def test_a_stream_of_requests(api: FakeApi) -> None:
    """Messages of a list reach the server, and errors the caller."""
    messages = [bulk_pb2.CreateJobRequest(), bulk_pb2.CreateJobRequest()]
    api.answers["bulk.CreateJob"] = [
        lambda request: job_pb2.CreateResponse(jobId=peloton_pb2.JobID(value=str(len(list(request))))),
        (grpc.StatusCode.INVALID_ARGUMENT, "out of order"),
    ]
    async with AsyncClient(api.address) as client:
        assert "2" == (await client.bulk.CreateJob(iter(messages))).jobId.value
        with pytest.raises(grpc.aio.AioRpcError, match="out of order"):
            await client.bulk.CreateJob(iter(messages))
