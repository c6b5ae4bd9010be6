"""Stories of a host's maintenance on a real Temporal server; they are also the recipes of its recorded histories."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from temporalio.client import Client, WorkflowHandle

from peloton.model.host import HostState
from peloton.model.ids import Hostname, maintenance_workflow_id
from peloton.model.maintenance import MaintenanceAct
from services.wakers.lifecycles import MAINTENANCE
from services.wakers.wake_line import Rank
from services.wakers.waker import Waker
from services.worker.worker import build_workers, run_workers
from tests.workflow.cluster import Cluster
from tests.workflow.maintained import CLUSTER, MaintainedHost
from tests.workflow.server import POLL_PERIOD_S, SLOTS, TIMEOUT_S, RealClock, histories_of, replay, wait_until
from tests.workflow.stories import ports_on
from workflows.maintenance import HostMaintenanceWorkflow, MaintenanceResult
from workflows.policies import Policies

QUICK = Policies(retry_s=0.2, retry_max_s=1.0, look_again_s=POLL_PERIOD_S)


class ServerStory:
    def __init__(self, client: Client, host: MaintainedHost) -> None:
        self.client, self.host = client, host

    @property
    def workflow_id(self) -> str:
        return maintenance_workflow_id(CLUSTER, self.host.name)

    @property
    def handle(self) -> WorkflowHandle[HostMaintenanceWorkflow, MaintenanceResult]:
        return self.client.get_workflow_handle_for(HostMaintenanceWorkflow.run, self.workflow_id)

    async def state(self, state: HostState) -> None:
        await wait_until(lambda: self.host.row is not None and self.host.row.state is state, f"the host {state}")

    async def complete(self) -> MaintenanceResult:
        await self.state(HostState.DOWN)
        self.host.act(MaintenanceAct.COMPLETE)
        return await self.result()

    async def result(self) -> MaintenanceResult:
        async with asyncio.timeout(TIMEOUT_S):
            return await self.handle.result()


@asynccontextmanager
async def maintenance_story(
    client: Client, name: str, policies: Policies = QUICK, *, pods: int = 3, turn: bool = True, to_pool: str = ""
) -> AsyncIterator[ServerStory]:
    """One host, its workflow on a server, a worker and a waker; at the end its histories are replayed."""
    clock = RealClock()
    host = MaintainedHost(clock, Hostname(name), pods=pods, turn=turn, back_s=0.1)
    queue = f"test-{uuid.uuid4()}"
    stored: Any = SimpleNamespace(maintenance=host)
    waker = Waker(MAINTENANCE, client, stored, policies, rank=Rank.PEOPLE, interval_s=0.05, task_queue=queue)
    host.notify = lambda: waker.wake([f"{CLUSTER}/{host.name}"])
    host.request(to_pool)
    try:
        workers = build_workers(client, ports_on(Cluster(clock), host), {queue: SLOTS})
        async with run_workers(workers):
            story = ServerStory(client, host)
            yield story
        for history in await histories_of(client, story.workflow_id):
            await replay(history)
    finally:
        await waker.close()


async def maintenance_completed(client: Client) -> str:
    """Three pods of a service leave one by one, the host goes down, and comes back when it is completed."""
    async with maintenance_story(client, "host1") as story:
        assert await story.complete() == MaintenanceResult(was_down=True)
        assert story.host.away_most == 1
    return story.workflow_id


async def maintenance_waited_and_cancelled(client: Client) -> str:
    """The host waits for its turn, drains for a while, and stays up when the maintenance is cancelled."""
    async with maintenance_story(client, "host2", turn=False, pods=9) as story:
        await wait_until(lambda: story.host.calls["cordon"] >= 1, "a wait for its turn")
        story.host.give_turn()
        await wait_until(lambda: story.host.away + story.host.leaving > 0, "a pod that leaves")
        story.host.act(MaintenanceAct.CANCEL)
        assert await story.result() == MaintenanceResult(was_down=False)
    return story.workflow_id


async def maintenance_forced_with_failing_calls(client: Client) -> str:
    """Every step fails once; then all pods leave at once; several runs by continue-as-new."""
    policies = replace(QUICK, history_events_max=60)
    async with maintenance_story(client, "host3", policies, pods=6) as story:
        story.host.outages.update(read=1, cordon=1, drain=1, take_down=1, bring_up=1)
        await wait_until(lambda: story.host.staying < 6, "a pod that left")
        story.host.act(MaintenanceAct.FORCE)
        assert await story.complete() == MaintenanceResult(was_down=True)
        assert story.host.away_most > 1
    return story.workflow_id


async def maintenance_workflow_cancelled(client: Client) -> str:
    """The workflow is cancelled, as in the Web UI, while the host is drained: the host stays up."""
    async with maintenance_story(client, "host4", pods=9) as story:
        await wait_until(lambda: story.host.away + story.host.leaving > 0, "a pod that leaves")
        story.host.notify = lambda: None  # a wake-up after its end would start another workflow
        await story.handle.cancel()
        assert await story.result() == MaintenanceResult(was_down=False)
    return story.workflow_id


async def host_moved(client: Client) -> str:
    """Three pods of a service leave one by one, and the host comes back in another host pool; every step fails once."""
    async with maintenance_story(client, "host5", to_pool="batch") as story:
        story.host.outages.update(read=1, cordon=1, drain=1, relabel=1, bring_up=1)
        await story.state(HostState.DRAINING)
        assert await story.result() == MaintenanceResult(was_down=False)
        assert story.host.steps == ["DRAINING", "DRAINED", "in batch", "UP"]
        assert story.host.away_most == 1
    return story.workflow_id


RECIPES: tuple[Callable[[Client], Awaitable[str]], ...] = (
    maintenance_completed,
    maintenance_waited_and_cancelled,
    maintenance_forced_with_failing_calls,
    maintenance_workflow_cancelled,
    host_moved,
)
