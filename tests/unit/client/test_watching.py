"""Watches of both clients: they resume, list where they must, and deliver each change once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest

from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.api.v1alpha.watch.svc import watch_svc_pb2 as svc
from peloton.client import AsyncClient, Client, RetryPolicy
from peloton.errors import Reason
from tests.present import require
from tests.unit.cli.fake_api import FakeApi, because

JOB = "4bc52ca5-1a2b-4a3f-9fd9-4b1a0b1fbb6e"
CANCELLED = (grpc.StatusCode.CANCELLED, "watch cancelled: pod_1")
AWAY = (grpc.StatusCode.UNAVAILABLE, "api is not there")
OVERFLOW = because(Reason.WATCH_OVERFLOW, grpc.StatusCode.ABORTED, "event overflow: pod_1")
TOO_OLD = (grpc.StatusCode.OUT_OF_RANGE, "revision 7 is too old to resume from: changes from 100 on are kept")
both = pytest.mark.parametrize("kind", [Client, AsyncClient])

Seen = list[tuple[int, list[str], list[str], bool]]


def begin(revision: int) -> svc.WatchResponse:
    return svc.WatchResponse(watch_id="pod_1", revision=revision)


def pod(instance: int) -> pod_pb2.PodSummary:
    return pod_pb2.PodSummary(pod_name=peloton_pb2.PodName(value=f"{JOB}-{instance}"))


def change(revision: int, instance: int = 0) -> svc.WatchResponse:
    return svc.WatchResponse(revision=revision, pods=[pod(instance)])


def listing(*instances: int) -> list[Any]:
    return [stateless_svc_pb2.ListPodsResponse(pods=[pod(instance)]) for instance in instances]


async def collect(
    kind: type[Any], api: FakeApi, since: int = 0, what: str = "watch_pods"
) -> tuple[Seen, str, list[float]]:
    """Return what the watch delivers until its error, the error, and the waits in seconds."""
    slept: list[float] = []
    policy = RetryPolicy(away_s=100, clock=lambda: sum(slept), chance=lambda: 0.0)
    seen: Seen = []

    def note(changes: Any) -> None:
        names = [getattr(each, "pod_name", None) or each.job_id for each in changes.changed]
        seen.append((changes.revision, [name.value[-1] for name in names], changes.gone, changes.is_all))

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    arguments: tuple[Any, ...] = (JOB,) if what == "watch_pods" else ((),)
    options = {"since": since, "policy": policy} | ({"labels": {"stage": "test"}} if what == "watch_jobs" else {})
    try:
        if kind is Client:
            with Client(api.address, retry=policy, sleep=slept.append) as client:
                found: Iterator[Any] = getattr(client, what)(*arguments, **options)
                for changes in found:
                    note(changes)
        async with AsyncClient(api.address, retry=policy, sleep=sleep) as async_client:
            coming: AsyncIterator[Any] = getattr(async_client, what)(*arguments, **options)
            async for changes in coming:
                note(changes)
    except grpc.RpcError as error:
        return seen, require(error.details()), slept
    raise AssertionError("a watch ends with an error")


@both
async def test_all_pods_and_then_changes(api: FakeApi, kind: type[Any]) -> None:
    """The list is read after the watch has begun, so that no change is between them."""
    gone = svc.WatchResponse(revision=9, pods_not_found=[peloton_pb2.PodName(value=f"{JOB}-1")])
    api.answers["watches.Watch"] = [[begin(5), change(7), gone, CANCELLED]]
    api.answers["services.ListPods"] = [listing(0, 1)]

    seen, error, _ = await collect(kind, api)

    assert [(5, ["0", "1"], [], True), (7, ["0"], [], False), (9, [], [f"{JOB}-1"], False)] == seen
    assert error == CANCELLED[1]
    assert ["watches.Watch", "services.ListPods"] == [call.method for call in api.calls]
    assert JOB == api.requests("services.ListPods")[0].job_id.value


@both
@pytest.mark.parametrize("end", [AWAY, OVERFLOW], ids=["away", "overflow"])
async def test_a_cut_watch_resumes(api: FakeApi, kind: type[Any], end: Any) -> None:
    """The watch resumes after the last revision; what comes a second time is not delivered again."""
    streams: list[Any] = [[begin(5), change(7), end], AWAY, [begin(7), change(7), change(8, 1), CANCELLED]]
    api.answers["watches.Watch"] = streams
    api.answers["services.ListPods"] = [listing(0)]

    seen, _, slept = await collect(kind, api)

    assert [(5, ["0"], [], True), (7, ["0"], [], False), (7, [], [], False), (8, ["1"], [], False)] == seen
    assert [0, 7, 7] == [request.start_revision for request in api.requests("watches.Watch")]
    assert [0.25, 0.5] == slept


@both
async def test_a_cut_before_the_first_revision(api: FakeApi, kind: type[Any]) -> None:
    """A watch that began without a revision is listed again: changes while it was cut off are in no stream."""
    api.answers["watches.Watch"] = [[begin(0), AWAY], [begin(3), CANCELLED]]
    api.answers["services.ListPods"] = [listing(0), listing(0, 1)]

    seen, _, _ = await collect(kind, api)

    assert [(0, ["0"], [], True), (3, ["0", "1"], [], True)] == seen


@both
async def test_it_continues_where_the_caller_was(api: FakeApi, kind: type[Any]) -> None:
    """A watch from a revision begins without a list, unless the changes after it are not kept any more."""
    streams: list[Any] = [[begin(7), change(8), AWAY], TOO_OLD, [begin(120), change(121), CANCELLED]]
    api.answers["watches.Watch"] = streams
    api.answers["services.ListPods"] = [listing(3)]

    seen, _, _ = await collect(kind, api, since=7)

    assert [(7, [], [], False), (8, ["0"], [], False), (120, ["3"], [], True), (121, ["0"], [], False)] == seen
    assert [7, 8, 0] == [request.start_revision for request in api.requests("watches.Watch")]


@both
async def test_a_list_that_breaks_off(api: FakeApi, kind: type[Any]) -> None:
    """The list is read again, from its beginning."""
    broken: list[Any] = [*listing(0), AWAY]
    api.answers["watches.Watch"] = [[begin(5), CANCELLED]]
    api.answers["services.ListPods"] = [broken, listing(0, 1)]

    seen, _, _ = await collect(kind, api)

    assert [(5, ["0", "1"], [], True)] == seen


@both
async def test_a_watch_fails_after_a_long_outage(api: FakeApi, kind: type[Any]) -> None:
    """The error of a long outage is raised."""
    api.answers["watches.Watch"] = [[begin(5), AWAY], AWAY]
    api.answers["services.ListPods"] = [listing()]

    _, error, slept = await collect(kind, api)

    assert error == AWAY[1]
    assert 100 < sum(slept) < 110


@both
async def test_services_with_labels(api: FakeApi, kind: type[Any]) -> None:
    """The list has the services that the filter of the watch lets through."""
    found = [stateless_pb2.JobSummary(job_id=peloton_pb2.JobID(value=f"job-{number}")) for number in range(3)]
    found[1].labels.add(key="stage", value="test")
    found[2].labels.add(key="stage", value="prod")
    gone = svc.WatchResponse(revision=6, stateless_jobs_not_found=[peloton_pb2.JobID(value="job-1")])
    api.answers["watches.Watch"] = [[begin(5), gone, CANCELLED]]
    api.answers["services.ListJobs"] = [[stateless_svc_pb2.ListJobsResponse(jobs=found)]]

    seen, _, _ = await collect(kind, api, what="watch_jobs")

    assert [(5, ["1"], [], True), (6, [], ["job-1"], False)] == seen
    wanted = api.requests("watches.Watch")[0].stateless_job_filter
    assert [("stage", "test")] == [(label.key, label.value) for label in wanted.labels]
