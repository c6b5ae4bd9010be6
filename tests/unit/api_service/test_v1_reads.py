"""v1alpha JobService over real storage: reading calls."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.pod import pod_pb2
from peloton.model.ids import JobId
from peloton.model.pod import TerminationReason
from peloton.model.update import UpdateSpec
from services.storage.storage import Storage
from tests.conformance.storage.services import turn, update
from tests.unit.api_service.services import (
    ID,
    UNKNOWN,
    create,
    evolve,
    ranges,
    service_config,
    spec,
    version,
)
from tests.unit.api_service.story import JOB, NOW_NS
from tests.unit.api_service.story import create as create_v0

OTHER = "00000000-0000-4000-8000-0000000000aa"


def spans(wires: Any) -> list[tuple[int, int]]:
    return [(getattr(wire, "from"), wire.to) for wire in wires]


async def replace_job(v1: Any, wanted: stateless_pb2.JobSpec, seen: str = "1-1-1", **fields: Any) -> str:
    request = svc.ReplaceJobRequest(job_id=ID, version=version(seen), spec=wanted, **fields)
    return str((await v1.ReplaceJob(request)).version.value)


async def test_get(v1: Any, storage: Storage, running_service: str) -> None:
    """The answer has the spec in both forms, the status with counts by version, and the job's update."""
    response = await v1.GetJob(svc.GetJobRequest(job_id=ID))
    info, workflow = response.job_info, response.workflow_info

    container = info.spec.default_spec.containers[0]
    assert (container.image, container.container.mesos.image.docker.name) == ("web:1", "web:1")
    assert (container.entrypoint.value, container.command.value) == ("serve", "serve")
    assert (info.spec.revision.version, info.status.version.value) == (1, "1-1-1")
    assert info.status.state == stateless_pb2.JOB_STATE_RUNNING
    assert dict(info.status.pod_configuration_version_stats) == {"1-0-0": 3}
    assert workflow.status.state == stateless_pb2.WORKFLOW_STATE_SUCCEEDED
    assert spans(workflow.instances_added) == [(0, 2)]
    assert workflow.events[0].state == stateless_pb2.WORKFLOW_STATE_SUCCEEDED
    assert info.status.workflow_status == workflow.status


async def test_get_reports_disruptions(v1: Any, pods: Any, storage: Storage) -> None:
    """The answer has the latest requests to the SLA, granted or refused, with reasons."""
    wanted = spec()
    wanted.sla.maximum_unavailable_instances = 1
    await create(v1, wanted)
    evolve(storage)
    for instance in (0, 1):
        storage.disruptions.disrupt(
            JOB,
            [instance],
            reason=TerminationReason.KILLED_HOST_MAINTENANCE,
            message="host h1 is drained",
            checks_sla=True,
            now_ns=NOW_NS,
        )
    refused, granted = (await v1.GetJob(svc.GetJobRequest(job_id=ID))).disruptions

    maintenance = pod_pb2.TerminationStatus.TERMINATION_STATUS_REASON_KILLED_HOST_MAINTENANCE
    assert (granted.instance_id, granted.granted, granted.message) == (0, True, "host h1 is drained")
    assert (refused.instance_id, refused.granted, refused.reason) == (1, False, maintenance)
    assert refused.message == "1 of at most 1 instances are unavailable already"
    assert refused.HasField("granted")


async def test_get_a_version(v1: Any, running_service: str) -> None:
    """The answer for an older version has only the spec."""
    await replace_job(v1, spec(image="web:2"))
    response = await v1.GetJob(svc.GetJobRequest(job_id=ID, version=version("1-1-1")))

    assert response.job_info.spec.default_spec.containers[0].image == "web:1"
    assert not response.job_info.HasField("status")
    assert not response.HasField("workflow_info")


async def test_get_the_summary(v1: Any, running_service: str) -> None:
    """The summary has no spec, and the workflow's status."""
    response = await v1.GetJob(svc.GetJobRequest(job_id=ID, summary_only=True))

    assert not response.HasField("job_info")
    assert (response.summary.name, response.summary.instance_count) == ("web", 3)
    assert response.summary.status.workflow_status.num_instances_completed == 3


