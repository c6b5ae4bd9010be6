"""Reads of one job by the v0 API."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from cli.errors import Failed
from cli.refusals import raise_if_refused
from cli.settings import Settings
from cli.wire import v0
from peloton.api.error_details import reason_of
from peloton.errors import Reason

if TYPE_CHECKING:
    from peloton.client import Client

VERSION_ATTEMPTS_MAX = 5
T = TypeVar("T")


def read_job(settings: Settings, job_id: str) -> v0.job.JobInfo:
    """Return the job. Raises Failed when there is no such job."""
    response = settings.client.jobs.Get(v0.job.GetRequest(id=v0.peloton.JobID(value=job_id)))
    refuse_unknown_job(settings, response, "Unable to get job", job_id)
    return response.jobInfo


def refuse_unknown_job(settings: Settings, response: v0.job.GetResponse, text: str, job_id: str) -> None:
    worded = f"{text} {{id}}: {{message}}"
    raise_if_refused(settings, response, {"notFound": worded, "getRuntimeFail": worded}, id=job_id)
    if not response.HasField("jobInfo"):
        raise Failed(f"{text} {job_id}")


def get_job_or_summary(client: Client, job_id: str) -> v0.job.GetResponse:
    """Return the job, with the short form of its configuration when the whole is too large for an answer."""
    import grpc

    wire = v0.peloton.JobID(value=job_id)
    try:
        return client.jobs.Get(v0.job.GetRequest(id=wire))
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
            raise
    cache = client.jobs.GetCache(v0.job.GetCacheRequest(id=wire))
    return v0.job.GetResponse(jobInfo=v0.job.JobInfo(id=wire, config=cache.config, runtime=cache.runtime))


def with_current_version(
    settings: Settings, job_id: str, wanted: int, what: str, send: Callable[[v0.job.JobInfo], T]
) -> T:
    """Read the job and send a change of it; repeat when another change came between.

    ``wanted``: the only version that may be changed, refused by the name of ``what`` if the job has another one; 0:
    any.
    """
    import grpc

    for attempt in range(1, VERSION_ATTEMPTS_MAX + 1):
        job = read_job(settings, job_id)
        current = job.runtime.configurationVersion
        if wanted and wanted != current:
            raise Failed(f"invalid input {what} version current {current} provided {wanted}")
        try:
            return send(job)
        except grpc.RpcError as error:
            if wanted or reason_of(error) != Reason.VERSION_CONFLICT or attempt == VERSION_ATTEMPTS_MAX:
                raise
    raise AssertionError("the last attempt returns or raises")
