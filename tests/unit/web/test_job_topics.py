"""The topics of the pages of jobs."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode
from types import SimpleNamespace
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.table import table_pb2
from peloton.api.v0.task import task_pb2
from peloton.errors import InvalidArgument, NotFound
from services.web.api import Api
from services.web.topics import job, jobs

JOB = "91b1b8e5-2ba8-11e7-bc23-0242ac11000d"


class Answers:
    """An API whose methods return or raise the values of the test; it records the requests."""

    def __init__(self, **answers: Any) -> None:
        self.answers, self.asked = answers, dict[str, Any]()
        self.job_table = self.explain = self.tasks = SimpleNamespace(**{name: self._method(name) for name in answers})

    def _method(self, name: str) -> Any:
        async def method(request: Any, timeout: float) -> Any:
            self.asked[name] = request
            if isinstance(self.answers[name], Exception):
                raise self.answers[name]
            return self.answers[name]

        return method


def api(answers: Answers) -> Api:
    return cast(Api, answers)


def a_row(state: job_pb2.JobState.ValueType = job_pb2.RUNNING) -> table_pb2.JobRow:
    return table_pb2.JobRow(id=peloton_pb2.JobID(value=JOB), name="etl", state=state)


async def test_a_page_of_the_table_is_what_was_asked_for_without_its_count() -> None:
    """The count is omitted, since each poll would repeat it."""
    answers = Answers(ListJobs=table_pb2.ListJobsResponse(jobs=[a_row()], nextPageToken="n"))
    asked = {"filter": {"owner": "maps", "states": ["RUNNING"]}, "pageSize": 7, "count": True}

    reported = await jobs.read(api(answers), json.dumps(asked))

    assert {"jobs": [{"id": {"value": JOB}, "name": "etl", "state": "RUNNING"}], "nextPageToken": "n"} == reported
    wanted = table_pb2.JobFilter(owner="maps", states=[job_pb2.RUNNING])
    assert table_pb2.ListJobsRequest(filter=wanted, pageSize=7) == answers.asked["ListJobs"]


@pytest.mark.parametrize("asked", ["{", '{"nosuch": 1}', '{"filter": {"states": ["SLEEPY"]}}', " " * 8_001])
async def test_what_is_no_request(asked: str) -> None:
    """A malformed request is refused before the API is called."""
    with pytest.raises(InvalidArgument):
        await jobs.read(api(Answers()), asked)


async def test_a_job_that_has_ended_is_not_asked_why_it_waits() -> None:
    """A reason is requested for a job that has not ended only."""
    why = explain_pb2.JobWhyResponse(text="waits")
    ended = Answers(GetJob=a_row(job_pb2.FAILED), JobWhy=why)
    active = Answers(GetJob=a_row(), JobWhy=why)

    assert {"row"} == set(await job.read(api(ended), JOB))
    assert {"text": "waits"} == (await job.read(api(active), JOB))["why"]
    assert JOB == active.asked["JobWhy"].jobId.value


async def test_a_resource_manager_that_is_away_hides_no_job() -> None:
    """The page says that the reason is unknown."""
    away = grpc.aio.AioRpcError(
        grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "no resource manager"
    )
    reported = await job.read(api(Answers(GetJob=a_row(), JobWhy=away)), JOB)

    assert ("etl", "no resource manager", None) == (reported["row"]["name"], reported["problem"], reported.get("why"))


async def test_states_are_bytes_that_take_little_space() -> None:
    """The compressed states of 100,000 equal instances take less than a kilobyte."""
    states = bytes([8]) * 100_000
    answers = Answers(GetInstanceStates=table_pb2.GetInstanceStatesResponse(states=states, instanceCount=100_001))

    reported = await job.read_states(api(answers), JOB)

    assert (100_001, states) == (reported["count"], zlib.decompress(b64decode(reported["states"])))
    assert len(reported["states"]) < 1_000


async def test_use_of_a_job_or_of_an_instance() -> None:
    """A malformed instance number is refused before the API is called."""
    found = table_pb2.GetInstanceUseResponse(instances=[table_pb2.InstanceUse(instance=7, measured=True, cpuUsed=0.5)])
    answers = Answers(GetInstanceUse=found)

    reported = await job.read_use(api(answers), f"{JOB}/7")
    assert {"instances": [{"instance": 7, "measured": True, "cpuUsed": 0.5}]} == reported
    assert [7] == list(answers.asked["GetInstanceUse"].instances)
    await job.read_use(api(answers), JOB)
    assert [] == list(answers.asked["GetInstanceUse"].instances)
    for nonsense in ("-1", "x", "²", "1" * 10):
        with pytest.raises(InvalidArgument, match="is no number"):
            await job.read_use(api(answers), f"{JOB}/{nonsense}")


async def test_an_instance_has_its_runtime_and_its_events() -> None:
    """The events are of the latest runs; the configuration, which may be large, is omitted."""
    task = task_pb2.TaskInfo(instanceId=7)
    task.config.name = "large"
    task.runtime.host = "host-1"
    event = task_pb2.PodEvent(actualState="RUNNING")
    answers = Answers(Get=task_pb2.GetResponse(result=task), GetPodEvents=task_pb2.GetPodEventsResponse(result=[event]))

    reported = await job.read_instance(api(answers), f"{JOB}/7")

    assert {"runtime": {"host": "host-1"}, "events": [{"actualState": "RUNNING"}]} == reported
    assert (JOB, 7, job.RUNS_SHOWN) == (
        answers.asked["GetPodEvents"].jobId.value,
        answers.asked["Get"].instanceId,
        answers.asked["GetPodEvents"].limit,
    )


async def test_an_instance_that_there_is_not() -> None:
    """An unknown instance and a malformed number are refused."""
    none = task_pb2.GetResponse()
    none.outOfRange.instanceCount = 3
    answers = Answers(Get=none, GetPodEvents=task_pb2.GetPodEventsResponse())

    with pytest.raises(NotFound, match="has no instance 9"):
        await job.read_instance(api(answers), f"{JOB}/9")
    with pytest.raises(InvalidArgument, match="is no number"):
        await job.read_instance(api(answers), f"{JOB}/x")


async def test_instances_are_rows_with_their_attempts_and_messages_for_people() -> None:
    """The answer has one page and the total; a malformed request is refused before the API is called."""
    found = task_pb2.QueryResponse()
    task = found.records.add(instanceId=3)
    task.runtime.state, task.runtime.host, task.runtime.failureCount = task_pb2.FAILED, "h1", 2
    task.runtime.message, task.runtime.reason = "", "REASON_CONTAINER_LIMITATION_MEMORY"
    task.runtime.mesosTaskId.value = f"{JOB}-3-4"
    task.runtime.startTime = "2026-01-01T00:00:00Z"
    found.pagination.total = 120
    answers = Answers(Query=found)

    reported = await job.read_instances(api(answers), json.dumps({"jobId": {"value": JOB}}))

    assert [[3, "FAILED", "h1", "out of memory", 4, "2026-01-01T00:00:00Z", "", 2]] == reported["rows"]
    assert (120, JOB) == (reported["total"], answers.asked["Query"].jobId.value)
    for nonsense in ("{", '{"nosuch": 1}', " " * 8_001):
        with pytest.raises(InvalidArgument):
            await job.read_instances(api(Answers()), nonsense)
