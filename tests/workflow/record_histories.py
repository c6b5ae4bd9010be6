"""Records ``histories/next/*.json.gz`` on a dev server: ``python -m tests.workflow.record_histories [PREFIX]``.

A prefix limits it to the recipes whose names begin with it, and replaces only their files. Histories of a release are
never recorded again, see ``recorded.py``.

Each recipe's docstring describes the history. A file is one run of one workflow; a job that continued as new has
several, and the launches of its gang and its rollouts come after them.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment

from peloton.lifecycle import rollout
from peloton.lifecycle.worker_versions import UNVERSIONED
from peloton.model.ids import JobId, PodId, gang_workflow_id, job_workflow_id, update_workflow_id
from peloton.model.job import SlaSpec
from peloton.model.pod import PodState
from services.temporal.worker_fleet import set_current
from services.worker.worker import build_workers, run_workers
from tests.workflow import (
    daemon_stories,
    maintenance_stories,
    migration_stories,
    rebalance_stories,
    request_stories,
    schedule_stories,
)
from tests.workflow.recorded import FOLDER, NEXT, story_of
from tests.workflow.server import (
    SLOTS,
    STARTUP_TIMEOUT,
    TEMPORAL,
    TIMEOUT_S,
    children_in,
    histories_of,
    server_story,
    wait_until,
)
from tests.workflow.stories import ports_on
from workflows.attributes import SEARCH_ATTRIBUTES
from workflows.policies import Policies

Recipe = Callable[[Client], Awaitable[JobId | str]]
"""Returns the job, or the id of the workflow."""


async def job_succeeded(client: Client) -> JobId:
    """Ten pods, hosts for all: create, queue, place, launch, run, end."""
    async with server_story(client) as story:
        job = await story.submit(10)
        await story.result(job)
    return job


async def job_ended_by_its_signal(client: Client) -> JobId:
    """Ten pods, queued, placed and launched with their creation; the signal that they have ended has the job's end."""
    async with server_story(client, admission_s=0, run_s=1.0, settles_ends=True) as story:
        job = await story.submit(10)
        await story.result(job)
    return job


async def job_retried_in_waves(client: Client) -> JobId:
    """Ten of 25 pods run at a time, five of which fail once; several runs by continue-as-new."""

    def ending(pod: PodId) -> PodState:
        return PodState.FAILED if pod.instance_id < 5 and pod.run_id == 1 else PodState.SUCCEEDED

    async with server_story(client, admitted_max=10, ending=ending) as story:
        job = await story.submit(25, max_failures=2, policies=Policies(history_events_max=40))
        await story.result(job)
    return job


async def job_waited_for_hosts(client: Client) -> JobId:
    """A job starts without hosts: placements fail with growing timers, then a signal and launches."""
    async with server_story(client, hosts=0) as story:
        job = await story.submit(10)
        await wait_until(lambda: story.cluster.calls["note_unplaced"] >= 3, "three placements without hosts")
        story.cluster.add_hosts(1)
        await story.result(job)
    return job


async def job_killed(client: Client) -> JobId:
    """A job is killed with ten pods on hosts and 25 in the queue."""
    async with server_story(client, admitted_max=10, run_s=60.0) as story:
        job = await story.submit(35)
        await story.pods(job, "RUNNING", 10)
        story.cluster.kill(job)
        await story.result(job)
    return job


async def job_deleted(client: Client) -> JobId:
    """A job is deleted once it has ended: its records are removed, and no other job was created under its id since."""
    async with server_story(client, run_s=2.0) as story:
        job = await story.submit(5)
        await story.pods(job, "RUNNING", 5)
        story.cluster.delete(job)
        await story.result(job)
    return job


async def job_past_deadline(client: Client) -> JobId:
    """Five pods that run longer than the job allows; the timer ends them."""
    async with server_story(client, run_s=60.0) as story:
        job = await story.submit(5, sla=SlaSpec(max_running_time_s=1))
        await story.result(job)
    return job


