"""v0 TaskManager over real storage: Get, List, Query, GetCache."""

from __future__ import annotations

from typing import Any, cast

import grpc
import grpc.aio
import pytest

from peloton.api.service_names import TASK_MANAGER
from peloton.api.v0.job import job_pb2
from peloton.api.v0.query import query_pb2
from peloton.api.v0.task import task_pb2
from peloton.lifecycle.retry import THROTTLED_MESSAGE
from peloton.model.ids import JobId
from peloton.model.pod import PodState
from services.api import answers, task_manager
from services.storage.storage import Storage
from tests.unit.api_service.story import ID, JOB, NOW_NS, UNKNOWN, Config, expect_refusal, ranges, report, run

NOT_FOUND = f"job {UNKNOWN.value} not found, job:{UNKNOWN.value} not found"


# -- Get, List, Query, GetCache


async def test_get(tasks: Any, job: JobId, storage: Storage) -> None:
    """A task has its effective config, its runtime and its ended runs."""
    run(storage, 2)
    response = await tasks.Get(task_pb2.GetRequest(jobId=ID, instanceId=2))

    info = response.result
    assert (info.instanceId, info.jobId.value, info.config.name) == (2, JOB, "odd")
    assert info.config.command.value == "true"
    assert (info.runtime.state, info.runtime.host) == (task_pb2.RUNNING, "h1")
    assert info.runtime.mesosTaskId.value == f"{JOB}-2-1"
    assert not response.results


async def test_get_reports_ended_runs(tasks: Any, job: JobId, storage: Storage) -> None:
    """An ended run has its host and its result."""
    run(storage, 1)
    report(storage, 1, PodState.FAILED, message="Command exited with status 3")
    response = await tasks.Get(task_pb2.GetRequest(jobId=ID, instanceId=1))

    past = response.results[0]
    assert (past.instanceId, past.runtime.state, past.runtime.host) == (1, task_pb2.FAILED, "h1")
    assert (past.runtime.mesosTaskId.value, past.runtime.prevMesosTaskId.value) == (f"{JOB}-1-1", f"{JOB}-1-0")
    assert (past.runtime.agentID.value, past.runtime.message) == ("agent-1", "Command exited with status 3")


async def test_an_ended_run_is_reported_once(jobs: Any, tasks: Any, config: Config, storage: Storage) -> None:
    """A service whose instance waits for its next run has a later event in the same state, which hides the cause."""
    await jobs.Create(job_pb2.CreateRequest(id=ID, config=config(1, type=job_pb2.SERVICE)))
    storage.pods.create(JOB, lambda _: None)
    run(storage, 0)
    report(storage, 0, PodState.FAILED, message="Command exited with status 2")
    storage.jobs.settle(JOB, NOW_NS)
    response = await tasks.Get(task_pb2.GetRequest(jobId=ID, instanceId=0))

    assert THROTTLED_MESSAGE == response.result.runtime.message
    assert ["Command exited with status 2"] == [past.runtime.message for past in response.results]


async def test_get_unknown_instance(tasks: Any, job: JobId) -> None:
    """An unknown instance is NOT_FOUND with its name."""
    assert await expect_refusal(tasks.Get(task_pb2.GetRequest(jobId=ID, instanceId=4))) == (
        grpc.StatusCode.NOT_FOUND,
        f"task:{JOB}-4 not found",
    )


LISTED: dict[str, tuple[task_pb2.ListRequest, list[int]]] = {
    "all": (task_pb2.ListRequest(jobId=ID), [0, 1, 2, 3]),
    "half open": (task_pb2.ListRequest(jobId=ID, range=ranges((1, 3))[0]), [1, 2]),
    "open end": (task_pb2.ListRequest(jobId=ID, range=ranges((2, 2**32 - 1))[0]), [2, 3]),
}


@pytest.mark.parametrize("name", LISTED)
async def test_list(tasks: Any, job: JobId, name: str) -> None:
    """Tasks of a range are in the order of instances, each with its config."""
    request, instances = LISTED[name]
    response = await tasks.List(request)

    assert sorted(response.result.value) == instances
    assert response.result.value[2].config.name == "odd"


async def test_list_pages(tasks: Any, job: JobId, monkeypatch: pytest.MonkeyPatch) -> None:
    """Storage is read page by page."""
    monkeypatch.setattr(task_manager, "PAGE", 3)
    response = await tasks.List(task_pb2.ListRequest(jobId=ID))

    assert sorted(response.result.value) == [0, 1, 2, 3]


