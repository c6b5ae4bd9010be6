"""Migrations on a real Temporal server."""

from __future__ import annotations

from temporalio.client import Client

from tests.workflow.migration_stories import migration_story


async def test_people_find_it(client: Client) -> None:
    """Migrations are found by pool, kind, target and state; the memo has the constant facts."""
    async with migration_story(client) as story:
        await story.half()
        described = await story.handle.describe()
        await story.result()

    pairs = described.typed_search_attributes
    found = {pair.key.name: pair.value for pair in pairs if pair.key.name.startswith("Peloton")}
    assert {
        "PelotonPool": "/maps",
        "PelotonType": "MIGRATION",
        "PelotonCluster": "b",
        "PelotonState": "MIGRATING",
    } == found
    assert "migration of pool /maps to cluster b" == await described.static_summary()
    assert (2, 1) == (
        await described.memo_value("instances of a service at a time"),
        await described.memo_value("services at a time"),
    )
