"""Topics of the overview: current state, and time series."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc.aio
from google.protobuf.json_format import MessageToDict

from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.history import history_pb2
from peloton.api.v0.overview import overview_pb2
from services.web.api import TIMEOUT_S, Api
from services.web.topics.history import Values, start_of, with_gaps

OF_JOB = overview_pb2.SUBJECT_KIND_JOB
QUANTITIES: dict[int, str] = {
    history_pb2.QUANTITY_REGISTERED: "registered",
    history_pb2.QUANTITY_CAPACITY: "capacity",
    history_pb2.QUANTITY_ALLOCATION: "allocation",
    history_pb2.QUANTITY_SLACK_ALLOCATION: "slackAllocation",
    history_pb2.QUANTITY_USE: "use",
    history_pb2.QUANTITY_SLACK: "slack",
}


async def read(api: Api, _: str) -> Any:
    """Return ``overview``: problems, sums, counts and leaders; ``demand`` of waiting pods by kind.

    ``demand`` is empty while the resource manager does not answer.
    """
    overview, demand = await asyncio.gather(
        api.overview.GetOverview(overview_pb2.GetOverviewRequest(), timeout=TIMEOUT_S), _demand(api)
    )
    for role in overview.roles:
        role.ClearField("seconds_left")  # it changes with each poll; only the leader is shown
    return {"overview": MessageToDict(overview), "demand": demand}


async def read_problems(api: Api, job_id: str) -> Any:
    """Return the problems of a job or service in the overview, the worst first."""
    overview = await api.overview.GetOverview(overview_pb2.GetOverviewRequest(), timeout=TIMEOUT_S)
    mine = [one for one in overview.problems if one.subject_kind == OF_JOB and one.subject_id == job_id]
    return [MessageToDict(one) for one in mine]


async def _demand(api: Api) -> dict[str, float]:
    try:
        answer = await api.explain.PoolTree(explain_pb2.PoolTreeRequest(), timeout=TIMEOUT_S)
    except grpc.aio.AioRpcError:
        return {}
    return {one.kind: one.demand for one in answer.pools[0].amounts} if answer.pools else {}


async def over_time(api: Api, argument: str) -> Any:
    """Return sums over the clusters for ``HOURS/KIND``.

    A quantity that was 0 throughout is left out; a value is null where no sample was recorded. ``missing`` counts, by
    cluster, the intervals without its samples after its first one.
    """
    hours, _, kind = argument.partition("/")
    request = history_pb2.GetClusterHistoryRequest(kinds=[kind], start=start_of(hours))
    answer = await api.history.GetClusterHistory(request, timeout=TIMEOUT_S)
    covered_s = [max(each) for each in zip(*(one.covered_s for one in answer.clusters), strict=True)]
    return {
        "start": answer.start,
        "stepS": answer.step_s,
        "count": answer.count,
        "isRecorded": any(covered_s),
        "series": _sum(answer.clusters, covered_s),
        "missing": _missing(answer.clusters, covered_s),
    }


def _sum(clusters: Sequence[history_pb2.ClusterHistory], covered_s: Sequence[int]) -> dict[str, Values]:
    columns: dict[int, list[Sequence[float]]] = {}
    for one in clusters:
        for column in one.columns:
            columns.setdefault(column.quantity, []).append(column.values)
    return {
        name: with_gaps([sum(values) for values in zip(*columns[quantity], strict=True)], covered_s)
        for quantity, name in QUANTITIES.items()
        if quantity in columns
    }


def _missing(clusters: Sequence[history_pb2.ClusterHistory], covered_s: Sequence[int]) -> dict[str, int]:
    found = {}
    for one in clusters:
        first = next((at for at, covered in enumerate(one.covered_s) if covered), len(covered_s))
        mine = zip(one.covered_s[first:], covered_s[first:], strict=True)
        found[one.cluster] = sum(1 for own, of_any in mine if of_any and not own)
    return {name: count for name, count in found.items() if count}
