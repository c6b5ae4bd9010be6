"""The topics of the pages of pools: compact rows of the tree, an ordered queue, and series with gaps."""

from __future__ import annotations

import math
from typing import Any

import orjson
import pytest

from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.history import history_pb2
from peloton.errors import InvalidArgument
from services.web.topics import pools


class FakeApi:
    """The two stubs of the topics' calls, with a record of the requests."""

    def __init__(self, **answers: Any) -> None:
        self._answers = answers
        self.requests: list[Any] = []
        self.explain = self.history = self

    def __getattr__(self, method: str) -> Any:
        async def answer(request: Any, timeout: float) -> Any:
            self.requests.append(request)
            return self._answers[method]

        return answer


def node(path: str, depth: int, is_leaf: bool, *amounts: explain_pb2.PoolAmounts) -> explain_pb2.PoolNode:
    return explain_pb2.PoolNode(path=path, depth=depth, isLeaf=is_leaf, queuedInstances=3, amounts=amounts)


async def test_the_tree_is_rows() -> None:
    """Kinds without amounts are omitted, and an unlimited amount is null, as JSON has no infinity."""
    cpu = explain_pb2.PoolAmounts(
        kind="cpu", reservation=10, limit=math.inf, share=2, entitlement=12, allocation=9, slackAllocation=1, demand=4
    )
    none = explain_pb2.PoolAmounts(kind="gpu", limit=math.inf, share=1)
    api: Any = FakeApi(PoolTree=explain_pb2.PoolTreeResponse(pools=[node("/a", 1, True, cpu, none)]))

    reported = await pools.tree(api, "")

    assert [["/a", 1, True, 0, 3, {"cpu": [10, None, 2, 12, 9, 1, 4]}]] == reported
    assert orjson.loads(orjson.dumps(reported)) == reported


async def test_a_pool_comes_with_its_queue() -> None:
    """The queue has a bounded length, in the API's form."""
    answer = explain_pb2.PoolWhyResponse(
        pool=node("/a/b", 2, True), waiting=[explain_pb2.WaitingGangs(gangCount=2, jobName="tiles")]
    )
    api: Any = FakeApi(PoolWhy=answer)

    reported = await pools.pool(api, "/a/b")

    assert [{"gangCount": 2, "jobName": "tiles"}] == reported["waiting"]
    (request,) = api.requests
    assert ("/a/b", pools.QUEUE_SHOWN) == (request.path.value, request.queueLimit)


async def test_series_have_gaps_and_marks() -> None:
    """The series are of the pool and of the pools below it; an inner pool has the marks of the pools below, each
    once."""
    column = history_pb2.Column(quantity=history_pb2.QUANTITY_ALLOCATION, kind="cpu", values=[1.00049, 0, 2])
    ignored = history_pb2.Column(quantity=history_pb2.QUANTITY_ADMITTED, values=[1, 0, 1])
    mark = history_pb2.Preemption(index=2, for_pool="/c", instances=5)
    own = history_pb2.PoolHistory(path="/a", covered_s=[60, 0, 60], columns=[column, ignored], preemptions=[mark])
    below = history_pb2.PoolHistory(path="/a/b", covered_s=[0, 0, 0], preemptions=[mark])
    answer = history_pb2.GetPoolHistoryResponse(start="2026-01-31T08:00:00Z", step_s=60, count=3, pools=[own, below])
    api: Any = FakeApi(GetPoolHistory=answer)

    reported = await pools.over_time(api, "6/cpu/a")

    nothing = [0, None, 0]
    own_amounts = {"allocation": [1.0, None, 2], "entitlement": nothing, "reservation": nothing}
    assert {"path": "/a", "isRecorded": True, **own_amounts} == reported["pools"][0]
    assert {"path": "/a/b", "isRecorded": False, "allocation": [None] * 3} == reported["pools"][1]
    assert [[2, "/a/b", "/c", 5]] == reported["marks"]
    (request,) = api.requests
    assert (["/a"], ["cpu"], 1) == (request.paths, request.kinds, request.levels)


async def test_other_hours_are_refused() -> None:
    """Other numbers of hours are refused, since each range is a topic that is polled."""
    api: Any = FakeApi()
    with pytest.raises(InvalidArgument, match="'7' hours: want 1, 6, 24, 168, 720, 8760"):
        await pools.over_time(api, "7/cpu/a")


async def test_series_of_a_kind_with_a_prefix() -> None:
    """The argument of the topic percent-encodes a kind that contains a slash."""
    answer = history_pb2.GetPoolHistoryResponse(start="2026-01-31T08:00:00Z", step_s=60, count=1)
    api: Any = FakeApi(GetPoolHistory=answer)

    await pools.over_time(api, "6/license%2Fmatlab/a/b")

    (request,) = api.requests
    assert (["/a/b"], ["license/matlab"]) == (request.paths, request.kinds)
