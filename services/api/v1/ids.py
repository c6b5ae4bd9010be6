"""Ids, versions and opaque data on the wire, and error texts about invalid ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from peloton.api.v1alpha import peloton_pb2
from peloton.errors import Aborted, InvalidArgument, PelotonError, Reason
from peloton.model.ids import EntityVersion, JobId, PodId, PodName, parse_job_id
from peloton.model.text import quote, shorten
from services.api.ids import RUN_ID_MAX, parse_known_id

UNEXPECTED_VERSION = "unexpected entity version"
OPAQUE_BYTES_MAX = 64 * 1024
"""Maximum size of opaque data, which is part of every answer about its update."""
_UUID_LENGTH = 36


@contextmanager
def prefix_error(outer: str) -> Iterator[None]:
    """Prefix errors raised in this block: their code and reason stay, the text becomes ``outer: code:<code>
    message:<text>``.
    """
    try:
        yield
    except PelotonError as inner:
        code = inner.code.lower().replace("_", "-")
        outer_error = type(inner)(f"{outer}: code:{code} message:{inner.message}")
        raise outer_error.because(inner.reason, **inner.metadata) from inner


def job_id_of(wire: peloton_pb2.JobID, text: str = "JobID must be of UUID format") -> JobId:
    job_id = parse_known_id(wire)
    if job_id is None:
        raise InvalidArgument(text)
    return job_id


def parse_seen_version(wire: peloton_pb2.EntityVersion) -> EntityVersion:
    """Parse the version known to a writer. Raises Aborted for an invalid text, which cannot be current."""
    try:
        return EntityVersion.parse(wire.value)
    except ValueError:
        raise Aborted(UNEXPECTED_VERSION).because(Reason.VERSION_CONFLICT) from None


def parse_asked_version(wire: peloton_pb2.EntityVersion) -> EntityVersion:
    """Parse the version that a reader requests. Raises InvalidArgument."""
    try:
        return EntityVersion.parse(wire.value)
    except ValueError:
        raise InvalidArgument("entityVersion has wrong format") from None


def pod_name_of(wire: peloton_pb2.PodName) -> PodName:
    text = wire.value
    job, _, instance = text.rpartition("-")
    job_id = parse_known_id(peloton_pb2.JobID(value=job)) if len(job) == _UUID_LENGTH else None
    if job_id is None:
        raise InvalidArgument(f"invalid pelotonTaskID {shorten(text)}")
    try:
        return PodName.parse(f"{job_id}-{instance}")
    except ValueError:
        raise InvalidArgument(f"unable to parse instanceID {shorten(instance)} of {shorten(text)}") from None


def run_of(wire: peloton_pb2.PodID, name: PodName) -> int:
    """Return the run of a pod id, which must belong to the named pod."""
    try:
        pod_id = PodId.parse(wire.value)
        job_id = parse_job_id(pod_id.job_id)
    except ValueError as error:
        raise InvalidArgument(str(error)) from error
    if (job_id, pod_id.instance_id) != (name.job_id, name.instance_id):
        raise InvalidArgument(f"invalid pod id {quote(wire.value)}: it is not a run of pod {name}")
    if pod_id.run_id > RUN_ID_MAX:
        raise InvalidArgument(f"invalid pod id {quote(wire.value)}: the last run that can be is {RUN_ID_MAX}")
    return pod_id.run_id


def opaque_of(text: str) -> str:
    """Return opaque data. Raises InvalidArgument if it cannot be stored."""
    return check_text("opaque data", text, OPAQUE_BYTES_MAX)


def check_text(what: str, text: str, bytes_max: int) -> str:
    """Return a text of at most ``bytes_max`` bytes. Raises InvalidArgument, naming ``what``."""
    size_bytes = len(text.encode())
    if size_bytes > bytes_max:
        raise InvalidArgument(f"{what} has {size_bytes} bytes, at most {bytes_max} are allowed")
    if "\0" in text:
        raise InvalidArgument(f"{what} contains NUL")
    return text
