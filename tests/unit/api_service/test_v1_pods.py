"""v1alpha PodService over real storage."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from peloton.api.private import hostmgr_pb2
from peloton.api.v0 import peloton_pb2 as v0_peloton_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.api.v1alpha.pod.svc import pod_svc_pb2 as svc
from peloton.model.ids import JobId, PodId
from peloton.model.job import JobState
from peloton.model.pod import ContainerState, ContainerStatus, PodState, PodStatus, TerminationReason
from services.storage.storage import Storage
from tests.unit.api_service.conftest import add_running_service
from tests.unit.api_service.fakes import OneSandbox, RecordedWakes
from tests.unit.api_service.services import ID, UNKNOWN, create, evolve, spec, version
from tests.unit.api_service.story import JOB, NOW_NS, expect_refusal, report
from tests.unit.api_service.story import end as end_job

Status = grpc.StatusCode
NO_JOB = f"code:not-found message:job:{UNKNOWN.value} not found"
NOT_PRESENT = "pod not present in cache, please retry action"


def pod(instance: object, job: str = JOB) -> peloton_pb2.PodName:
    return peloton_pb2.PodName(value=f"{job}-{instance}")


def pod_id(instance: int, run: object) -> peloton_pb2.PodID:
    return peloton_pb2.PodID(value=f"{JOB}-{instance}-{run}")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def service_database(database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a template of which one instance may be unavailable."""
    wanted = spec()
    wanted.sla.maximum_unavailable_instances = 1
    return await add_running_service(Path(shutil.copy(database, tmp_path_factory.mktemp("service"))), wanted)


async def test_stop_and_start(pods: Any, storage: Storage, wakes: RecordedWakes, running_service: str) -> None:
    """The goal of one pod changes and all others stay; both calls may be repeated."""
    for _ in range(2):
        await pods.StopPod(svc.StopPodRequest(pod_name=pod(1)))
    stopped = [p.goal for p in storage.pods.page(JOB)]
    for _ in range(2):
        await pods.StartPod(svc.StartPodRequest(pod_name=pod(1)))

    assert stopped == [PodState.RUNNING, PodState.KILLED, PodState.RUNNING]
    assert [p.goal for p in storage.pods.page(JOB)] == [PodState.RUNNING] * 3
    assert storage.pods.page(JOB)[1].message == "PodSVC.StartPod request"
    assert wakes.changed == [JOB] * 4


async def test_several_containers(v1: Any, pods: Any, tasks: Any, storage: Storage, hosts: OneSandbox) -> None:
    """Each container is answered as its host reported it, in v1alpha and v0; before a report the pod's state counts
    for all."""
    hosts.cluster_kinds = frozenset({"kubernetes"})
    wanted = spec(1)
    wanted.default_spec.containers.add(name="proxy", image="proxy:1").entrypoint.value = "proxy"
    wanted.default_spec.init_containers.add(name="setup", image="setup:1").entrypoint.value = "make"
    await create(v1, wanted)
    evolve(storage)
    found = (
        ContainerStatus("setup", ContainerState.SUCCEEDED, True, started_ns=10**9, completed_ns=2 * 10**9),
        ContainerStatus("main", ContainerState.RUNNING),
        ContainerStatus("proxy", ContainerState.FAILED, reason="Error", exit_code=4),
    )
    run = storage.pods.page(JOB)[0].run_id
    status = PodStatus(PodId(JOB, 0, run), PodState.RUNNING, NOW_NS, containers=found)
    storage.host_pods.apply_status([status], "main")

    for status_only in (True, False):
        answer = await pods.GetPod(svc.GetPodRequest(pod_name=pod(0), status_only=status_only))
        reported = answer.current.status
        assert [("setup", pod_pb2.CONTAINER_STATE_SUCCEEDED)] == [
            (c.name, c.state) for c in reported.init_containers_status
        ]
        assert [("main", 0), ("proxy", 4)] == [
            (c.name, c.terminationStatus.exit_code) for c in reported.containers_status
        ]
    v0 = await tasks.Get(task_pb2.GetRequest(jobId=v0_peloton_pb2.JobID(value=JOB), instanceId=0))
    assert [("setup", "SUCCEEDED", True), ("main", "RUNNING", False), ("proxy", "FAILED", False)] == [
        (container.name, container.state, container.init) for container in v0.result.runtime.containers
    ]


