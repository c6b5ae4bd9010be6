"""v1alpha WatchService through a running server, over real storage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.api.v1alpha.watch import watch_pb2
from peloton.api.v1alpha.watch.svc import watch_svc_pb2 as svc
from peloton.api.v1alpha.watch.svc.watch_svc_pb2_grpc import WatchServiceStub
from peloton.model.ids import JobId
from peloton.model.job import JobState
from peloton.model.pod import PodState
from services.api.server import start
from services.storage.storage import Storage
from tests.unit.api_service.fakes import RecordedWakes
from tests.unit.api_service.services import ID, create, evolve, spec, version
from tests.unit.api_service.story import JOB, NOW_NS, expect_refusal

Status = grpc.StatusCode
OTHER = "00000000-0000-4000-8000-0000000000aa"
OF_JOBS = watch_pb2.StatelessJobFilter()
OF_PODS = watch_pb2.PodFilter()
WAIT_S = 120.0


@pytest.fixture
def watches(channel: grpc.aio.Channel) -> Any:
    return WatchServiceStub(channel)


async def open_watch(call: Any) -> svc.WatchResponse:
    """Return the first message, after which the watch misses no change."""
    response: svc.WatchResponse = await call.read()
    return response


async def until(call: Any, wanted: Callable[[svc.WatchResponse], bool]) -> list[svc.WatchResponse]:
    """Return the messages up to the first for which ``wanted`` holds."""
    found: list[svc.WatchResponse] = []
    async with asyncio.timeout(WAIT_S):
        while not found or not wanted(found[-1]):
            found.append(await call.read())
    return found


def names(responses: list[svc.WatchResponse]) -> set[str]:
    return {pod.pod_name.value for response in responses for pod in response.pods}


def is_killed(response: svc.WatchResponse) -> bool:
    return any(pod.status.desired_state == pod_pb2.POD_STATE_KILLED for pod in response.pods)


async def test_the_first_message(watches: Any, storage: Storage, running_service: str) -> None:
    """The first message has the id, and the revision after which changes are sent, but no present objects."""
    jobs = watches.Watch(svc.WatchRequest(stateless_job_filter=OF_JOBS))
    pods = watches.Watch(svc.WatchRequest(pod_filter=OF_PODS))
    first, second = await open_watch(jobs), await open_watch(pods)

    assert (first.watch_id.partition("_")[0], second.watch_id.partition("_")[0]) == ("job", "task")
    assert first.revision == second.revision == storage.watch_log.bounds()[1]
    assert not first.stateless_jobs
    assert not second.pods


async def test_a_job_that_changes(watches: Any, v1: Any, running_service: str) -> None:
    """The message has the job's current summary, under a rising revision."""
    call = watches.Watch(svc.WatchRequest(stateless_job_filter=OF_JOBS))
    begin = (await open_watch(call)).revision
    request = stateless_svc_pb2.ReplaceJobRequest(job_id=ID, version=version("1-1-1"), spec=spec(image="web:2"))
    await v1.ReplaceJob(request)
    found = await until(call, lambda r: bool(r.stateless_jobs))

    (summary,) = found[-1].stateless_jobs
    assert (summary.job_id.value, summary.status.version.value) == (JOB, "2-1-2")
    assert summary.status.workflow_status.state == stateless_pb2.WORKFLOW_STATE_INITIALIZED
    assert found[-1].revision > begin
    assert found[-1].watch_id == ""


async def test_pods_that_change(watches: Any, storage: Storage, running_service: str) -> None:
    """Each changed pod has its own message; unchanged ones have none."""
    call = watches.Watch(svc.WatchRequest(pod_filter=watch_pb2.PodFilter(job_id=ID)))
    await open_watch(call)
    storage.pods.set_goals(JOB, [(1, 2)], PodState.KILLED, NOW_NS, "stop")
    found = await until(call, lambda r: r.pods[0].pod_name.value == f"{JOB}-2")

    assert names(found) == {f"{JOB}-1", f"{JOB}-2"}
    assert all(len(response.pods) == 1 and is_killed(response) for response in found)


FILTERS: dict[str, watch_pb2.PodFilter] = {
    "by job": watch_pb2.PodFilter(job_id=peloton_pb2.JobID(value=OTHER)),
    "by name": watch_pb2.PodFilter(pod_names=[peloton_pb2.PodName(value=f"{OTHER}-{i}") for i in range(3)]),
    "by label": watch_pb2.PodFilter(labels=[peloton_pb2.Label(key="color", value="red")]),
    "by two labels": watch_pb2.PodFilter(
        labels=[peloton_pb2.Label(key="color", value="red"), peloton_pb2.Label(key="size", value="large")]
    ),
}


