"""Maintenance of a host on a real Temporal server."""

from __future__ import annotations

from temporalio.client import Client

from tests.workflow.maintenance_stories import maintenance_story
from tests.workflow.server import histories_of, wait_until


async def test_one_maintenance_at_a_time(client: Client) -> None:
    """However often it is asked for, a host has one workflow; after its end the next request starts another."""
    async with maintenance_story(client, "again") as story:
        for _ in range(5):
            story.host.request()
        await story.complete()
        first = (await story.handle.describe()).run_id
        story.host.request()
        await wait_until(lambda: story.host.steps.count("DOWN") == 2, "down again")
        second = await story.complete()

    assert second.was_down
    assert (await story.handle.describe()).run_id != first
    assert story.host.steps == ["DRAINING", "DRAINED", "DOWN", "UP"] * 2
    assert len(await histories_of(client, story.workflow_id)) == 1
