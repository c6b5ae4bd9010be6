"""Stories of daemons on a real Temporal server; they are also the recipes of their recorded histories."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from temporalio.client import Client

from peloton.model.ids import Hostname, JobId, daemon_workflow_id, new_job_id
from tests.workflow.server import ServerStory, server_story, wait_until

HOURS_S = 1e4


async def runs_on(story: ServerStory, job: JobId, count: int) -> None:
    """Wait until exactly ``count`` of the job's pods run, and no others are starting or ending."""

    def has_come_to_rest() -> bool:
        counts = story.cluster.counts(job)
        return counts.get("RUNNING", 0) == count and not {"INITIALIZED", "READY", "KILLING"} & counts.keys()

    await wait_until(has_come_to_rest, f"{count} pods that run")


def names(*numbers: int) -> list[Hostname]:
    return [Hostname(f"host{number}") for number in numbers]


async def daemon_followed_its_hosts(client: Client) -> JobId:
    """Hosts join, leave and come back, one is full for a while, calls fail before and after they acted; then the
    daemon is stopped. Several runs by continue-as-new."""
    async with server_story(client, hosts=4, run_s=HOURS_S) as story:
        hosts, job = story.daemon_hosts, new_job_id()
        hosts.matching, hosts.full = set(names(0, 1)), {Hostname("host1")}
        record = hosts.submit(job)
        await story.start(record, replace(story.policies, history_events_max=60))
        await runs_on_all_but(story, job, waiting=1)
        hosts.full = set()
        await runs_on(story, job, 2)
        story.cluster.outages.update(step_daemon=1)
        hosts.match(job, names(0, 1, 2, 3))
        await runs_on(story, job, 4)
        hosts.match(job, names(0, 2, 3))
        await runs_on(story, job, 3)
        story.cluster.lost_replies.update(step_daemon=1)
        hosts.match(job, names(0, 1, 2, 3))
        await runs_on(story, job, 4)
        story.cluster.kill(job)
        assert await story.result(job) == ("KILLED", {"KILLED": 4})
        await client.get_workflow_handle(daemon_workflow_id(job)).result()
    return job


async def runs_on_all_but(story: ServerStory, job: JobId, waiting: int) -> None:
    """Wait until the other hosts run their pods and more than one step was made."""
    await wait_until(lambda: story.cluster.counts(job).get("RUNNING", 0) >= 1, "a pod that runs")
    looks = story.cluster.calls["step_daemon"]
    await wait_until(lambda: story.cluster.calls["step_daemon"] >= looks + 2, "two more looks")
    assert story.cluster.counts(job).get("INITIALIZED", 0) == waiting


async def daemon_cancelled(client: Client) -> JobId:
    """The workflow of a daemon is cancelled, as in the Web UI: the daemon is stopped."""
    async with server_story(client, hosts=3, run_s=HOURS_S) as story:
        job = new_job_id()
        await story.start(story.daemon_hosts.submit(job))
        await runs_on(story, job, 3)
        await client.get_workflow_handle(daemon_workflow_id(job)).cancel()
        assert await story.result(job) == ("KILLED", {"KILLED": 3})
        await client.get_workflow_handle(daemon_workflow_id(job)).result()
    return job


RECIPES: tuple[Callable[[Client], Awaitable[JobId]], ...] = (daemon_followed_its_hosts, daemon_cancelled)