@pytest.mark.parametrize("name", FILTERS)
async def test_pods_are_filtered(watches: Any, v1: Any, storage: Storage, running_service: str, name: str) -> None:
    """A change is sent if all conditions hold; labels match by key and value."""
    wanted = spec()
    del wanted.default_spec.labels[:]
    wanted.default_spec.labels.add(key="color", value="red")
    wanted.default_spec.labels.add(key="size", value="large")
    await create(v1, wanted, OTHER)
    evolve(storage, OTHER)
    call = watches.Watch(svc.WatchRequest(pod_filter=FILTERS[name]))
    await open_watch(call)
    for job_id in (JOB, OTHER):
        storage.pods.set_goals(JobId(job_id), [(0, 3)], PodState.KILLED, NOW_NS, "stop")
    found = await until(call, lambda r: r.pods[0].pod_name.value == f"{OTHER}-2")

    assert names(found) == {f"{OTHER}-{i}" for i in range(3)}


@pytest.mark.parametrize(
    "wanted",
    [
        watch_pb2.StatelessJobFilter(job_ids=[peloton_pb2.JobID(value=OTHER)]),
        watch_pb2.StatelessJobFilter(labels=[peloton_pb2.Label(key="tier", value="bronze")]),
    ],
)
async def test_jobs_are_filtered(
    watches: Any, v1: Any, storage: Storage, running_service: str, wanted: watch_pb2.StatelessJobFilter
) -> None:
    """The filter is by id or by label."""
    other = spec()
    other.labels[0].value = "bronze"
    await create(v1, other, OTHER)
    call = watches.Watch(svc.WatchRequest(stateless_job_filter=wanted))
    await open_watch(call)
    storage.jobs.set_service_goal(JOB, None, JobState.KILLED, False, NOW_NS)
    storage.jobs.set_service_goal(JobId(OTHER), None, JobState.KILLED, False, NOW_NS)
    found = await until(call, lambda r: bool(r.stateless_jobs))

    assert [summary.job_id.value for response in found for summary in response.stateless_jobs] == [OTHER]


async def test_the_pod_filter_wins(watches: Any, storage: Storage, running_service: str) -> None:
    """The pod filter applies if both are given."""
    call = watches.Watch(svc.WatchRequest(pod_filter=OF_PODS, stateless_job_filter=OF_JOBS))

    assert (await open_watch(call)).watch_id.startswith("task_")


async def test_batch_jobs_are_not_watched(watches: Any, v1: Any, storage: Storage, job: JobId) -> None:
    """The watch sends changes of services only."""
    call = watches.Watch(svc.WatchRequest(stateless_job_filter=OF_JOBS))
    await open_watch(call)
    storage.jobs.set_goal(job, JobState.KILLED, NOW_NS)
    await create(v1, spec(), OTHER)
    found = await until(call, lambda r: bool(r.stateless_jobs))

    assert [s.job_id.value for response in found for s in response.stateless_jobs] == [OTHER]


async def test_what_is_gone(watches: Any, v1: Any, storage: Storage, running_service: str) -> None:
    """A pod that an update removed is named, even if the filter is by labels."""
    wanted = watch_pb2.PodFilter(labels=[peloton_pb2.Label(key="color", value="blue")])
    call = watches.Watch(svc.WatchRequest(pod_filter=wanted))
    await open_watch(call)
    request = stateless_svc_pb2.ReplaceJobRequest(job_id=ID, version=version("1-1-1"), spec=spec(2))
    await v1.ReplaceJob(request)
    evolve(storage)
    found = await until(call, lambda r: bool(r.pods_not_found))

    assert [wire.value for wire in found[-1].pods_not_found] == [f"{JOB}-2"]


async def test_resume(watches: Any, storage: Storage, running_service: str) -> None:
    """The watch first sends each object that changed since the revision once, in its current state, then later
    changes."""
    begin = storage.watch_log.bounds()[1]
    for goal in (PodState.KILLED, PodState.RUNNING, PodState.KILLED):
        storage.pods.set_goals(JOB, [(0, 2)], goal, NOW_NS, "change")
    call = watches.Watch(svc.WatchRequest(pod_filter=OF_PODS, start_revision=begin))
    first = await open_watch(call)
    earlier = await until(call, lambda r: r.revision == storage.watch_log.bounds()[1])
    storage.pods.set_goals(JOB, [(2, 1)], PodState.KILLED, NOW_NS, "stop")
    later = await until(call, lambda r: r.pods[0].pod_name.value == f"{JOB}-2")

    assert first.revision == begin
    assert [response.pods[0].pod_name.value for response in earlier] == [f"{JOB}-0", f"{JOB}-1"]
    assert all(is_killed(response) for response in earlier)
    assert len(later) == 1


