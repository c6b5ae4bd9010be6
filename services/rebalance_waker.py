"""Starts and signals the workflows of rebalancing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from temporalio.client import Client
from temporalio.common import Priority

from peloton.model.ids import rebalance_workflow_id
from peloton.model.rebalance import Rebalance
from services.temporal import MAINTENANCE_QUEUE, START_OR_TELL
from services.wake_line import Rank
from services.waker import Waker
from services.workflow_labels import RebalanceLabels
from workflows.policies import REBALANCE_PRIORITY, Policies
from workflows.rebalance import RebalanceInput, RebalanceWorkflow


async def wake_rebalance(
    client: Client, rebalance: Rebalance, policies: Policies, task_queue: str = MAINTENANCE_QUEUE
) -> None:
    """Start the workflow of a cluster's rebalancing, or signal the running one. A run that is about to end handles the
    signal first.
    """
    labels = RebalanceLabels(rebalance)
    await client.start_workflow(
        RebalanceWorkflow.run,
        RebalanceInput(rebalance.cluster, policies),
        id=rebalance_workflow_id(rebalance.cluster),
        task_queue=task_queue,
        priority=Priority(priority_key=REBALANCE_PRIORITY, fairness_key=rebalance.cluster),
        **START_OR_TELL,
        static_summary=labels.summary,
        static_details=labels.details,
        search_attributes=labels.attributes,
        memo=labels.memo,
    )


class RebalanceWaker(Waker):
    def __init__(
        self, client: Client, find: Callable[[str], Rebalance | None], policies: Policies, interval_s: float = 0.25
    ) -> None:
        super().__init__(client, policies, interval_s, Rank.PEOPLE)
        self._find = find

    def rebalances_changed(self, clusters: Iterable[str]) -> None:
        """Queue a signal to the workflow of each cluster, without blocking; it is retried until Temporal accepts it."""
        self._note(clusters, "people changed the rebalancing, or a role came up")

    async def _tell(self, key: str) -> None:
        """Signal an active rebalancing. An inactive one needs no signal: its workflow has ended or is about to."""
        rebalance = await asyncio.to_thread(self._find, key)
        if rebalance is not None and rebalance.is_active:
            await wake_rebalance(self._client, rebalance, self._policies)
