"""Requests of users by workflow updates on a real Temporal server; they are the recipes of recorded histories, too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHistory, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from peloton.model.host import HostState
from peloton.model.ids import JobId, maintenance_workflow_id, update_workflow_id
from tests.workflow.maintained import CLUSTER
from tests.workflow.maintenance_stories import maintenance_story
from tests.workflow.server import histories_of, server_story, wait_until

EVENTS = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED: "accepted",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED: "completed",
}


async def ask(client: Client, workflow_id: str, name: str, *args: object, request_id: str = "") -> dict[str, Any]:
    handle = client.get_workflow_handle(workflow_id)
    answer: dict[str, Any] = await handle.execute_update(name, args=args, id=request_id or None)
    return answer


async def refusal(client: Client, workflow_id: str, name: str, *args: object) -> str:
    """Return the message that a user reads when the request is refused."""
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await ask(client, workflow_id, name, *args)
    assert isinstance(refused.value.cause, ApplicationError)
    return refused.value.cause.message


def updates_in(histories: list[WorkflowHistory]) -> list[str]:
    return [EVENTS[event.event_type] for history in histories for event in history.events if event.event_type in EVENTS]


async def update_asked_by_people(client: Client) -> JobId:
    """A rollout is paused, by a request that is sent twice, resumed and rolled back, and its job stopped. Requests are
    refused by the workflow and by the rows."""
    async with server_story(client, run_s=600.0) as story:
        job = await story.submit(1)
        rollout, service = update_workflow_id(job), story.service(job, 6)
        service.roll_out(1)
        await wait_until(lambda: service.versions.count(2) >= 1, "an instance of the new version")
        paused = [await ask(client, rollout, "pause", request_id="once") for _ in range(2)]
        assert ["PAUSED"] * 2 == [answer["state"] for answer in paused]
        assert 1 == story.cluster.calls["steer"]
        assert "needs no pulses" in await refusal(client, rollout, "pulse")
        assert "is not the latest" in await refusal(client, rollout, "resume", "update7")
        service.away_s = 600.0  # so that the rollout does not end before it is rolled back
        assert "update1" == (await ask(client, rollout, "resume", "update1"))["update_id"]
        await wait_until(lambda: service.is_unavailable(2), "the next instance to be replaced")
        service.away_s = 0.1
        assert "update2" == (await ask(client, rollout, "roll_back"))["update_id"]
        await story.rolled_out(job, "update2")
        told = updates_in(await histories_of(client, rollout))
        assert told.count("accepted") == told.count("completed") in (4, 5)  # the rows may have recorded the pulse
        story.cluster.stop_refusal = "it is refused by the rows"
        assert story.cluster.stop_refusal == await refusal(client, story.handle(job).id, "stop")
        story.cluster.stop_refusal = ""
        assert "KILLED" == (await ask(client, story.handle(job).id, "stop"))["goal"]
        await story.result(job)
    return job


async def maintenance_asked_by_people(client: Client) -> str:
    """The operator completes the maintenance too early, and again when the host is DOWN."""
    async with maintenance_story(client, "host6", turn=False) as story:
        await wait_until(lambda: story.host.calls["cordon"] >= 1, "a wait for its turn")
        workflow_id = maintenance_workflow_id(CLUSTER, "host6")
        assert "Host is not DOWN" == await refusal(client, workflow_id, "complete")
        story.host.give_turn()
        await story.state(HostState.DOWN)
        assert "UP" == (await ask(client, workflow_id, "complete"))["goal"]
        assert (await story.result()).was_down
    return story.workflow_id


RECIPES: tuple[Callable[[Client], Awaitable[JobId | str]], ...] = (update_asked_by_people, maintenance_asked_by_people)