@pytest.mark.parametrize("age", ["old", "new"])
async def test_resume_from_nowhere(watches: Any, storage: Storage, running_service: str, age: str) -> None:
    """A revision older than the log or not reached yet is refused with both numbers."""
    newest = storage.watch_log.bounds()[1]
    storage.watch_log.prune(newest - 2)
    revision, text = {
        "old": (
            newest - 3,
            f"revision {newest - 3} is too old to resume from: changes from {newest - 1} on are kept; list the "
            f"present state, and watch from now on",
        ),
        "new": (newest + 1, f"revision {newest + 1} does not exist yet: the newest is {newest}"),
    }[age]
    call = watches.Watch(svc.WatchRequest(pod_filter=OF_PODS, start_revision=revision))

    assert await expect_refusal(call.read()) == (Status.OUT_OF_RANGE, text)


async def test_the_oldest_that_is_kept(watches: Any, storage: Storage, running_service: str) -> None:
    """The revision before the oldest change is valid, even if the log is empty."""
    newest = storage.watch_log.bounds()[1]
    storage.watch_log.prune(newest)
    call = watches.Watch(svc.WatchRequest(pod_filter=OF_PODS, start_revision=newest))

    assert (await open_watch(call)).revision == newest


REFUSALS: dict[str, tuple[svc.WatchRequest, str]] = {
    "no filter": (svc.WatchRequest(), "not supported watch type"),
    "no job": (
        svc.WatchRequest(pod_filter=watch_pb2.PodFilter(job_id=peloton_pb2.JobID(value="web"))),
        "JobID must be of UUID format",
    ),
    "too many pods": (
        svc.WatchRequest(pod_filter=watch_pb2.PodFilter(pod_names=[peloton_pb2.PodName()] * 10_001)),
        "the filter names 10001 pods, at most 10000 are allowed",
    ),
    "no pod": (
        svc.WatchRequest(pod_filter=watch_pb2.PodFilter(pod_names=[peloton_pb2.PodName(value="web-1")])),
        "invalid pelotonTaskID web-1",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_refusals(watches: Any, name: str) -> None:
    """A watch whose filter can match nothing is refused."""
    request, text = REFUSALS[name]

    assert await expect_refusal(watches.Watch(request).read()) == (Status.INVALID_ARGUMENT, text)


@pytest.mark.parametrize(
    "request_", [svc.WatchRequest(pod_filter=OF_PODS), svc.WatchRequest(stateless_job_filter=OF_JOBS)]
)
async def test_cancel(watches: Any, request_: svc.WatchRequest) -> None:
    """A watch of either kind ends by its id, which is unknown afterwards."""
    call = watches.Watch(request_)
    watch_id = (await open_watch(call)).watch_id
    await watches.Cancel(svc.CancelRequest(watch_id=watch_id))

    assert await expect_refusal(call.read()) == (Status.CANCELLED, f"watch cancelled: {watch_id}")
    kind = watch_id.partition("_")[0]
    assert await expect_refusal(watches.Cancel(svc.CancelRequest(watch_id=watch_id))) == (
        Status.NOT_FOUND,
        f"watch_id {watch_id} not exist for {kind} watch client",
    )


async def test_cancel_of_nothing(watches: Any) -> None:
    """An id of an unknown kind is invalid."""
    assert await expect_refusal(watches.Cancel(svc.CancelRequest(watch_id="web_1"))) == (
        Status.NOT_FOUND,
        "invalid watch id",
    )


async def test_the_server_stops(storage: Storage, wakes: RecordedWakes) -> None:
    """The server's stop ends watches at once, and they may be resumed at another server."""
    server = await start(storage, wakes, lambda _: None, "127.0.0.1:0")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub: Any = WatchServiceStub(channel)
        call = stub.Watch(svc.WatchRequest(pod_filter=OF_PODS))
        watch_id = (await open_watch(call)).watch_id
        async with asyncio.timeout(WAIT_S):
            await server.stop(WAIT_S)

        assert await expect_refusal(call.read()) == (
            Status.UNAVAILABLE,
            f"the api stops: resume watch {watch_id} after the last revision seen",
        )
