"""Peloton's RebalanceService over real storage: the goals and states of each cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from peloton.api.v0.rebalance import rebalance_pb2 as pb
from peloton.api.v0.rebalance.rebalance_pb2_grpc import RebalanceServiceStub
from services.api.server import start
from services.storage.storage import Storage
from tests.unit.api_service.fakes import OneSandbox, RecordedWakes
from tests.unit.api_service.story import expect_refusal

Status = grpc.StatusCode


@pytest.fixture
def woken(wakes: RecordedWakes) -> list[str]:
    return wakes.rebalances


@pytest.fixture
async def address(storage: Storage, wakes: RecordedWakes, hosts: OneSandbox) -> AsyncIterator[str]:
    """Return the address of an api with two clusters, whose host managers do not answer."""
    server = await start(
        storage, wakes, lambda _: None, "127.0.0.1:0", hosts,
        clusters=lambda: {"east": "", "west": ""},
    )  # fmt: skip
    yield f"127.0.0.1:{server.port}"
    await server.stop(0)


@pytest.fixture
def rebalances(channel: grpc.aio.Channel) -> Any:
    return RebalanceServiceStub(channel)


async def test_it_is_off_by_default(rebalances: Any) -> None:
    """No cluster has a rebalancing by default, and steering is refused."""
    assert [] == list((await rebalances.QueryRebalance(pb.QueryRebalanceRequest())).rebalances)
    assert (Status.NOT_FOUND, "no cluster is being rebalanced") == await expect_refusal(
        rebalances.StopRebalance(pb.StopRebalanceRequest())
    )
    assert (Status.NOT_FOUND, "cluster east has never been rebalanced") == await expect_refusal(
        rebalances.PauseRebalance(pb.PauseRebalanceRequest(cluster="east"))
    )


async def test_all_clusters_or_one_are_started_and_steered(rebalances: Any, woken: list[str]) -> None:
    """Each cluster is started and steered by itself; the workflows are signalled after the commit."""
    found = (await rebalances.StartRebalance(pb.StartRebalanceRequest())).rebalances
    assert [("east", "RUNNING", [pb.GOAL_FREE], 60), ("west", "RUNNING", [pb.GOAL_FREE], 60)] == [
        (one.cluster, one.state, list(one.goals), one.moves_per_hour) for one in found
    ]
    again = pb.StartRebalanceRequest(cluster="west", goals=[pb.GOAL_EMPTY, pb.GOAL_FREE], moves_per_hour=5)
    (west,) = (await rebalances.StartRebalance(again)).rebalances
    assert ([pb.GOAL_FREE, pb.GOAL_EMPTY], 5) == (list(west.goals), west.moves_per_hour)

    (paused,) = (await rebalances.PauseRebalance(pb.PauseRebalanceRequest(cluster="east"))).rebalances
    (resumed,) = (await rebalances.ResumeRebalance(pb.ResumeRebalanceRequest(cluster="east"))).rebalances
    stopped = (await rebalances.StopRebalance(pb.StopRebalanceRequest())).rebalances
    assert ("PAUSED", "RUNNING", ["STOPPING", "STOPPING"]) == (
        paused.state,
        resumed.state,
        [one.state for one in stopped],
    )
    assert ["east", "west", "west", "east", "east", "east", "west"] == woken
    assert (
        Status.ABORTED,
        "the rebalancing of cluster east is STOPPING: start it",
    ) == await expect_refusal(rebalances.ResumeRebalance(pb.ResumeRebalanceRequest(cluster="east")))


async def test_what_cannot_be_meant_changes_nothing(rebalances: Any, woken: list[str]) -> None:
    """The error names object, rule and numbers."""
    for request, code, text in (
        (pb.StartRebalanceRequest(cluster="north"), Status.NOT_FOUND, "cluster north not found, but east, west"),
        (
            pb.StartRebalanceRequest(goals=[pb.GOAL_SPREAD, pb.GOAL_EMPTY]),
            Status.INVALID_ARGUMENT,
            "SPREAD and EMPTY undo each other: ask for one of them",
        ),
        (pb.StartRebalanceRequest(goals=[cast("Any", 9)]), Status.INVALID_ARGUMENT, "goal 9 is not known"),
        (
            pb.StartRebalanceRequest(moves_per_hour=10_001),
            Status.INVALID_ARGUMENT,
            "moves_per_hour is 10001, at most 10000",
        ),
    ):
        assert (code, text) == await expect_refusal(rebalances.StartRebalance(request))
    assert (Status.INVALID_ARGUMENT, "moves_limit is 1001, at most 1000") == await expect_refusal(
        rebalances.QueryRebalance(pb.QueryRebalanceRequest(moves_limit=1_001))
    )
    assert ([], []) == (woken, list((await rebalances.QueryRebalance(pb.QueryRebalanceRequest())).rebalances))