async def job_with_failing_calls(client: Client) -> JobId:
    """Every kind of call fails once, some after they acted: the job waits for the end of a launch whose answer was
    lost.
    """
    async with server_story(client) as story:
        story.cluster.outages.update(create=1, enqueue=1, acquire_hosts=1)
        story.cluster.lost_replies.update(settle=1, launch=1)
        job = await story.submit(10)
        await story.result(job)
    return job


async def job_unknown(client: Client) -> JobId:
    """The workflow of a job that is not stored fails."""
    async with server_story(client) as story:
        record = story.add_job(1)
        story.cluster.jobs.clear()
        await story.start(record)
        await wait_until(lambda: story.cluster.calls["settle"] > 0, "the call that fails")
    return record.job_id


async def gang_launched(client: Client) -> JobId:
    """A gang of four and three other pods: hosts for all of the gang come late, one member fails once, all members
    restart.
    """

    def ending(pod: PodId) -> PodState:
        return PodState.FAILED if (pod.instance_id, pod.run_id) == (1, 1) else PodState.SUCCEEDED

    async with server_story(client, hosts=1, slots=3, ending=ending) as story:
        job = await story.submit(7, sla=SlaSpec(minimum_running_instances=4), max_failures=2)
        await story.pods(job, "SUCCEEDED", 3)
        await wait_until(lambda: story.cluster.calls["ready_gang"] >= 3, "three placements without hosts")
        story.cluster.add_hosts(2)
        await story.result(job)
    return job


async def large_gang_launched(client: Client) -> JobId:
    """A gang that counts as large here waits for hosts, and is placed and launched by one activity."""
    async with server_story(client, hosts=1, slots=3) as story:
        policies = replace(story.policies, gang_two_calls_max=0)
        job = await story.submit(4, sla=SlaSpec(minimum_running_instances=4), policies=policies)
        await wait_until(lambda: story.cluster.calls["ready_gang"] >= 2, "two placements without hosts")
        story.cluster.add_hosts(1)
        await story.result(job)
    return job


async def gang_given_up(client: Client) -> JobId:
    """A gang lacks hosts for all of its members until the timeout: it is released, and the job is killed in
    the queue.
    """
    async with server_story(client, hosts=1, slots=3) as story:
        policies = Policies(gang_placement_s=1.0, retry_s=0.2, retry_max_s=1.0)
        job = await story.submit(4, sla=SlaSpec(minimum_running_instances=4), policies=policies)
        await wait_until(lambda: story.cluster.calls["requeue_gang"] >= 1, "a launch given up")
        story.cluster.kill(job)
        await story.result(job)
    return job


async def job_that_fits_no_host(client: Client) -> JobId:
    """A member of a gang and one of the other pods fit no host: both are queued again at once, and killed in
    the queue.
    """
    async with server_story(client) as story:
        story.cluster.unfit = {1, 5}
        job = await story.submit(8, sla=SlaSpec(minimum_running_instances=4))
        await wait_until(lambda: story.cluster.calls["requeue_gang"] >= 1, "a launch given up")
        await wait_until(lambda: story.cluster.calls["requeue_pods"] >= 1, "a pod queued again")
        story.cluster.kill(job)
        await story.result(job)
    return job


async def update_in_batches(client: Client) -> JobId:
    """Six instances are updated two at a time: the job starts the rollout, signals changes to it, and is notified of
    each batch.
    """
    async with server_story(client, run_s=60.0) as story:
        job = await story.submit(1)
        service = story.service(job, 6)
        service.roll_out(2)
        await story.rolled_out(job, "update1")
        story.cluster.kill(job)
        await story.result(job)
        assert (service.versions, service.away_most) == ([2] * 6, 2)
    return job


async def update_in_place(client: Client) -> JobId:
    """Images are fetched ahead of each batch but the first; one call is repeated."""
    async with server_story(client, run_s=60.0) as story:
        job = await story.submit(1)
        service = story.service(job, 8)
        service.images, service.away_s = {1: "web:1", 2: "web:2"}, 0.8  # longer than a call
        story.cluster.outages.update(prefetch=1)
        service.roll_out(2, in_place=True)
        await story.rolled_out(job, "update1")
        story.cluster.kill(job)
        await story.result(job)
        assert {("web:2", f"host{i}") for i in (4, 5, 6, 7)} <= set(story.cluster.prefetched)
    return job


