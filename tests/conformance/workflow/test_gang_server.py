"""Launches of gangs on a real Temporal dev server; each story replays the histories of jobs and launches at its end."""

from __future__ import annotations

from typing import Any

from temporalio.client import Client, WorkflowHandle

from peloton.model.ids import PodId, gang_workflow_id
from peloton.model.job import SlaSpec
from peloton.model.pod import PodState
from tests.workflow.server import server_story, wait_until
from workflows.attributes import JOB_ID, STATE
from workflows.gang import GangWorkflow
from workflows.policies import Policies

GANG = SlaSpec(minimum_running_instances=4)


async def test_a_gang_is_launched_and_retried_as_one(client: Client) -> None:
    """Two launches, each a workflow of its own, that can be found and that says what it did."""

    def ending(pod: PodId) -> PodState:
        return PodState.FAILED if (pod.instance_id, pod.run_id) == (1, 1) else PodState.SUCCEEDED

    async with server_story(client, run_s=3_600) as story:
        job = await story.submit(6, sla=GANG, max_failures=2)
        for run in (1, 2):
            await story.pods(job, "RUNNING", 4 if run == 2 else 6)
            gang: WorkflowHandle[Any, Any] = client.get_workflow_handle_for(
                GangWorkflow.run, gang_workflow_id(job, run)
            )
            assert "together" == (await gang.result()).outcome
            described = await gang.describe()
            assert "launch of the gang of job train" == await described.static_summary()
            assert (job, "RUNNING") == tuple(described.typed_search_attributes[key] for key in (JOB_ID, STATE))
            running = [pod.pod_id for pod in story.cluster.jobs[job].pods if pod.state is PodState.RUNNING]
            story.cluster.report(running, ending)

        assert ("SUCCEEDED", {"SUCCEEDED": 6}) == await story.result(job)


async def test_a_launch_costs_the_same_history_whatever_the_size_of_the_gang(client: Client) -> None:
    """Members of a large gang do not cross the history of the workflow that launches them."""
    sizes_bytes = []
    async with server_story(client, hosts=20, slots=100, run_s=3_600) as story:
        for members in (4, 1_000):
            sla, policies = SlaSpec(minimum_running_instances=members), Policies(gang_two_calls_max=2)
            job = await story.submit(members, sla=sla, policies=policies)
            launch = client.get_workflow_handle(gang_workflow_id(job, 1))
            await story.pods(job, "RUNNING", members)
            await launch.result()
            history = await launch.fetch_history()
            calls = [event for event in history.events if event.HasField("activity_task_completed_event_attributes")]
            sizes_bytes.append(sum(event.ByteSize() for event in calls))
            story.cluster.kill(job)
            await story.result(job)

    assert sizes_bytes[1] < sizes_bytes[0] + 100


async def test_a_launch_outlives_a_job_that_continues_as_new(client: Client) -> None:
    """A job that continues as new in every turn starts its gang once, signals it that hosts have come, and learns that
    a launch is over."""
    async with server_story(client, hosts=1, slots=3) as story:
        job = await story.submit(4, sla=GANG, policies=Policies(history_events_max=1, retry_s=60.0))
        await wait_until(lambda: story.cluster.calls["ready_gang"] >= 1, "a placement")
        story.cluster.add_hosts(1)

        assert ("SUCCEEDED", {"SUCCEEDED": 4}) == await story.result(job)
        assert 4 == len(story.cluster.launched)


async def test_a_gang_that_fits_nowhere_is_queued_again(client: Client) -> None:
    """The launch gives up in time, and a new worker continues it meanwhile."""
    async with server_story(client, hosts=1, slots=3) as story:
        job = await story.submit(4, sla=GANG, policies=Policies(gang_placement_s=2.0, retry_s=0.2))
        await wait_until(lambda: story.cluster.calls["ready_gang"] >= 2, "two placements")
        await story.stop_worker()
        await story.start_worker()
        await story.pods(job, "PENDING", 4)

        gang: WorkflowHandle[Any, Any] = client.get_workflow_handle_for(GangWorkflow.run, gang_workflow_id(job, 1))
        result = await gang.result()
        assert "no hosts for all 4 members of the gang in 2 s: 4 pods without a host (no host offered)" == result.reason
        story.cluster.kill(job)
        assert ("KILLED", {"KILLED": 4}) == await story.result(job)
