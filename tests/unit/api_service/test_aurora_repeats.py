"""Repeated starts of updates, whose bridges died or whose answers are known, and two bridges at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from services.aurorabridge.mapping import opaque
from services.aurorabridge.method import Refusal
from services.aurorabridge.thrift import api
from services.storage.storage import Storage
from tests.conformance.storage.services import turn
from tests.nightly import nightly
from tests.unit.api_service.aurora import INVALID, Bridge, Died, Make, finish, jobs_named, other_request, updates
from tests.unit.aurorabridge.scenario import KEY, task_config, update_request

pytestmark = pytest.mark.slow

CLIENTS = 50
"""Clients that start updates at the same time; the api takes 64 writes at a time."""


async def test_a_bridge_that_dies_amid_a_start_has_made_one_update_when_it_is_called_again(
    make_bridge: Make, storage: Storage
) -> None:
    """The bridge dies before or after each of its calls, in a creation and in a replacement."""
    await _die_in_each_step(make_bridge, storage, update_request(), 0)
    finish(storage)
    await _die_in_each_step(make_bridge, storage, other_request(updateGroupSize=1), 1)


async def _die_in_each_step(make_bridge: Make, storage: Storage, request: Any, before: int) -> None:
    for step in range(100):
        for when in ("before", "after"):
            mortal = make_bridge(dies=(step, when))
            try:
                answered = await mortal.start(request, "deploy")
            except Died:
                continue
            assert step > 2, "the bridge takes several steps"
            assert before + 1 == len(updates(storage))
            assert answered == opaque.decode(updates(storage)[-1].opaque_data).update_id
            return
    raise AssertionError("the start never ends")


async def test_a_repeated_start_answers_the_update_that_has_ended(make_bridge: Make, storage: Storage) -> None:
    """A client may repeat its call after the update that it did not hear of has succeeded."""
    await make_bridge().start()
    update = finish(storage)

    assert opaque.decode(update.opaque_data).update_id == await make_bridge().start()
    assert len(updates(storage)) == 1


@pytest.mark.parametrize("ending", ["abort", "kill", "old", "other", "rollback"])
async def test_a_start_after_other_calls_is_a_new_one(
    make_bridge: Make, storage: Storage, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """A bridge that does not know whether the first start was answered asks what became of it."""
    first = make_bridge()
    await first.start()
    finish(storage)
    update_id = await first.start(other_request())
    if ending == "abort":
        await first.steer("abortJobUpdate", update_id)
    elif ending == "rollback":
        await first.steer("rollbackJobUpdate", update_id)
    elif ending == "kill":
        finish(storage)
        await first.call("killTasks", job=KEY, instances=[1])
        turn(storage, jobs_named(storage)[0])
    elif ending == "old":
        monkeypatch.setattr("services.aurorabridge.mapping.repeats.WINDOW_S", -1)
    known = len(updates(storage))
    again = await make_bridge().start(other_request(updateGroupSize=2) if ending == "other" else other_request())

    assert update_id != again
    assert known + 1 == len(updates(storage))


async def test_the_id_of_aurora_s_client_is_recognised_always(bridge: Bridge, storage: Storage) -> None:
    """Aurora's client gives each update an id, which tells its repeated calls from new ones."""
    metadata = [api.Metadata(key="org.apache.aurora.client.update_id", value="c-1")]
    request = update_request(metadata=metadata)

    assert await bridge.start(request) == await bridge.start(request)
    assert len(updates(storage)) == 1


@pytest.mark.parametrize(("jobs", "when"), [(30, "before"), (30, "after"), nightly(200, "after")])
async def test_a_bridge_that_dies_amid_many_starts_loses_none(
    make_bridge: Make, storage: Storage, jobs: int, when: str
) -> None:
    """Clients whose calls it took call the other bridge; each job has one update, whose id its client knows."""
    keys = [api.JobKey(role="ads", environment="prod", name=f"web-{number}") for number in range(jobs)]
    mortal, other = make_bridge(dies=(5 * jobs // 2, when)), make_bridge()  # three calls for each job
    known: dict[str, str] = {}
    lost, clients = 0, asyncio.Semaphore(CLIENTS)

    async def start(key: Any) -> None:
        nonlocal lost
        request = update_request(task_config(job=key), 1)
        async with clients:
            try:
                result = await mortal.call("startJobUpdate", request=request)
            except Died:
                lost += 1
                result = await other.call("startJobUpdate", request=request)
        known[key.name] = result.startJobUpdateResult.key.id

    await asyncio.gather(*map(start, keys))

    assert 0 < lost < len(keys)
    for key in keys:
        (job_id,) = storage.search.services_named(f"ads/prod/{key.name}")
        (update,) = storage.updates.of_job(job_id)
        assert known[key.name] == opaque.decode(update.opaque_data).update_id


async def test_two_bridges_create_a_job_once(make_bridge: Make, storage: Storage) -> None:
    """One of two creations is refused when both found no job."""
    outcomes = await _start_together(make_bridge, storage)

    assert [INVALID, "started"] == sorted(outcomes, key=str)
    assert (1, 1) == (len(jobs_named(storage)), len(updates(storage)))


async def test_two_bridges_replace_a_spec_once(make_bridge: Make, storage: Storage) -> None:
    """One of two replacements that read the same version is refused."""
    await make_bridge().start()
    finish(storage)
    outcomes = await _start_together(make_bridge, storage)

    assert [INVALID, "started"] == sorted(outcomes, key=str)
    assert 2 == len(updates(storage))


async def _start_together(make_bridge: Make, storage: Storage) -> list[Any]:
    """Start two different updates, whose writes begin when both have read the job."""
    both = asyncio.Barrier(2)
    outcomes: list[str | int] = []

    async def start(bridge: Bridge, request: Any) -> None:
        for name in ("CreateJob", "ReplaceJob"):
            write = getattr(bridge.jobs, name)

            async def wait(request: Any, write: Any = write) -> Any:
                await both.wait()
                return await write(request)

            setattr(bridge.jobs, name, wait)
        try:
            await bridge.start(request)
            outcomes.append("started")
        except Refusal as refused:
            outcomes.append(refused.code)

    await asyncio.gather(
        start(make_bridge(), other_request(updateGroupSize=1)), start(make_bridge(), other_request(updateGroupSize=2))
    )
    return outcomes