async def update_steered(client: Client) -> JobId:
    """The update is paused, resumed, replaced by a newer one, which fails and is rolled back; then another is rolled
    out.
    """
    async with server_story(client, run_s=60.0) as story:
        job = await story.submit(1)
        service = story.service(job, 6)
        service.broken_versions = {3}
        service.roll_out(1, start_paused=True)
        service.steer(rollout.pause)
        await wait_until(lambda: len(service.reads_ns) >= 1, "a look at the paused update")
        service.steer(rollout.resume)
        await wait_until(lambda: service.versions.count(2) >= 1, "an instance of the new version")
        service.roll_out(3, rollback_on_failure=True, max_instance_attempts=1, max_failure_instances=1)
        await story.rolled_out(job, "update2")
        service.roll_out()
        await story.rolled_out(job, "update3")
        story.cluster.kill(job)
        await story.result(job)
    return job


async def update_rolled_back(client: Client) -> JobId:
    """One instance fails: the roll-back is a step with its own summary, and its rollout another run."""
    async with server_story(client, run_s=60.0) as story:
        job = await story.submit(1)
        service = story.service(job, 3)
        service.broken_versions = {2}
        service.roll_out(1, rollback_on_failure=True, max_instance_attempts=1, max_failure_instances=1)
        await story.rolled_out(job, "update1")
        story.cluster.kill(job)
        await story.result(job)
        assert service.versions == [3, 1, 1]
    return job


async def update_with_failing_steps(client: Client) -> JobId:
    """The SLA blocks the first step, calls fail before and after they acted; several runs by continue-as-new."""
    async with server_story(client, run_s=60.0) as story:
        job = await story.submit(1, policies=replace(story.policies, history_events_max=60))
        service = story.service(job, 9, sla_maximum=1)
        service.lose(8)
        service.roll_out(1, instances=range(8))
        await wait_until(lambda: len(service.reads_ns) >= 2, "a second look")
        service.find(8)
        story.cluster.outages.update(advance=1)
        await wait_until(lambda: service.versions.count(2) >= 2, "two instances of the new version")
        story.cluster.lost_replies.update(advance=1)
        await story.rolled_out(job, "update1")
        story.cluster.kill(job)
        await story.result(job)
    return job


async def job_cancelled(client: Client) -> JobId:
    """A job is cancelled as in the Web UI, with ten pods on hosts and 25 in the queue, in small histories."""
    async with server_story(client, admitted_max=10, run_s=60.0) as story:
        job = await story.submit(35, policies=replace(story.policies, history_events_max=40))
        await story.pods(job, "RUNNING", 10)
        await story.handle(job).cancel()
        await story.result(job)
    return job


async def job_with_storage_away(client: Client) -> JobId:
    """Read of storage fail as often as they are tried within the workflow task, and continue as an activity."""
    async with server_story(client) as story:
        job = await story.submit(10)
        await story.pods(job, "RUNNING", 10)
        story.cluster.outages.update(settle=6)
        await story.result(job)
    return job


async def gang_cancelled(client: Client) -> JobId:
    """The launch of a gang is cancelled while it waits for hosts: the gang is queued again, and killed there."""
    async with server_story(client, hosts=0) as story:
        job = await story.submit(4, sla=SlaSpec(minimum_running_instances=4))
        await wait_until(lambda: story.cluster.calls["ready_gang"] >= 2, "two placements without hosts")
        await client.get_workflow_handle(gang_workflow_id(job, 1)).cancel()
        await wait_until(lambda: story.cluster.calls["requeue_gang"] >= 1, "a launch given up")
        story.cluster.kill(job)
        await story.result(job)
    return job


