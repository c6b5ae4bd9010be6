"""Topics of one job: its table row, reasons for waiting, states of all instances, and one instance with its events."""

from __future__ import annotations

import asyncio
import zlib
from base64 import b64encode
from typing import Any

import grpc
import grpc.aio
from google.protobuf.json_format import MessageToDict, Parse, ParseError

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.table import table_pb2
from peloton.api.v0.task import task_pb2
from peloton.errors import InvalidArgument, NotFound
from peloton.model.status_text import status_text
from peloton.model.text import quote
from services.web.api import TIMEOUT_S, Api

DIGITS_MAX = 9
REQUEST_CHARS_MAX = 8_000
RUNS_SHOWN = 10
"""Number of an instance's latest runs whose events are shown."""
ENDED = (job_pb2.SUCCEEDED, job_pb2.FAILED, job_pb2.KILLED)


async def read(api: Api, job_id: str) -> Any:
    """Return ``row``; ``why`` from JobWhy for a job that has not ended; ``problem`` if the reasons are unknown."""
    request = table_pb2.GetJobRequest(id=peloton_pb2.JobID(value=job_id))
    row = await api.job_table.GetJob(request, timeout=TIMEOUT_S)
    page: dict[str, Any] = {"row": MessageToDict(row)}
    if row.state not in ENDED:
        try:
            why_request = explain_pb2.JobWhyRequest(jobId=peloton_pb2.JobID(value=job_id))
            page["why"] = MessageToDict(await api.explain.JobWhy(why_request, timeout=TIMEOUT_S))
        except grpc.aio.AioRpcError as error:  # the resource manager is unavailable: the rest is shown
            page["problem"] = error.details() or ""
    return page


async def read_states(api: Api, job_id: str) -> Any:
    """Return the ``count`` of instances, and the bytes of GetInstanceStates, zlib-compressed in base64."""
    request = table_pb2.GetInstanceStatesRequest(id=peloton_pb2.JobID(value=job_id))
    answer = await api.job_table.GetInstanceStates(request, timeout=TIMEOUT_S)
    return {"count": answer.instanceCount, "states": b64encode(zlib.compress(answer.states, 1)).decode()}


async def read_use(api: Api, argument: str) -> Any:
    """Return GetInstanceUse for ``JOB``, or for one instance ``JOB/INSTANCE``."""
    job_id, _, instance = argument.partition("/")
    instances = [_number(instance)] if instance else []
    request = table_pb2.GetInstanceUseRequest(id=peloton_pb2.JobID(value=job_id), instances=instances)
    return MessageToDict(await api.job_table.GetInstanceUse(request, timeout=TIMEOUT_S))


async def read_instances(api: Api, request_json: str) -> Any:
    """Return instances for ``request_json``, a TaskManager.Query request in JSON.

    ``rows`` are [instance, state, host, message, run, start, completion, failures]; ``total`` counts all matches.
    """
    if len(request_json) > REQUEST_CHARS_MAX:
        raise InvalidArgument(
            f"the filters have {len(request_json)} characters, at most {REQUEST_CHARS_MAX} are allowed"
        )
    try:
        request = Parse(request_json, task_pb2.QueryRequest())
    except ParseError as error:
        raise InvalidArgument(f"not a request of Query: {error}") from error
    answer = await api.tasks.Query(request, timeout=TIMEOUT_S)
    if answer.HasField("error"):
        raise NotFound(answer.error.notFound.message or f"job {request.jobId.value} not found")
    return {"rows": [_instance_row(one) for one in answer.records], "total": answer.pagination.total}


def _instance_row(info: task_pb2.TaskInfo) -> list[Any]:
    runtime = info.runtime
    run = runtime.mesosTaskId.value.rpartition("-")[2]
    return [
        info.instanceId,
        task_pb2.TaskState.Name(runtime.state),
        runtime.host,
        status_text(runtime.message, runtime.reason),
        int(run) if run.isdigit() else 0,
        runtime.startTime,
        runtime.completionTime,
        runtime.failureCount,
    ]


async def read_instance(api: Api, argument: str) -> Any:
    """Return the ``runtime`` of ``JOB/INSTANCE``, and the ``events`` of its latest runs, newest first."""
    text, _, number = argument.rpartition("/")
    job_id, instance = peloton_pb2.JobID(value=text), _number(number)
    found, page = await asyncio.gather(
        api.tasks.Get(task_pb2.GetRequest(jobId=job_id, instanceId=instance), timeout=TIMEOUT_S),
        api.tasks.GetPodEvents(
            task_pb2.GetPodEventsRequest(jobId=job_id, instanceId=instance, limit=RUNS_SHOWN), timeout=TIMEOUT_S
        ),
    )
    if not found.HasField("result"):
        raise NotFound(found.notFound.message or f"job {text} has no instance {instance}")
    runtime = found.result.runtime
    runtime.message, runtime.reason = status_text(runtime.message, runtime.reason), ""
    for event in page.result:
        event.message, event.reason = status_text(event.message, event.reason), ""
    return {"runtime": MessageToDict(runtime), "events": [MessageToDict(one) for one in page.result]}


def _number(instance: str) -> int:
    """Parse an instance number. Raises InvalidArgument."""
    if not (instance.isascii() and instance.isdigit() and len(instance) <= DIGITS_MAX):
        raise InvalidArgument(f"instance {quote(instance)} is no number")
    return int(instance)