async def test_get_a_job_of_v0(v1: Any, jobs: Any) -> None:
    """The answer is in v1alpha's terms; the job has no workflow before its first update."""
    await create_v0(jobs, service_config())
    response = await v1.GetJob(svc.GetJobRequest(job_id=ID))

    assert response.job_info.spec.default_spec.containers[0].entrypoint.value == "serve"
    assert response.job_info.status.version.value == "1-1-1"
    assert not response.HasField("workflow_info")


async def test_a_spec_sent_back_changes_nothing(v1: Any, running_service: str) -> None:
    """The spec that GetJob returns equals the job's: a replacement with it would change no instance."""
    returned = (await v1.GetJob(svc.GetJobRequest(job_id=ID))).job_info.spec
    request = svc.GetReplaceJobDiffRequest(job_id=ID, version=version("1-1-1"), spec=returned)
    diff = await v1.GetReplaceJobDiff(request)

    assert spans(diff.instances_unchanged) == [(0, 2)]


async def test_diff(v1: Any, storage: Storage, running_service: str) -> None:
    """The difference has the affected instances as inclusive ranges; nothing changes."""
    wanted = spec(5)
    wanted.instance_spec[1].labels.add(key="color", value="red")
    before = storage.jobs.get(JOB)
    request = svc.GetReplaceJobDiffRequest(job_id=ID, version=version("1-1-1"), spec=wanted)
    more = await v1.GetReplaceJobDiff(request)
    request.spec.CopyFrom(spec(1))
    less = await v1.GetReplaceJobDiff(request)

    assert spans(more.instances_added) == [(3, 4)]
    assert spans(more.instances_updated) == [(1, 1)]
    assert spans(more.instances_unchanged) == [(0, 0), (2, 2)]
    assert (spans(less.instances_removed), spans(less.instances_unchanged)) == ([(1, 2)], [(0, 0)])
    assert storage.jobs.get(JOB) == before


async def test_ids_by_name(v1: Any) -> None:
    """The ids are in reverse order of creation."""
    await create(v1, spec())
    await create(v1, spec(), OTHER)
    response = await v1.GetJobIDFromJobName(svc.GetJobIDFromJobNameRequest(job_name="web"))

    assert [wire.value for wire in response.job_id] == [OTHER, JOB]


async def test_workflow_events(v1: Any, storage: Storage, running_service: str) -> None:
    """The events are of one instance, in reverse order of time."""
    response = await v1.GetWorkflowEvents(svc.GetWorkflowEventsRequest(job_id=ID, instance_id=1))
    first = await v1.GetWorkflowEvents(svc.GetWorkflowEventsRequest(job_id=ID, instance_id=1, limit=1))
    states = [stateless_pb2.WorkflowState.Name(event.state) for event in response.events]

    assert states[0] == "WORKFLOW_STATE_SUCCEEDED"
    assert states[-1] == "WORKFLOW_STATE_INITIALIZED"
    assert list(first.events) == list(response.events)[:1]


async def test_list_workflows(v1: Any, storage: Storage, running_service: str) -> None:
    """The answer has all stored workflows in reverse order of time, with the events of their instances on request."""
    await replace_job(v1, spec(image="web:2"))
    evolve(storage)
    every = await v1.ListJobWorkflows(svc.ListJobWorkflowsRequest(job_id=ID, instance_events=True))
    one = await v1.ListJobWorkflows(svc.ListJobWorkflowsRequest(job_id=ID, updates_limit=1))
    short = svc.ListJobWorkflowsRequest(job_id=ID, instance_events=True, instance_events_limit=1)
    newest = (await v1.ListJobWorkflows(short)).workflow_infos[0].instance_events[1]

    assert [info.status.version.value for info in every.workflow_infos] == ["2-1-2", "1-1-2"]
    alone = await v1.GetWorkflowEvents(svc.GetWorkflowEventsRequest(job_id=ID, instance_id=1))
    reported = {events.instance_id: events.events for events in every.workflow_infos[0].instance_events}
    assert list(reported) == [0, 1, 2]
    assert list(reported[1]) == list(alone.events)
    assert list(newest.events) == list(alone.events)[:1]
    assert len(one.workflow_infos) == 1
    assert list(one.workflow_infos[0].instance_events) == []


