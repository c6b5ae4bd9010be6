"""Stories of workflows hold on the official time-skipping server: a second opinion to that of the dev server.

Left out are stories of lists and summaries of workflows, which this server lacks, and stories in which it leaves
workflows waiting: of cancelled jobs, of replaced workers, and of gangs that give up their launch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from temporalio.client import Client

from tests.conformance.workflow import test_gang_server as gangs
from tests.conformance.workflow import test_job_server as jobs
from tests.nightly import NIGHTLY
from tests.workflow import daemon_stories, maintenance_stories, migration_stories, rebalance_stories
from tests.workflow import record_histories as updates

pytestmark = NIGHTLY

Recipe = Callable[[Client], Awaitable[object]]
STORIES: list[Recipe] = [
    jobs.test_job_succeeds,
    jobs.test_retries_and_waves,
    jobs.test_hosts_come_later,
    jobs.test_kill,
    jobs.test_deadline,
    jobs.test_dependencies_fail,
    gangs.test_a_gang_is_launched_and_retried_as_one,
    gangs.test_a_launch_outlives_a_job_that_continues_as_new,
    updates.update_in_batches,
    updates.update_in_place,
    updates.update_steered,
    updates.update_with_failing_steps,
    *daemon_stories.RECIPES,
    *maintenance_stories.RECIPES,
    *migration_stories.RECIPES,
    *rebalance_stories.RECIPES,
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__.removeprefix("test_"))
async def test_story(story: Recipe, client: Client) -> None:
    """The story holds on this server, and its histories replay."""
    await story(client)