async def test_restart(pods: Any, storage: Storage, wakes: RecordedWakes, running_service: str) -> None:
    """The pod has a newer desired run, regardless of the SLA."""
    for instance in (1, 2):
        await pods.RestartPod(svc.RestartPodRequest(pod_name=pod(instance)))
    wanted = storage.pods.page(JOB)[2]

    assert wanted.desired_run_id == wanted.run_id + 1
    assert wanted.termination is not None
    assert wanted.termination.reason is TerminationReason.KILLED_FOR_RESTART
    assert wakes.changed == [JOB, JOB]


async def test_restart_under_the_sla(pods: Any, storage: Storage, running_service: str) -> None:
    """The SLA permits one unavailable pod; the restart of a second one is refused."""
    await pods.RestartPod(svc.RestartPodRequest(pod_name=pod(0), check_sla=True))
    code, text = await expect_refusal(pods.RestartPod(svc.RestartPodRequest(pod_name=pod(1), check_sla=True)))
    first, second, _ = storage.pods.page(JOB)

    assert (code, str(text).partition(": ")[0]) == (Status.ABORTED, "pod restart would violate SLA")
    assert first.termination is not None
    assert first.termination.reason is TerminationReason.KILLED_FOR_SLA_AWARE_RESTART
    assert second.desired_run_id == second.run_id


async def test_restart_of_a_pod_that_ended(pods: Any, storage: Storage, running_service: str) -> None:
    """A pod in backoff after its end runs again at once, although there is nothing to stop."""
    report(storage, 0, PodState.FAILED)
    await pods.RestartPod(svc.RestartPodRequest(pod_name=pod(0), check_sla=True))
    storage.jobs.settle(JOB, NOW_NS)

    assert storage.pods.page(JOB)[0].state is PodState.INITIALIZED


async def test_get(pods: Any, storage: Storage, running_service: str) -> None:
    """The answer has the current run with its spec, and earlier runs by their newest event; the limit includes the
    current one."""
    report(storage, 0, PodState.FAILED, message="broken")
    storage.pods.want_new_runs(JOB, [(0, 1)])
    storage.jobs.settle(JOB, NOW_NS)
    every = await pods.GetPod(svc.GetPodRequest(pod_name=pod(0)))
    one = await pods.GetPod(svc.GetPodRequest(pod_name=pod(0), limit=1))
    bare = await pods.GetPod(svc.GetPodRequest(pod_name=pod(0), status_only=True))

    assert every.current.status.pod_id.value == f"{JOB}-0-2"
    assert every.current.spec.containers[0].image == "web:1"
    assert [info.status.pod_id.value for info in every.previous] == [f"{JOB}-0-1"]
    assert every.previous[0].status.state == pod_pb2.POD_STATE_FAILED
    assert every.previous[0].spec.containers[0].image == "web:1"
    assert list(one.previous) == []
    assert not bare.current.HasField("spec")
    assert not bare.previous[0].HasField("spec")


async def test_events(pods: Any, storage: Storage, running_service: str) -> None:
    """The events are of the latest run, or of a named one, in reverse order of time; an unknown pod has none."""
    latest = await pods.GetPodEvents(svc.GetPodEventsRequest(pod_name=pod(0)))
    named = await pods.GetPodEvents(svc.GetPodEventsRequest(pod_name=pod(0), pod_id=pod_id(0, 1)))
    none = await pods.GetPodEvents(svc.GetPodEventsRequest(pod_name=pod(0, UNKNOWN.value)))

    assert latest.events[0].actual_state == "POD_STATE_RUNNING"
    assert latest.events[-1].actual_state == "POD_STATE_INITIALIZED"
    assert (named, none) == (latest, svc.GetPodEventsResponse())


async def test_delete_events(pods: Any, storage: Storage, running_service: str) -> None:
    """The call deletes only the events of the named run."""
    await pods.DeletePodEvents(svc.DeletePodEventsRequest(pod_name=pod(0), pod_id=pod_id(0, 1)))

    assert storage.pods.events(JOB, 0, 1) == []
    assert storage.pods.events(JOB, 1, 1)


async def test_cache(pods: Any, running_service: str) -> None:
    """The answer has status and labels."""
    response = await pods.GetPodCache(svc.GetPodCacheRequest(pod_name=pod(0)))

    assert response.status.state == pod_pb2.POD_STATE_RUNNING
    assert [(label.key, label.value) for label in response.labels] == [("color", "blue")]


async def test_refresh(pods: Any, wakes: RecordedWakes, running_service: str) -> None:
    """Refresh signals the job's workflow."""
    await pods.RefreshPod(svc.RefreshPodRequest(pod_name=pod(0)))

    assert wakes.changed == [JOB]


