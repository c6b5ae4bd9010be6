"""Peloton's RebalanceService: host managers plan; the requests for each cluster are stored here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from peloton.api.convert_rebalance import GOAL_NUMBERS, goals_of
from peloton.api.convert_time import rfc3339
from peloton.api.service_names import REBALANCE_SERVICE
from peloton.api.v0.rebalance import rebalance_pb2 as pb
from peloton.errors import InvalidArgument, NotFound, Reason
from peloton.lifecycle.rebalance import PER_HOUR_DEFAULT, PER_HOUR_MAX, goals_refusal
from peloton.model.rebalance import Goal, MoveRecord, Rebalance, RebalanceAct, RebalanceSpec
from peloton.model.text import shorten
from services.api.calls import Calls, check_wanted
from services.api.servicer import write
from services.storage.moves.rebalances import Rebalances

MOVES_DEFAULT, MOVES_MAX = 20, 1_000
"""Default and maximum number of latest moves in the answer to a query."""
NAME_MAX = 200
PLAN = f"/{REBALANCE_SERVICE[0]}/PlanRebalance"
HostManagers = Callable[[str, bytes, Any], Awaitable[bytes]]
"""Function that answers a call like host managers: method, request, context."""


class RebalanceService:
    def __init__(
        self,
        records: Rebalances,
        hosts: HostManagers,
        clusters: Callable[[], Awaitable[Mapping[str, str]]],
        calls: Calls,
        changed: Callable[[Iterable[str]], None],
    ) -> None:
        """Create the service; ``changed`` wakes the workflows of the clusters and never blocks."""
        self._records, self._hosts, self._clusters = records, hosts, clusters
        self._calls, self._changed = calls, changed

    async def PlanRebalance(self, request: pb.PlanRebalanceRequest, context: Any) -> bytes:
        return await self._hosts(PLAN, request.SerializeToString(), context)

    @write
    async def StartRebalance(self, request: pb.StartRebalanceRequest, context: Any) -> pb.StartRebalanceResponse:
        spec, known = _spec(request), await self._clusters()
        if not known:
            raise NotFound("no cluster is known")
        if request.cluster and request.cluster not in known:
            named = request.cluster[:NAME_MAX]
            raise NotFound(f"cluster {shorten(named)} not found, but {', '.join(sorted(known))}").because(
                Reason.CLUSTER_NOT_FOUND, cluster=named
            )
        check_wanted(context)
        found = await self._calls.run(self._records.start, [request.cluster] if request.cluster else list(known), spec)
        return pb.StartRebalanceResponse(rebalances=self._notify(found))

    @write
    async def PauseRebalance(self, request: pb.PauseRebalanceRequest, context: Any) -> pb.PauseRebalanceResponse:
        return pb.PauseRebalanceResponse(rebalances=await self._steer(request.cluster, RebalanceAct.PAUSE))

    @write
    async def ResumeRebalance(self, request: pb.ResumeRebalanceRequest, context: Any) -> pb.ResumeRebalanceResponse:
        return pb.ResumeRebalanceResponse(rebalances=await self._steer(request.cluster, RebalanceAct.RESUME))

    @write
    async def StopRebalance(self, request: pb.StopRebalanceRequest, context: Any) -> pb.StopRebalanceResponse:
        return pb.StopRebalanceResponse(rebalances=await self._steer(request.cluster, RebalanceAct.STOP))

    async def QueryRebalance(self, request: pb.QueryRebalanceRequest, context: Any) -> pb.QueryRebalanceResponse:
        if request.moves_limit > MOVES_MAX:
            raise InvalidArgument(f"moves_limit is {request.moves_limit}, at most {MOVES_MAX}")
        found = [one for one in await self._calls.run(self._records.all) if request.cluster in ("", one.cluster)]
        answer = pb.QueryRebalanceResponse()
        for one in found:
            moves = await self._calls.run(self._records.moves, one.cluster, request.moves_limit or MOVES_DEFAULT)
            answer.rebalances.append(_wire(one, moves))
        return answer

    async def _steer(self, cluster: str, act: RebalanceAct) -> list[pb.Rebalance]:
        """Apply an action to a cluster, or to all with an active rebalancing. Raises NotFound, Aborted."""
        if cluster:
            return self._notify(await self._calls.run(self._records.steer, [cluster[:NAME_MAX]], act))
        active = [one.cluster for one in await self._calls.run(self._records.all) if one.is_active]
        if not active:
            raise NotFound("no cluster is being rebalanced")
        return self._notify(await self._calls.run(self._records.steer, active, act))

    def _notify(self, found: Iterable[Rebalance]) -> list[pb.Rebalance]:
        rows = list(found)
        self._changed([one.cluster for one in rows])
        return [_wire(one) for one in rows]


def _spec(request: pb.StartRebalanceRequest) -> RebalanceSpec:
    goals = goals_of(request.goals)
    if refusal := goals_refusal(goals):
        raise InvalidArgument(refusal)
    if request.moves_per_hour > PER_HOUR_MAX:
        raise InvalidArgument(f"moves_per_hour is {request.moves_per_hour}, at most {PER_HOUR_MAX}")
    return RebalanceSpec(tuple(goal for goal in Goal if goal in goals), request.moves_per_hour or PER_HOUR_DEFAULT)


# -- to the wire -----------------------------------------------------------------------------------------------------


def _wire(one: Rebalance, moves: Iterable[MoveRecord] = ()) -> pb.Rebalance:
    progress = one.progress
    return pb.Rebalance(
        cluster=one.cluster,
        state=one.state,
        goals=[GOAL_NUMBERS[goal] for goal in one.spec.goals],
        moves_per_hour=one.spec.moves_per_hour,
        move_count=one.move_count,
        moving_count=progress.moving_count,
        hour_count=progress.hour_count,
        waiting_for=progress.waiting_for,
        stuck_job_ids=progress.stuck,
        staying=[pb.Staying(reason=why, pod_count=count, cluster=one.cluster) for why, count in progress.staying],
        started_time=rfc3339(one.started_ns),
        updated_time=rfc3339(one.updated_ns),
        moves=map(_move, moves),
    )


def _move(move: MoveRecord) -> pb.PastMove:
    return pb.PastMove(
        job_id=move.pod_id.job_id,
        instance_id=move.pod_id.instance_id,
        source=move.source,
        target=move.target,
        goal=GOAL_NUMBERS[move.goal],
        reason=move.reason,
        state=move.state,
        begun_time=rfc3339(move.begun_ns),
        ended_time=rfc3339(move.ended_ns),
    )
