"""Stories of rebalancing on a real Temporal server; they are also the recipes of their recorded histories."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from temporalio.client import Client, WorkflowHandle

from peloton.model.ids import rebalance_workflow_id
from peloton.model.rebalance import RebalanceAct
from services.wakers.lifecycles import REBALANCE
from services.wakers.wake_line import Rank
from services.wakers.waker import Waker
from services.worker.worker import build_workers, run_workers
from tests.workflow.cluster import Cluster
from tests.workflow.rebalanced import CLUSTER, RebalancedCluster
from tests.workflow.server import POLL_PERIOD_S, SLOTS, TIMEOUT_S, RealClock, histories_of, replay, wait_until
from tests.workflow.stories import ports_on
from workflows.policies import Policies
from workflows.rebalance import RebalanceResult, RebalanceWorkflow

QUICK = Policies(retry_s=0.2, retry_max_s=1.0, look_again_s=POLL_PERIOD_S)


@dataclass
class ServerStory:
    client: Client
    cluster: RebalancedCluster

    @property
    def handle(self) -> WorkflowHandle[RebalanceWorkflow, RebalanceResult]:
        return self.client.get_workflow_handle_for(RebalanceWorkflow.run, rebalance_workflow_id(CLUSTER))

    async def moved(self, count: int) -> None:
        cluster = self.cluster
        await wait_until(lambda: len(cluster.begun_ns) == count and not cluster.moving, f"{count} moves")

    async def result(self) -> RebalanceResult:
        async with asyncio.timeout(TIMEOUT_S):
            return await self.handle.result()


@asynccontextmanager
async def rebalance_story(
    client: Client, policies: Policies = QUICK, task_queue: str = ""
) -> AsyncIterator[ServerStory]:
    """A cluster with two pods to move, its workflow on a server, a worker and a waker; at the end its histories are
    replayed."""
    clock = RealClock()
    cluster = RebalancedCluster(clock, gains=2, away_s=0.3)
    queue = task_queue or f"test-{uuid.uuid4()}"
    stored: Any = SimpleNamespace(rebalances=cluster)
    waker = Waker(REBALANCE, client, stored, policies, rank=Rank.PEOPLE, interval_s=0.05, task_queue=queue)
    cluster.notify = lambda: waker.wake([CLUSTER])
    ports = replace(ports_on(Cluster(clock)), rebalancers=cluster, rebalances=cluster)
    try:
        async with run_workers(build_workers(client, ports, {queue: SLOTS})):
            cluster.notify()
            await wait_until(lambda: cluster.calls["advance"] > 0, "its first step")
            yield ServerStory(client, cluster)
        for history in await histories_of(client, rebalance_workflow_id(CLUSTER)):
            await replay(history)
    finally:
        await waker.close()


async def rebalance_paused_and_stopped(client: Client) -> str:
    """Two pods move, with a call that fails; a pause, a resumption and a stop; several runs by continue-as-new."""
    async with rebalance_story(client, replace(QUICK, history_events_max=30)) as story:
        story.cluster.outages.update(advance=1)
        await story.moved(2)
        for act in (RebalanceAct.PAUSE, RebalanceAct.RESUME, RebalanceAct.STOP):
            looks = story.cluster.calls["advance"]
            story.cluster.act(act)
            await wait_until(lambda looks=looks: story.cluster.calls["advance"] > looks, "a look")
        assert RebalanceResult(2) == await story.result()
    return rebalance_workflow_id(CLUSTER)


async def rebalance_cancelled(client: Client) -> str:
    """The workflow is cancelled, as in the Web UI, while pods are on their way."""
    async with rebalance_story(client) as story:
        await wait_until(lambda: story.cluster.moving > 0, "a pod on its way")
        await story.handle.cancel()
        assert (RebalanceResult(2), 0) == (await story.result(), story.cluster.moving)
    return rebalance_workflow_id(CLUSTER)


RECIPES: tuple[Callable[[Client], Awaitable[str]], ...] = (rebalance_paused_and_stopped, rebalance_cancelled)