async def test_browse(pods: Any, storage: Storage, hosts: OneSandbox, running_service: str) -> None:
    """The api requests the files from the host of the run."""
    running = storage.pods.page(JOB)[0]
    response = await pods.BrowsePodSandbox(svc.BrowsePodSandboxRequest(pod_name=pod(0)))

    assert list(response.paths) == ["/sandbox/stdout", "/sandbox/stderr"]
    assert hosts.asked == [(PodId(JOB, 0, 1), running.host, running.agent_id)]


async def test_a_piece_of_a_file(pods: Any, storage: Storage, hosts: OneSandbox, running_service: str) -> None:
    """The api reads the file on the run's host; a run without a host has no files."""
    running = storage.pods.page(JOB)[0]
    request = svc.GetPodFileRequest(pod_name=pod(0), path="stdout", offset=7)
    response = await pods.GetPodFile(request)

    assert (response.data, response.is_end) == (b"stdout from 7", True)
    assert hosts.asked == [(PodId(JOB, 0, 1), running.host, running.agent_id)]
    request.pod_id.value = f"{JOB}-0-9"
    with pytest.raises(grpc.aio.AioRpcError, match="pod has not been run"):
        await pods.GetPodFile(request)


async def test_exchanges_with_a_command(pods: Any, storage: Storage, hosts: OneSandbox, running_service: str) -> None:
    """The exchanges reach the run's host unchanged; an exit code of zero is returned."""
    running = storage.pods.page(JOB)[0]
    start = svc.CommandStart(container="main", argv=["sort", "-u"], has_input=True, has_terminal=True)
    begin = svc.ExchangeWithCommandRequest(pod_name=pod(0), session="s", start=start, columns=80, rows=25)
    end = svc.ExchangeWithCommandRequest(pod_name=pod(0), session="s", number=1, data=b"x", ends_input=True)
    said = [await pods.ExchangeWithCommand(request) for request in (begin, end)]

    assert [
        svc.ExchangeWithCommandResponse(wants_input=True),
        svc.ExchangeWithCommandResponse(stdout=b"x", exit_code=0, wants_input=True),
    ] == said
    assert [(PodId(JOB, 0, 1), running.host, running.agent_id)] * 2 == hosts.asked
    place: dict[str, Any] = {
        "pod_id": str(PodId(JOB, 0, 1)),
        "hostname": running.host,
        "agent_id": running.agent_id,
        "session": "s",
    }
    command = hostmgr_pb2.CommandStart(container="main", argv=["sort", "-u"], has_input=True, has_terminal=True)
    assert [
        hostmgr_pb2.ExchangeWithCommandRequest(**place, start=command, columns=80, rows=25),
        hostmgr_pb2.ExchangeWithCommandRequest(**place, number=1, data=b"x", ends_input=True),
    ] == hosts.exchanges


async def test_a_pod_that_does_not_exist_yet(v1: Any, pods: Any) -> None:
    """The job has the instance, but its update has not created the pod: the error suggests a retry."""
    await create(v1, spec())

    for method, request in (
        (pods.StartPod, svc.StartPodRequest(pod_name=pod(0))),
        (pods.StopPod, svc.StopPodRequest(pod_name=pod(0))),
        (pods.RestartPod, svc.RestartPodRequest(pod_name=pod(0))),
    ):
        assert await expect_refusal(method(request)) == (Status.UNAVAILABLE, NOT_PRESENT)


async def test_a_pod_of_a_job_to_delete(v1: Any, pods: Any, storage: Storage, running_service: str) -> None:
    """The start of a pod is refused if its job is being deleted."""
    storage.jobs.set_service_goal(JOB, None, JobState.DELETED, True, NOW_NS)

    assert await expect_refusal(pods.StartPod(svc.StartPodRequest(pod_name=pod(0)))) == (
        Status.INVALID_ARGUMENT,
        "cannot start a pod going to be deleted",
    )


async def test_a_pod_of_a_batch_job_that_ended(pods: Any, storage: Storage, job: JobId) -> None:
    """The start of a pod is refused if its batch job has ended."""
    end_job(storage)

    assert await expect_refusal(pods.StartPod(svc.StartPodRequest(pod_name=pod(0)))) == (
        Status.INVALID_ARGUMENT,
        "cannot start pod in terminated job",
    )


