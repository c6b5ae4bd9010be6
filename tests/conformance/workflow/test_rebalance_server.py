"""Rebalancing on a real Temporal server."""

from __future__ import annotations

from temporalio.client import Client

from peloton.model.rebalance import RebalanceAct
from tests.workflow.rebalance_stories import rebalance_story


async def test_people_find_it(client: Client) -> None:
    """Rebalancing is found by kind, cluster and state; the memo has the constant facts, and all other
    work has priority over it."""
    async with rebalance_story(client) as story:
        await story.moved(2)
        described = await story.handle.describe()
        story.cluster.act(RebalanceAct.STOP)
        await story.result()

    pairs = described.typed_search_attributes
    found = {pair.key.name: pair.value for pair in pairs if pair.key.name.startswith("Peloton")}
    assert {"PelotonType": "REBALANCE", "PelotonCluster": "east", "PelotonState": "RUNNING"} == found
    assert "rebalancing of cluster east" == await described.static_summary()
    assert ("FREE", 60) == (await described.memo_value("goals"), await described.memo_value("moves per hour"))
    assert 5 == described.raw_description.workflow_execution_info.priority.priority_key