async def test_list_pods(v1: Any, running_service: str) -> None:
    """The answer has one message for each pod of the range, and none for an unknown job."""

    async def names(**fields: Any) -> list[str]:
        request = svc.ListPodsRequest(**fields)
        return [pod.pod_name.value async for page in v1.ListPods(request) for pod in page.pods]

    assert await names(job_id=ID) == [f"{JOB}-{i}" for i in range(3)]
    assert await names(job_id=ID, range=ranges((1, 3))[0]) == [f"{JOB}-1", f"{JOB}-2"]
    assert await names(job_id=UNKNOWN) == []


async def test_query_pods(v1: Any, running_service: str) -> None:
    """The page of the spec applies, and each pod has its spec; the answer's page echoes the outer one."""
    request = svc.QueryPodsRequest(job_id=ID)
    request.spec.pod_states.append(pod_pb2.POD_STATE_RUNNING)
    request.spec.pagination.limit = 2
    request.pagination.limit = 9
    response = await v1.QueryPods(request)
    request.spec.pod_states[0] = pod_pb2.POD_STATE_FAILED

    assert [info.spec.pod_name.value for info in response.pods] == [f"{JOB}-0", f"{JOB}-1"]
    assert response.pods[0].spec.containers[0].image == "web:1"
    assert (response.pagination.limit, response.pagination.total) == (9, 3)
    assert list((await v1.QueryPods(request)).pods) == []


async def test_query_jobs(v1: Any, running_service: str) -> None:
    """The conditions are v0's, and the answer has summaries with workflow status."""
    request = svc.QueryJobsRequest()
    request.spec.name, request.spec.respool.value = "we", "/eng/maps"
    request.spec.job_states.append(stateless_pb2.JOB_STATE_RUNNING)
    response = await v1.QueryJobs(request)

    assert [record.job_id.value for record in response.records] == [JOB]
    assert response.records[0].status.workflow_status.type == stateless_pb2.WORKFLOW_TYPE_UPDATE
    assert (response.pagination.total, response.spec.name) == (1, "we")


@pytest.mark.parametrize(("path", "count"), [("/eng", 0), ("/eng/maps/", 1), ("/nowhere", 1)])
async def test_query_jobs_of_a_pool(v1: Any, running_service: str, path: str, count: int) -> None:
    """An unknown path does not filter."""
    request = svc.QueryJobsRequest()
    request.spec.respool.value = path

    assert len((await v1.QueryJobs(request)).records) == count


async def test_query_jobs_without_a_spec(v1: Any, running_service: str) -> None:
    """A query without a spec has an empty answer."""
    assert await v1.QueryJobs(svc.QueryJobsRequest()) == svc.QueryJobsResponse()


async def test_list_jobs(v1: Any, job: JobId) -> None:
    """The list has jobs of every type, or services alone."""
    await create(v1, spec(), OTHER)
    found = [summary.job_id.value async for page in v1.ListJobs(svc.ListJobsRequest()) for summary in page.jobs]

    services = svc.ListJobsRequest(services_only=True)
    only = [summary.job_id.value async for page in v1.ListJobs(services) for summary in page.jobs]

    assert (found, only) == ([OTHER, job], [OTHER])


async def test_cache(v1: Any, storage: Storage, running_service: str) -> None:
    """The answer has the few fields that the original kept in memory, with its short versions."""
    update(storage, JOB, None, UpdateSpec(batch_size=1))
    turn(storage, JOB, starts=False)
    response = await v1.GetJobCache(svc.GetJobCacheRequest(job_id=ID))

    assert (response.spec.instance_count, response.spec.name) == (3, "")
    assert (response.status.version.value, response.status.workflow_status.version.value) == ("2-0-0", "2-0-0")
    assert response.status.workflow_status.prev_version.value == "1-0-0"
