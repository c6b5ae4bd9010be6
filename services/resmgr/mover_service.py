"""MoverService: the switch of the mover of host pools, its view, its decisions, and the moves it would make."""

from __future__ import annotations

import asyncio

import grpc.aio

from peloton.api.convert_time import rfc3339
from peloton.api.v0.mover import mover_pb2 as pb
from peloton.model.host_pool import HostPools
from peloton.model.mover import Made
from peloton.scheduling.host_demand import lent_to, moving_count
from peloton.scheduling.mover import HostPoolLoad, Shift, shift_text
from services.resmgr.host_mover import HostMover, MoverSnapshot
from services.storage.hosts.mover import MoverRecords

MADE_MAX = 100
"""Limit of the past moves in an answer."""

Context = grpc.aio.ServicerContext[object, object]


class MoverService:
    """The servicer: one asynchronous method per RPC, under the RPC's name."""

    def __init__(self, mover: HostMover, records: MoverRecords) -> None:
        self._mover, self._records = mover, records

    async def Switch(self, request: pb.SwitchRequest, context: Context) -> pb.SwitchResponse:
        await self._mover.read()  # raises if host pools are not in use
        await asyncio.to_thread(self._records.switch, request.on)
        return pb.SwitchResponse()

    async def Query(self, request: pb.QueryRequest, context: Context) -> pb.QueryResponse:
        snapshot = await self._mover.read()
        pools = snapshot.demand.pools
        return pb.QueryResponse(
            on=pools.is_mover_on,
            pools=[
                *(self._pool(now, pools, True, self._state(now, snapshot)) for now in snapshot.takers),
                *(self._pool(now, pools, False, self._state(now, snapshot)) for now in snapshot.givers),
            ],
            planned=[self._shift(shift) for shift in self._mover.plan_all(snapshot)],
            made=[_move_to_wire(one) for one in snapshot.made[:MADE_MAX]],
        )

    def _state(self, now: HostPoolLoad, snapshot: MoverSnapshot) -> str:
        return self._mover.state_of(now, snapshot) if snapshot.demand.pools.is_mover_on else ""

    @staticmethod
    def _pool(now: HostPoolLoad, pools: HostPools, takes: bool, state: str) -> pb.Pool:
        return pb.Pool(
            name=now.name,
            takes=takes,
            host_count=now.host_count,
            minimum=now.minimum,
            used_percent=now.used_percent,
            marked_count=now.marked_count,
            red_count=now.red_count,
            waiting_count=now.waiting_count,
            slow_count=now.slow_count,
            moving_count=moving_count({now.name}, pools),
            lent=lent_to(now.name, pools),
            state=state,
        )

    def _shift(self, shift: Shift) -> pb.Shift:
        return pb.Shift(
            source=shift.source,
            destination=shift.destination,
            host_count=shift.count,
            rule=shift.rule,
            reason=shift_text(shift, self._mover.policy),
        )


def _move_to_wire(one: Made) -> pb.Shift:
    return pb.Shift(
        source=one.source,
        destination=one.destination,
        host_count=len(one.hostnames),
        rule=one.rule,
        reason=one.reason,
        hostnames=one.hostnames,
        time=rfc3339(one.at_ns),
    )