async def test_list_that_is_too_large(tasks: Any, job: JobId, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer above the limit of a message is refused with a range that fits."""
    whole = await tasks.List(task_pb2.ListRequest(jobId=ID))
    limit = sum(whole.result.value[i].ByteSize() for i in range(3))
    monkeypatch.setattr(task_manager, "ANSWER_BYTES_MAX", limit)
    code, text = await expect_refusal(tasks.List(task_pb2.ListRequest(jobId=ID)))

    assert (code, text) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        f"tasks [0, 4) of job {JOB} take more than {limit} bytes, the limit of one answer; [0, 3) fits",
    )


async def test_list_of_nothing(tasks: Any, job: JobId) -> None:
    """An empty map is answered with notFound."""
    response = await tasks.List(task_pb2.ListRequest(jobId=ID, range=ranges((7, 9))[0]))

    assert response.notFound.message == f"job {JOB} not found, no tasks in range [7, 9)"


async def test_query(tasks: Any, job: JobId, storage: Storage) -> None:
    """Filters are ANDed; pagination echoes the request, total counts all matches."""
    run(storage, 0, 1, 2)
    spec = task_pb2.QuerySpec(
        taskStates=[task_pb2.RUNNING], hosts=["h1"], pagination=query_pb2.PaginationSpec(offset=1, limit=1)
    )
    response = await tasks.Query(task_pb2.QueryRequest(jobId=ID, spec=spec))

    assert [info.instanceId for info in response.records] == [1]
    assert response.pagination == query_pb2.Pagination(offset=1, limit=1, total=3)


async def test_query_that_is_too_large(
    tasks: Any, job: JobId, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query is refused as soon as the answer is too large, and the remaining configs are not read."""
    monkeypatch.setattr(answers, "PAGE", 1)
    monkeypatch.setattr(answers, "ANSWER_BYTES_MAX", 10)
    read: list[int] = []
    task_configs = storage.configs.task_configs

    def count_call(job_id: JobId, version: int, instance_ids: list[int]) -> Any:
        read.extend(instance_ids)
        return task_configs(job_id, version, instance_ids)

    monkeypatch.setattr(storage.configs, "task_configs", count_call)
    code, text = await expect_refusal(tasks.Query(task_pb2.QueryRequest(jobId=ID)))

    assert (code, read) == (grpc.StatusCode.RESOURCE_EXHAUSTED, [0])
    assert text.startswith("the answer has 4 pods, and the first 1 take ")
    assert text.endswith(" bytes already, the limit is 10; ask for a smaller limit")


async def test_query_by_name(tasks: Any, job: JobId) -> None:
    """The names are the ones in the task configs."""
    response = await tasks.Query(task_pb2.QueryRequest(jobId=ID, spec=task_pb2.QuerySpec(names=["odd"])))

    assert [info.instanceId for info in response.records] == [2]
    assert response.records[0].config.name == "odd"


async def test_query_ordered_by_something_unknown(tasks: Any, job: JobId) -> None:
    """The error lists the fields that the original supports."""
    spec = task_pb2.QuerySpec()
    spec.pagination.orderBy.add().property.value = "colour"
    response = await tasks.Query(task_pb2.QueryRequest(jobId=ID, spec=spec))

    assert response.error.notFound.message == (
        "Sort only supports fields: creation_time, host, instanceId, message, name, reason, state"
    )


async def test_get_cache(tasks: Any, job: JobId) -> None:
    """The cached view has the runtime and the labels."""
    response = await tasks.GetCache(task_pb2.GetCacheRequest(jobId=ID, instanceId=0))

    assert response.runtime.state == task_pb2.INITIALIZED
    assert [(label.key, label.value) for label in response.labels] == [("tier", "gold")]


async def test_get_cache_unknown(tasks: Any, job: JobId) -> None:
    """The errors distinguish an unknown job from an unknown task."""
    no_job = await expect_refusal(tasks.GetCache(task_pb2.GetCacheRequest(jobId=UNKNOWN)))
    no_task = await expect_refusal(tasks.GetCache(task_pb2.GetCacheRequest(jobId=ID, instanceId=9)))

    assert no_job == (grpc.StatusCode.NOT_FOUND, "Job not found in cache")
    assert no_task == (grpc.StatusCode.NOT_FOUND, "Task not found in cache")


# -- unknown jobs


@pytest.mark.parametrize("method", ["Get", "List"])
async def test_unknown_job_alongside_the_result(tasks: Any, method: str) -> None:
    """Read of an unknown job answer notFound."""
    response = await getattr(tasks, method)(getattr(task_pb2, f"{method}Request")(jobId=UNKNOWN))

    assert (response.notFound.id.value, response.notFound.message) == (UNKNOWN.value, NOT_FOUND)


@pytest.mark.parametrize("method", ["Query", "Start", "Stop", "BrowseSandbox"])
async def test_unknown_job_inside_the_error(tasks: Any, method: str) -> None:
    """The answer of methods with an error in their response has error.notFound."""
    response = await getattr(tasks, method)(getattr(task_pb2, f"{method}Request")(jobId=UNKNOWN))

    assert (response.error.notFound.id.value, response.error.notFound.message) == (UNKNOWN.value, NOT_FOUND)


@pytest.mark.parametrize(
    ("method", "text"), [("Restart", f"job:{UNKNOWN.value} not found"), ("Refresh", "job not found")]
)
async def test_unknown_job_by_status(tasks: Any, method: str, text: str) -> None:
    """Methods without an error in their response answer NOT_FOUND."""
    request = getattr(task_pb2, f"{method}Request")(jobId=UNKNOWN)

    assert await expect_refusal(getattr(tasks, method)(request)) == (grpc.StatusCode.NOT_FOUND, text)


@pytest.mark.parametrize("name", TASK_MANAGER)
async def test_every_spelling_is_served(channel: grpc.aio.Channel, job: JobId, name: str) -> None:
    """Each name of TaskManager serves the same."""
    method = cast(Any, channel).unary_unary(
        f"/{name}/List",
        request_serializer=task_pb2.ListRequest.SerializeToString,
        response_deserializer=task_pb2.ListResponse.FromString,
    )
    response = await method(task_pb2.ListRequest(jobId=ID))

    assert len(response.result.value) == 4
