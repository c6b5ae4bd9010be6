"""Conversion of ids, and errors about them, for v0 messages."""

from __future__ import annotations

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.errors import errors_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha import peloton_pb2 as v1_peloton_pb2
from peloton.errors import InvalidArgument
from peloton.model.ids import JobId, PodId, parse_job_id
from peloton.model.job import JobRecord
from peloton.model.text import ID_CHARS_MAX, shorten

RUN_ID_MAX = 2**63 - 1


def wire_id(job_id: str) -> peloton_pb2.JobID:
    return peloton_pb2.JobID(value=job_id)


def parse_known_id(wire: peloton_pb2.JobID | v1_peloton_pb2.JobID) -> JobId | None:
    """Return the id in its canonical form; None if it is no UUID, and therefore belongs to no job.

    Raises InvalidArgument for a text too long to be repeated in an answer.
    """
    if len(wire.value) > ID_CHARS_MAX:
        raise InvalidArgument(f"job id has {len(wire.value):,} characters, at most {ID_CHARS_MAX:,}: want a UUID")
    try:
        return parse_job_id(wire.value)
    except ValueError:
        return None


def run_id_of(text: str, job_id: JobId, instance_id: int) -> int:
    """Return the run of ``<job>-<instance>-<run>``, which must be a run of the given instance."""
    try:
        pod_id = PodId.parse(text)
    except ValueError as error:
        raise InvalidArgument(str(error)) from error
    if (parse_known_id(wire_id(pod_id.job_id)), pod_id.instance_id) != (job_id, instance_id):
        raise InvalidArgument(f"run {shorten(text)} is not a run of instance {instance_id} of job {job_id}")
    if pod_id.run_id > RUN_ID_MAX:
        raise InvalidArgument(f"run {shorten(text)} does not exist: the last run that can be is {RUN_ID_MAX}")
    return pod_id.run_id


def job_not_found(wire: peloton_pb2.JobID, cause: str = "") -> errors_pb2.JobNotFound:
    cause = cause or f"job:{wire.value} not found"
    return errors_pb2.JobNotFound(id=wire, message=f"job {wire.value} not found, {cause}")


def out_of_range(record: JobRecord) -> task_pb2.InstanceIdOutOfRange:
    return task_pb2.InstanceIdOutOfRange(jobId=wire_id(record.job_id), instanceCount=record.instance_count)