NO_POD = f"pod {UNKNOWN.value}-0 not found"
GONE = f"pod {JOB}-3 not found: the job has instances [0, 3)"
REFUSALS: dict[str, tuple[str, Any, grpc.StatusCode, str]] = {
    "start, no name": (
        "StartPod",
        svc.StartPodRequest(pod_name=peloton_pb2.PodName(value="web-1")),
        Status.INVALID_ARGUMENT,
        "invalid pelotonTaskID web-1",
    ),
    "stop, no number": (
        "StopPod",
        svc.StopPodRequest(pod_name=pod("one")),
        Status.INVALID_ARGUMENT,
        f"unable to parse instanceID one of {JOB}-one",
    ),
    "restart, no name": (
        "RestartPod",
        svc.RestartPodRequest(pod_name=pod("one")),
        Status.INVALID_ARGUMENT,
        "invalid pod name",
    ),
    "start, unknown job": (
        "StartPod",
        svc.StartPodRequest(pod_name=pod(0, UNKNOWN.value)),
        Status.NOT_FOUND,
        f"fail to get job config: {NO_JOB}",
    ),
    "stop, unknown job": (
        "StopPod",
        svc.StopPodRequest(pod_name=pod(0, UNKNOWN.value)),
        Status.NOT_FOUND,
        f"fail to get job config: {NO_JOB}",
    ),
    "start, unknown instance": ("StartPod", svc.StartPodRequest(pod_name=pod(3)), Status.NOT_FOUND, GONE),
    "stop, unknown instance": ("StopPod", svc.StopPodRequest(pod_name=pod(3)), Status.NOT_FOUND, GONE),
    "restart, unknown instance": ("RestartPod", svc.RestartPodRequest(pod_name=pod(3)), Status.NOT_FOUND, GONE),
    "get, unknown": (
        "GetPod",
        svc.GetPodRequest(pod_name=pod(0, UNKNOWN.value)),
        Status.NOT_FOUND,
        f"failed to get task runtime: code:not-found message:{NO_POD}",
    ),
    "refresh, unknown": (
        "RefreshPod",
        svc.RefreshPodRequest(pod_name=pod(0, UNKNOWN.value)),
        Status.NOT_FOUND,
        NO_POD,
    ),
    "cache, unknown job": (
        "GetPodCache",
        svc.GetPodCacheRequest(pod_name=pod(0, UNKNOWN.value)),
        Status.NOT_FOUND,
        "job not found in cache",
    ),
    "cache, unknown instance": (
        "GetPodCache",
        svc.GetPodCacheRequest(pod_name=pod(3)),
        Status.NOT_FOUND,
        "task not found in cache",
    ),
    "browse, it never ran": (
        "BrowsePodSandbox",
        svc.BrowsePodSandboxRequest(pod_name=pod(0), pod_id=pod_id(0, 2)),
        Status.ABORTED,
        "pod has not been run",
    ),
    "events, the run of another pod": (
        "GetPodEvents",
        svc.GetPodEventsRequest(pod_name=pod(0), pod_id=pod_id(1, 1)),
        Status.INVALID_ARGUMENT,
        f"invalid pod id '{JOB}-1-1': it is not a run of pod {JOB}-0",
    ),
    "delete events, no run": (
        "DeletePodEvents",
        svc.DeletePodEventsRequest(pod_name=pod(0)),
        Status.INVALID_ARGUMENT,
        "invalid pod id '': want <job>-<instance>-<run>",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_refusals(pods: Any, storage: Storage, wakes: RecordedWakes, running_service: str, name: str) -> None:
    """The pods are unchanged, and no workflow is signalled."""
    method, request, code, text = REFUSALS[name]
    before = storage.pods.page(JOB)

    assert await expect_refusal(getattr(pods, method)(request)) == (code, text)
    assert storage.pods.page(JOB) == before
    assert wakes.changed == []


async def test_a_stopped_pod_stays_stopped_in_an_update(
    v1: Any, pods: Any, storage: Storage, running_service: str
) -> None:
    """The stopped pod adopts the new version, and does not run."""
    await pods.StopPod(svc.StopPodRequest(pod_name=pod(1)))
    request = stateless_svc_pb2.ReplaceJobRequest(job_id=ID, version=version("1-1-1"), spec=spec(image="web:2"))
    await v1.ReplaceJob(request)
    evolve(storage)
    response = await pods.GetPod(svc.GetPodRequest(pod_name=pod(1)))

    assert response.current.status.state == pod_pb2.POD_STATE_KILLED
    assert response.current.status.desired_version.value == "2-0-0"
