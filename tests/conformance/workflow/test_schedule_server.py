"""Schedules of jobs on a real Temporal server."""

from __future__ import annotations

import time

import pytest
from temporalio.client import Client

from peloton.errors import AlreadyExists, InvalidArgument, NotFound
from peloton.model.ids import JobId, job_workflow_id
from peloton.model.schedule import Overlap, RunState, Times
from tests.workflow.schedule_stories import YEARLY, schedule_story

HOUR_S = 3_600


async def test_a_trigger_creates_one_job_which_people_find(client: Client) -> None:
    """The run has the id and the name of the job; the job's workflow is found by its kind; the list has the run."""
    async with schedule_story(client) as story:
        await story.create(note="every year")
        await story.trigger()
        (run,) = await story.runs(RunState.SUCCEEDED)
        described = await client.get_workflow_handle(job_workflow_id(run.job_id)).describe()
        (listed,) = await story.schedules.find(lambda one: one.name == story.name, 1_000)
        elsewhere = await story.schedules.find(lambda one: one.pool_path == "/it's", 10)
        got = await story.schedules.get(story.name, 1)

    assert [run.job_id] == story.jobs.created
    assert (f"train-{time.strftime('%Y%m%d', time.gmtime(run.scheduled_ns // 10**9))}", "every year") == (
        run.job_name[:14],
        listed.note,
    )
    assert [run.job_id] == [each.job_id for each in listed.runs]
    assert (YEARLY, "/eng", "maps") == (listed.times, listed.pool_path, listed.owner)
    assert [] == elsewhere
    assert ({"ann"}, "ann", "ann") == (story.jobs.creators, listed.creator, got.creator)
    assert ("pool", "pool") == (listed.pool_id, got.pool_id)
    assert {"PelotonType": "BATCH"} == {
        pair.key.name: pair.value for pair in described.typed_search_attributes if pair.key.name == "PelotonType"
    }


async def test_a_name_that_is_used_again_shows_no_runs_of_another_pool(client: Client) -> None:
    """A schedule is changed by another one of its name, whose runs follow the earlier ones of the same pool only."""
    async with schedule_story(client) as story:
        await story.create()
        await story.trigger()
        (run,) = await story.runs(RunState.SUCCEEDED)
        shown = {}
        for path in ("/other", "/eng"):
            await story.schedules.delete(story.name)
            await story.create(pool_path=path)
            shown[path] = [each.job_id for each in (await story.schedules.get(story.name, 20)).runs]

    assert {"/other": [], "/eng": [run.job_id]} == shown


async def test_a_time_is_left_out_while_a_job_runs(client: Client) -> None:
    """The policy is skip; a paused schedule can be triggered, and its note says why it is paused."""
    async with schedule_story(client, run_s=60.0) as story:
        await story.create(paused=True)
        await story.trigger()
        (run,) = await story.runs(RunState.RUNNING)
        await story.trigger()
        skipped = await story.until(lambda schedule: schedule.counts.skipped == 1, "a skipped time")
        await story.schedules.resume(story.name, "")
        await story.schedules.pause(story.name, "the source moves")
        paused = await story.schedules.get(story.name, 1)
        story.story.cluster.kill(story.story.cluster.jobs[JobId(run.job_id)].record.job_id)
        await story.runs(RunState.KILLED)

    assert (True, 1, [run.job_id]) == (skipped.paused, skipped.counts.runs, story.jobs.created)
    assert (True, "the source moves") == (paused.paused, paused.note)


async def test_a_backfill_has_one_job_for_each_time(client: Client) -> None:
    """A backfill creates one job for each time: both ends of the range are included, and a second backfill makes no
    second job."""
    async with schedule_story(client) as story:
        await story.create(Times(interval_s=HOUR_S), paused=True)
        end_s = int(time.time()) // HOUR_S * HOUR_S
        span = end_s - 2 * HOUR_S, end_s

        assert 3 == await story.schedules.count_times(story.name, *span)
        await story.schedules.backfill(story.name, *span, Overlap.BUFFER_ALL)
        runs = await story.runs(RunState.SUCCEEDED, 3)
        await story.schedules.backfill(story.name, *span, Overlap.ALLOW_ALL)
        again = await story.runs(RunState.SUCCEEDED, 6)

    assert [end_s, end_s - HOUR_S, end_s - 2 * HOUR_S] == [run.scheduled_ns // 10**9 for run in runs]
    assert 3 == len(story.jobs.created) == len({run.job_id for run in again})


async def test_what_temporal_refuses(client: Client) -> None:
    """A name that is taken, a name that is unknown, times that it does not understand."""
    async with schedule_story(client) as story:
        await story.create()

        with pytest.raises(AlreadyExists, match="exists: choose another name"):
            await story.create()
        with pytest.raises(NotFound, match="schedule nope not found"):
            await story.schedules.pause("nope", "")
        with pytest.raises(InvalidArgument, match="unknown time zone"):
            await story.create(Times(("0 0 * * *",), time_zone="Mars/Base"))
