"""Peloton's GangService over real storage: members, waits and refusals."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.gang import gang_pb2 as pb
from peloton.api.v0.gang.gang_pb2_grpc import GangServiceStub
from peloton.api.v0.task import task_pb2
from peloton.errors import ResourceExhausted
from peloton.model.ids import JobId
from services.api import gang_service
from services.api.calls import Calls
from services.api.gang_service import WAITING_MAX, GangService
from services.storage.storage import Storage
from tests.conformance.storage import builders
from tests.conformance.storage.builders import NOW, R
from tests.unit.api_service.story import expect_refusal


@pytest.fixture
def gangs(channel: grpc.aio.Channel) -> Any:
    return GangServiceStub(channel)


def running_gang(storage: Storage) -> str:
    """Create a gang of two and a pod beyond it, of which the members run."""
    job_id = builders.a_job(storage, 3, minimumRunningInstances=2)
    storage.pods.create(JobId(job_id), lambda _: None)
    builders.queue(storage, job_id)
    storage.admission.mark_ready([(job_id, 0, 3)])
    storage.hosts.claim("west", ["h0", "h1"])
    storage.hosts.set_addresses("west", {"h0": "10.0.0.1"})
    rows = [(i, 1, f"h{i}", "agent", {"http": 31_009, "gang": 31_000 + i}) for i in range(2)]
    storage.host_pods.mark_launched(JobId(job_id), rows, NOW)
    builders.report(storage, job_id, range(2), R)
    return job_id


def ask(job_id: str, **fields: Any) -> pb.GetGangRequest:
    return pb.GetGangRequest(jobId=peloton_pb2.JobID(value=job_id), **fields)


async def test_members_have_ranks_and_addresses(gangs: Any, storage: Storage) -> None:
    """The extra is not listed while it is on no host; a host without an address is named."""
    answer = await gangs.GetGang(ask(running_gang(storage)))

    assert (1, 2, 3, "10.0.0.1:31000", False) == (
        answer.generation,
        answer.minimum,
        answer.maximum,
        answer.coordinator,
        answer.isPartial,
    )
    first, second = answer.members
    assert (
        pb.Member(
            instanceId=1,
            runId=1,
            isLive=True,
            rank=1,
            state=task_pb2.RUNNING,
            hostname="h1",
            address="h1",
            port=31_001,
            ports={"http": 31_009, "gang": 31_001},
        )
        == second
    )
    assert ("h0", "10.0.0.1", 31_000) == (first.hostname, first.address, first.port)


async def test_a_call_waits_for_another_revision(gangs: Any, storage: Storage) -> None:
    """The call ends with the change, or with the same answer at the end of its wait."""
    job_id = running_gang(storage)
    known = await gangs.GetGang(ask(job_id))
    same = await gangs.GetGang(ask(job_id, afterRevision=known.revision, waitSeconds=1))
    waiting = asyncio.ensure_future(gangs.GetGang(ask(job_id, afterRevision=known.revision, waitSeconds=60)))

    storage.host_pods.mark_launched(JobId(job_id), [(2, 1, "h0", "agent", {"gang": 31_002})], NOW)
    answer = await waiting

    assert known == same
    assert ([0, 1, 2], False) == ([one.instanceId for one in answer.members], answer.members[2].isLive)
    assert answer.revision != known.revision


async def test_a_call_never_returns_to_an_earlier_revision(gangs: Any, storage: Storage) -> None:
    """A read that another call shares is no answer for a caller that has a newer one."""
    job_id = running_gang(storage)
    earlier = await gangs.GetGang(ask(job_id))
    other = asyncio.ensure_future(gangs.GetGang(ask(job_id, afterRevision=earlier.revision, waitSeconds=1)))
    await asyncio.sleep(0.2)
    storage.host_pods.mark_launched(JobId(job_id), [(2, 1, "h0", "agent", {"gang": 31_002})], NOW)
    newer = await gangs.GetGang(ask(job_id))

    answer = await gangs.GetGang(ask(job_id, afterRevision=newer.revision, waitSeconds=1))

    assert answer == newer
    assert await other == newer


async def test_calls_that_wait_share_reads_and_are_bounded(
    storage: Storage, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many calls for one gang read it once in a period; beyond the bound a call is refused."""
    job_id, read_count = running_gang(storage), 0
    service = GangService(storage.jobs, storage.pods, calls)
    read = service._read

    def count(job_id: JobId) -> Any:
        nonlocal read_count
        read_count += 1
        return read(job_id)

    monkeypatch.setattr(service, "_read", count)
    known = await service.GetGang(ask(job_id), None)
    monkeypatch.setattr(gang_service, "WAITING_MAX", 20)
    request = ask(job_id, afterRevision=known.revision, waitSeconds=1)
    answers = await asyncio.gather(*(service.GetGang(request, None) for _ in range(21)), return_exceptions=True)

    refused = [one for one in answers if isinstance(one, ResourceExhausted)]
    assert (1, [known] * 20) == (len(refused), [one for one in answers if one not in refused])
    assert read_count <= 4
    assert WAITING_MAX >= 1_000


async def test_refusals(gangs: Any, storage: Storage, running_service: str) -> None:
    """Unknown jobs, services and bounds are named."""
    job_id = running_gang(storage)
    unknown = "00000000-0000-4000-8000-0000000000ff"
    service = next(job.job_id for job in storage.search.jobs_after("", 9) if job.job_id != job_id)
    found = [
        await expect_refusal(gangs.GetGang(request))
        for request in (ask(unknown), ask("x"), ask(service), ask(job_id, waitSeconds=61))
    ]
    codes = grpc.StatusCode
    assert [codes.NOT_FOUND, codes.NOT_FOUND, codes.INVALID_ARGUMENT, codes.INVALID_ARGUMENT] == [
        code for code, _ in found
    ]
    assert "waitSeconds is 61, at most 60 are allowed" == found[3][1]
