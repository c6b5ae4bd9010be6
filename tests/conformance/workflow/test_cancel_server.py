"""Cancel and terminate, as people do them in the Web UI, on a real server."""

from __future__ import annotations

from temporalio.client import Client, WorkflowExecutionStatus

from peloton.model.ids import job_workflow_id, update_workflow_id
from tests.workflow.server import histories_of, server_story, wait_until
from workflows.policies import Policies


async def test_a_cancelled_job_is_stopped(client: Client) -> None:
    """Pods of a cancelled job end, and then its workflow, whose history has the reason."""
    async with server_story(client, admitted_max=10, run_s=60.0) as story:
        job = await story.submit(25, policies=Policies(history_events_max=30, retry_s=0.2, look_again_s=5.0))
        await story.pods(job, "RUNNING", 10)
        await story.handle(job).cancel()

        assert ("KILLED", {"KILLED": 25}) == await story.result(job)
        assert WorkflowExecutionStatus.COMPLETED is (await story.handle(job).describe()).status
        runs = await histories_of(client, job_workflow_id(job))
    asked = [e for run in runs for e in run.events if e.HasField("activity_task_scheduled_event_attributes")]
    stops = [e for e in asked if e.activity_task_scheduled_event_attributes.activity_type.name == "stop_job"]
    assert [b'"stop the job: the workflow was cancelled"'] == [e.user_metadata.summary.data for e in stops]


async def test_a_cancelled_update_is_aborted(client: Client) -> None:
    """The workflow of a cancelled update ends, and the job's continues."""
    async with server_story(client, run_s=60.0) as story:
        job = await story.submit(1)
        service = story.service(job, 6)
        service.roll_out(1)
        await wait_until(lambda: service.versions.count(2) >= 1, "an instance of the new version")
        await client.get_workflow_handle(update_workflow_id(job)).cancel()
        await story.rolled_out(job, "update1")
        status = (await story.handle(job).describe()).status
        story.cluster.kill(job)
        await story.result(job)

    assert service.update is not None
    assert ("ABORTED", WorkflowExecutionStatus.RUNNING) == (service.update.state, status)


async def test_a_worker_may_forget_workflows_that_run(client: Client) -> None:
    """One that is taken from the cache of a worker is not taken for one that was cancelled."""
    async with server_story(client, run_s=2.0) as story:
        job = await story.submit(5)
        await story.pods(job, "RUNNING", 5)
        await story.stop_worker()
        await story.start_worker()

        assert ("SUCCEEDED", {"SUCCEEDED": 5}) == await story.result(job)
        assert 0 == story.cluster.calls["set_goal"]