async def update_cancelled(client: Client) -> JobId:
    """The workflow of an update is cancelled: it is aborted; then another is paused, and the job cancelled."""
    async with server_story(client, run_s=60.0) as story:
        job = await story.submit(1)
        service = story.service(job, 6)
        service.roll_out(1)
        await wait_until(lambda: service.versions.count(2) >= 1, "an instance of the new version")
        await client.get_workflow_handle(update_workflow_id(job)).cancel()
        await story.rolled_out(job, "update1")
        service.roll_out(1, start_paused=True)
        await wait_until(lambda: story.cluster.calls["settle"] >= 2, "a look at the paused update")
        await story.handle(job).cancel()
        await story.result(job)
    return job


async def job_on_three_versions(client: Client) -> JobId:
    """A job starts on a worker without a version, moves to one whose worker replays it, and from there to the
    next one.
    """
    async with server_story(client, run_s=60.0) as story, AsyncExitStack() as workers:
        job = await story.submit(3)
        await story.pods(job, "RUNNING", 3)
        await story.stop_worker()
        for version in ("r1", "r2"):
            built = build_workers(client, ports_on(story.cluster), {story.task_queue: SLOTS}, build=version)
            await workers.enter_async_context(run_workers(built))
            await make_current(client, version)
            looks = story.cluster.calls["settle"]
            await story.handle(job).signal("changed")
            await wait_until(lambda looks=looks: story.cluster.calls["settle"] > looks, "a look")
        story.cluster.kill(job)
        await story.result(job)
    await make_current(client, UNVERSIONED)
    return job


async def make_current(client: Client, version: str) -> None:
    """Make the version current as soon as the server has registered it."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            with suppress(RPCError):
                return await set_current(client, version)
            await asyncio.sleep(0.5)


RECIPES: tuple[Recipe, ...] = (
    *maintenance_stories.RECIPES,
    *migration_stories.RECIPES,
    *daemon_stories.RECIPES,
    *rebalance_stories.RECIPES,
    *request_stories.RECIPES,
    *schedule_stories.RECIPES,
    job_succeeded,
    job_ended_by_its_signal,
    job_retried_in_waves,
    job_waited_for_hosts,
    job_killed,
    job_deleted,
    job_past_deadline,
    job_with_failing_calls,
    job_unknown,
    gang_launched,
    large_gang_launched,
    gang_given_up,
    job_that_fits_no_host,
    update_in_batches,
    update_in_place,
    update_steered,
    update_rolled_back,
    update_with_failing_steps,
    job_cancelled,
    job_with_storage_away,
    gang_cancelled,
    update_cancelled,
    job_on_three_versions,
)


def scrub(node: Any) -> Any:
    """Return the node without stack traces, which depend on the machine."""
    if isinstance(node, dict):
        return {key: scrub(value) for key, value in node.items() if key != "stackTrace"}
    return [scrub(value) for value in node] if isinstance(node, list) else node


async def record(prefix: str = "") -> dict[str, dict[str, Any]]:
    """File name -> history."""
    recorded: dict[str, dict[str, Any]] = {}
    environment = await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(TEMPORAL),
        dev_server_startup_timeout=STARTUP_TIMEOUT,
        search_attributes=SEARCH_ATTRIBUTES,
        identity="recorder",
    )
    async with environment:
        for recipe in RECIPES:
            if not recipe.__name__.startswith(prefix):
                continue
            made = await recipe(environment.client)
            workflow_id = made if "/" in made else job_workflow_id(made)
            runs = await histories_of(environment.client, workflow_id)
            children = [child for run in runs for child in await children_in(environment.client, run)]
            for number, history in enumerate([*runs, *children], 1):
                recorded[f"{recipe.__name__}-{number}.json.gz"] = scrub(history.to_json_dict())
    return recorded


def write(recorded: dict[str, dict[str, Any]], folder: Path = FOLDER / NEXT) -> None:
    """Replace the histories of the same recipes in the folder."""
    folder.mkdir(exist_ok=True)
    recipes = {story_of(Path(name)) for name in recorded}
    for old in folder.glob("*.json.gz"):
        if story_of(old) in recipes:
            old.unlink()
    for name, history in recorded.items():
        (folder / name).write_bytes(gzip.compress(json.dumps(history, indent=1).encode(), mtime=0))
        print(f"{name}: {len(history['events'])} events")


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 else ""
    write(asyncio.run(record(chosen)))
