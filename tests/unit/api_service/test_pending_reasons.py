"""Reasons of waiting pods: the api requests them from the resource manager."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api import convert
from peloton.api.service_names import EXPLAIN_SERVICE, add_under_all_names
from peloton.api.v0.explain import explain_pb2 as pb
from peloton.api.v0.job import job_pb2
from peloton.api.v0.short_names.job_pb2_grpc import JobManagerStub
from peloton.api.v0.short_names.task_pb2_grpc import TaskManagerStub
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.api.v1alpha.job.stateless.svc.stateless_svc_pb2_grpc import JobServiceStub
from peloton.api.v1alpha.pod import pod_pb2
from peloton.api.v1alpha.pod.svc import pod_svc_pb2
from peloton.api.v1alpha.pod.svc.pod_svc_pb2_grpc import PodServiceStub
from peloton.model.ids import JobId
from peloton.model.update import UpdateSpec
from services.api.pending_reasons import PendingReasons, Reasons
from services.api.server import start
from services.storage.storage import Storage
from tests.conformance.storage.services import service_config
from tests.unit.api_service.fakes import RecordedWakes
from tests.unit.api_service.story import ID, JOB, NOW_NS

V1_ID = peloton_pb2.JobID(value=JOB)
NO_HOST = "admitted, but 1 pod without a host (2 hosts: pods with service=web < 1 not met)"
AT_LIMIT = "pool /eng/maps is at its limit of 12 cpu"


class Explain:
    """A resource manager that explains one job, or fails with ``status`` if it is set."""

    def __init__(self) -> None:
        self.asked = 0
        self.status: grpc.StatusCode | None = None

    async def JobWhy(self, request: pb.JobWhyRequest, context: Any) -> pb.JobWhyResponse:
        self.asked += 1
        if self.status is not None:
            await context.abort(self.status, "not now")
        answer = pb.JobWhyResponse(jobId=request.jobId)
        answer.waiting.add(firstInstance=1, gangCount=2, gangSize=1).reason.text = AT_LIMIT
        answer.reasons.add(rule=pb.RULE_NO_HOST, text=NO_HOST)
        return answer

    async def PoolWhy(self, request: Any, context: Any) -> Any:
        raise AssertionError("nobody asks for that")

    PoolTree = PoolPlan = JobPlan = PoolWhy


@pytest.fixture
def explain() -> Explain:
    return Explain()


@pytest.fixture
async def channel(explain: Explain, storage: Storage) -> AsyncIterator[grpc.aio.Channel]:
    """Return a channel to an api over a service with a READY, a PENDING and an INITIALIZED instance."""
    record = convert.new_job_record(JOB, service_config(3), NOW_NS)
    storage.updates.create_service(record, service_config(3), b"", UpdateSpec(), "", NOW_NS)
    storage.updates.advance(JOB, NOW_NS)
    storage.admission.mark_pending(JOB, [(0, 2)], 1)
    storage.admission.mark_ready([(JOB, 0, 1)])
    resmgr = grpc.aio.server()
    add_under_all_names(resmgr, explain, EXPLAIN_SERVICE)
    address = f"127.0.0.1:{resmgr.add_insecure_port('127.0.0.1:0')}"
    await resmgr.start()
    wakes = RecordedWakes()
    api = await start(storage, wakes, lambda role: address if role == "resmgr" else None, "127.0.0.1:0")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{api.port}") as channel:
        yield channel
    await api.stop(0)
    await resmgr.stop(None)


REPORTED = {0: NO_HOST, 1: AT_LIMIT, 2: ""}


async def test_v1alpha(channel: grpc.aio.Channel) -> None:
    """Each call about pods has the reason; a pod that is not queued yet has none."""
    pods: Any = PodServiceStub(channel)
    jobs: Any = JobServiceStub(channel)
    name = peloton_pb2.PodName(value=f"{JOB}-0")
    one = await pods.GetPod(pod_svc_pb2.GetPodRequest(pod_name=name, status_only=True))
    cached = await pods.GetPodCache(pod_svc_pb2.GetPodCacheRequest(pod_name=name))
    listed = [
        pod async for answer in jobs.ListPods(stateless_svc_pb2.ListPodsRequest(job_id=V1_ID)) for pod in answer.pods
    ]
    queried = await jobs.QueryPods(stateless_svc_pb2.QueryPodsRequest(job_id=V1_ID))

    assert (one.current.status.reason, cached.status.reason) == (NO_HOST, NO_HOST)
    assert {int(pod.pod_name.value[-1]): pod.status.reason for pod in listed} == REPORTED
    assert {int(info.spec.pod_name.value[-1]): info.status.reason for info in queried.pods} == REPORTED


async def test_v0(channel: grpc.aio.Channel) -> None:
    """The v0 calls have the same reasons."""
    tasks: Any = TaskManagerStub(channel)
    one = await tasks.Get(task_pb2.GetRequest(jobId=ID, instanceId=0))
    listed = (await tasks.List(task_pb2.ListRequest(jobId=ID))).result.value
    queried = (await tasks.Query(task_pb2.QueryRequest(jobId=ID))).records

    assert one.result.runtime.reason == NO_HOST
    assert {instance: info.runtime.reason for instance, info in listed.items()} == REPORTED
    assert {info.instanceId: info.runtime.reason for info in queried} == REPORTED


async def test_who_is_admitted_is_pending_in_v0(channel: grpc.aio.Channel, storage: Storage) -> None:
    """States, counts and events show it as PENDING; a filter for PENDING finds it, and one for READY finds it alone."""
    storage.jobs.settle(JOB, NOW_NS)
    tasks, jobs = TaskManagerStub(channel), JobManagerStub(channel)

    def make_query(*states: task_pb2.TaskState.ValueType) -> task_pb2.QueryRequest:
        return task_pb2.QueryRequest(jobId=ID, spec=task_pb2.QuerySpec(taskStates=states))

    listed = (await tasks.List(task_pb2.ListRequest(jobId=ID))).result.value
    cached = await tasks.GetCache(task_pb2.GetCacheRequest(jobId=ID, instanceId=0))
    reported = (await jobs.Get(job_pb2.GetRequest(id=ID))).jobInfo.runtime
    events = (await tasks.GetPodEvents(task_pb2.GetPodEventsRequest(jobId=ID, instanceId=0))).result
    found = [(await tasks.Query(make_query(state))).records for state in (task_pb2.PENDING, task_pb2.READY)]
    both = (await tasks.Query(make_query(task_pb2.PENDING, task_pb2.READY))).records

    assert [2, 2, 1] == [listed[i].runtime.state for i in range(3)]
    assert (task_pb2.PENDING, convert.ADMITTED_REASON) == (cached.runtime.state, cached.runtime.reason)
    assert (2, 0, 1) == tuple(reported.taskStats[state] for state in ("PENDING", "READY", "INITIALIZED"))
    assert {"PENDING": 2, "INITIALIZED": 1} == dict(reported.taskStatsByConfigurationVersion[1].stateStats)
    assert ["PENDING", "PENDING", "INITIALIZED"] == [event.actualState for event in events]
    assert [convert.ADMITTED_REASON, "", ""] == [event.reason for event in events]
    assert [[0, 1], [0]] == [[info.instanceId for info in one] for one in found]
    assert [0, 1] == [info.instanceId for info in both]


async def test_who_is_admitted_is_pending_in_v1alpha(channel: grpc.aio.Channel, storage: Storage) -> None:
    """The v1alpha calls show the same."""
    storage.jobs.settle(JOB, NOW_NS)
    pods: Any = PodServiceStub(channel)
    jobs: Any = JobServiceStub(channel)

    async def list_named(*states: pod_pb2.PodState.ValueType) -> list[int]:
        spec = pod_pb2.QuerySpec(pod_states=states)
        answer = await jobs.QueryPods(stateless_svc_pb2.QueryPodsRequest(job_id=V1_ID, spec=spec))
        return [int(info.spec.pod_name.value[-1]) for info in answer.pods]

    queried = (await jobs.QueryPods(stateless_svc_pb2.QueryPodsRequest(job_id=V1_ID))).pods
    status = (await jobs.GetJob(stateless_svc_pb2.GetJobRequest(job_id=V1_ID))).job_info.status
    name = peloton_pb2.PodName(value=f"{JOB}-0")
    events = (await pods.GetPodEvents(pod_svc_pb2.GetPodEventsRequest(pod_name=name))).events

    assert [2, 2, 1] == [info.status.state for info in queried]
    stats = {state: count for state, count in status.pod_stats.items() if count}
    assert {"POD_STATE_PENDING": 2, "POD_STATE_INITIALIZED": 1} == stats
    assert "POD_STATE_READY" in status.pod_stats
    assert stats == dict(status.pod_stats_by_configuration_version["1-0-0"].state_stats)
    assert ["POD_STATE_PENDING", "POD_STATE_PENDING", "POD_STATE_INITIALIZED"] == [e.actual_state for e in events]
    assert [[0, 1], [0]] == [await list_named(pod_pb2.POD_STATE_PENDING), await list_named(pod_pb2.POD_STATE_READY)]


async def test_an_answer_serves_for_a_while(channel: grpc.aio.Channel, explain: Explain) -> None:
    """An answer is reused for a while, and a resource manager without an answer is not an error."""
    pods: Any = PodServiceStub(channel)
    request = pod_svc_pb2.GetPodRequest(pod_name=peloton_pb2.PodName(value=f"{JOB}-0"), status_only=True)
    explain.status = grpc.StatusCode.UNAVAILABLE
    answers = [await pods.GetPod(request) for _ in range(3)]

    assert [answer.current.status.reason for answer in answers] == [convert.ADMITTED_REASON] * 3
    assert explain.asked < 3


async def test_answers_grow_old_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer is requested again after two seconds; the cache has a bounded number of jobs."""
    now_s = 0.0
    channels: Any = None  # every request is answered here
    reasons = PendingReasons(channels, lambda: now_s)
    asked: list[str] = []

    async def ask(job_id: str) -> Reasons:
        asked.append(job_id)
        return Reasons(admitted=NO_HOST)

    monkeypatch.setattr(reasons, "_ask", ask)
    monkeypatch.setattr("services.api.pending_reasons.JOBS_MAX", 2)
    for job_id in ("a", "a", "b", "c", "a"):
        await reasons.of_job(JobId(job_id))
    now_s = 2.0
    await reasons.of_job(JobId("a"))

    assert asked == ["a", "b", "c", "a", "a"]
