"""Watches that resume after the last revision that was delivered. The state is here, the streams are the clients'."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import grpc

from peloton.api.error_details import reason_of
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.api.v1alpha.watch.svc import watch_svc_pb2
from peloton.client.repeats import WATCH_POLICY, Outage, RetryPolicy, is_away
from peloton.client.steps import Call
from peloton.errors import Reason

OVERFLOW = (Reason.WATCH_OVERFLOW, "")
"""Reasons of ABORTED for which a watch resumes; servers up to 0.1 give none."""

T = TypeVar("T")


@dataclass
class Resumption:
    """State of one watch, by which it resumes after an interruption.

    A watch is interrupted by an outage, or by the server when its client reads too slowly. It resumes after the last
    delivered revision; it fails when an outage lasts longer than ``policy.away_s``, or ``first_policy.away_s`` before
    its first message. With ``lists``, a watch whose revision has expired lists all objects again. ``policy.say``
    receives a text at each interruption and resumption.
    """

    request: watch_svc_pb2.WatchRequest
    first_policy: RetryPolicy
    policy: RetryPolicy = WATCH_POLICY
    lists: bool = False
    watch_id: str = ""
    cut: str = ""

    def __post_init__(self) -> None:
        given, self.request = self.request, watch_svc_pb2.WatchRequest()
        self.request.CopyFrom(given)  # a caller may use its request again
        self.must_list = self.lists and not self.request.start_revision
        self.outage = Outage(self.first_policy)

    def note(self, message: watch_svc_pb2.WatchResponse) -> bool:
        """Process a message of the stream; return whether it is new."""
        if self.cut:
            # An API that does not count, like the original's, cannot say what it has not sent.
            counts = self.request.start_revision or self.must_list
            self.policy.say(
                "the watch resumes where it was" if counts else "the watch resumes; changes in between are not known"
            )
        self.outage, self.cut = Outage(self.policy), ""
        if message.watch_id:
            self.watch_id = message.watch_id
        elif 0 < message.revision <= self.request.start_revision:
            return False
        self.request.start_revision = max(self.request.start_revision, message.revision)
        return True

    def next_wait_s(self, error: Any) -> float | None:
        """Return the seconds until the stream is opened again; None: the error is final."""
        if error.code() is grpc.StatusCode.OUT_OF_RANGE and self.lists and self.request.start_revision:
            self.request.start_revision, self.must_list = 0, True
            return 0.0
        if not is_away(error) and not (self.watch_id and is_overflow(error)):
            return None
        if not self.request.start_revision:  # no change had a revision yet: the next stream begins with later ones
            self.must_list = self.lists
        wait_s = self.outage.next_wait_s()
        if wait_s is not None and not self.cut and self.watch_id:
            self.cut = f"{error.details()} ({error.code().name})"
            text = f"the watch was cut off: {self.cut}; resuming after revision {self.request.start_revision}"
            self.policy.say(text)
        return wait_s


def is_overflow(error: Any) -> bool:
    return error.code() is grpc.StatusCode.ABORTED and reason_of(error) in OVERFLOW


@dataclass(frozen=True)
class Changes(Generic[T]):
    """Changes that a watch delivers together.

    ``changed`` has objects in their current state, ``gone`` the ids or names of deleted ones. With ``is_all`` the list
    is complete: other objects that the caller knows were deleted. Changes without an object mark the start of the
    watch, or its resumption. A later watch resumes after ``revision``.
    """

    revision: int
    changed: list[T]
    gone: list[str] = field(default_factory=list)
    is_all: bool = False


@dataclass(frozen=True)
class PodSelection:
    """The pods of one service."""

    job_id: str

    def request(self, since: int) -> watch_svc_pb2.WatchRequest:
        request = watch_svc_pb2.WatchRequest(start_revision=since)
        request.pod_filter.job_id.value = self.job_id
        return request

    @property
    def listing(self) -> Call:
        request = stateless_svc_pb2.ListPodsRequest(job_id=peloton_pb2.JobID(value=self.job_id))
        return Call("services", "ListPods", request, is_stream=True)

    def select(self, answers: Iterable[stateless_svc_pb2.ListPodsResponse]) -> list[pod_pb2.PodSummary]:
        return [pod for answer in answers for pod in answer.pods]

    def changes(self, message: watch_svc_pb2.WatchResponse) -> Changes[pod_pb2.PodSummary]:
        return Changes(message.revision, list(message.pods), [name.value for name in message.pods_not_found])


@dataclass(frozen=True)
class JobSelection:
    """Services with one of the ids, or any without ids, that have all of the labels."""

    job_ids: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    def request(self, since: int) -> watch_svc_pb2.WatchRequest:
        request = watch_svc_pb2.WatchRequest(start_revision=since)
        wanted = request.stateless_job_filter
        wanted.SetInParent()
        wanted.job_ids.extend(peloton_pb2.JobID(value=job_id) for job_id in self.job_ids)
        wanted.labels.extend(peloton_pb2.Label(key=key, value=value) for key, value in self.labels.items())
        return request

    @property
    def listing(self) -> Call:
        return Call("services", "ListJobs", stateless_svc_pb2.ListJobsRequest(services_only=True), is_stream=True)

    def select(self, answers: Iterable[stateless_svc_pb2.ListJobsResponse]) -> list[stateless_pb2.JobSummary]:
        return [job for answer in answers for job in answer.jobs if self._has(job)]

    def _has(self, job: stateless_pb2.JobSummary) -> bool:
        labels = {label.key: label.value for label in job.labels}
        return (not self.job_ids or job.job_id.value in self.job_ids) and self.labels.items() <= labels.items()

    def changes(self, message: watch_svc_pb2.WatchResponse) -> Changes[stateless_pb2.JobSummary]:
        gone = [job_id.value for job_id in message.stateless_jobs_not_found]
        return Changes(message.revision, list(message.stateless_jobs), gone)


Selection = PodSelection | JobSelection


def changes_of(
    watch: Resumption, selection: Selection, message: watch_svc_pb2.WatchResponse, listed: list[Any] | None
) -> Changes[Any]:
    """Return the changes in a message. ``listed``: the objects, if they were listed after it."""
    if listed is None:
        return selection.changes(message)
    watch.must_list = False
    return Changes(message.revision, selection.select(listed), is_all=True)
