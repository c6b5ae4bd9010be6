"""A cluster that is rebalanced, and the ports of its workflow on it. The rules are in ``peloton.lifecycle``."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from peloton.errors import Aborted, NotFound
from peloton.lifecycle.rebalance import HOUR_S, NS_PER_S, act_refusal, after_act, after_round, next_round
from peloton.model.rebalance import (
    Goal,
    Rebalance,
    RebalanceAct,
    RebalancePlan,
    RebalanceProgress,
    RebalanceSpec,
    RebalanceState,
)
from tests.workflow.cluster import Clock
from tests.workflow.counted_calls import CountedCalls

CLUSTER = "east"


class RebalancedCluster(CountedCalls):
    """``gains``: moves that plans would make in all. A pod that moves runs again ``away_s`` later, one after the other.
    Implements ``ports.ClusterRebalancer``, ``ClusterRebalancers`` and ``RebalanceRecords``."""

    def __init__(
        self, clock: Clock, gains: int = 4, *, per_hour: int = 60, at_once: int = 2, away_s: float = 3.0
    ) -> None:
        super().__init__()
        self.clock, self.gains, self.at_once, self.away_s = clock, gains, at_once, away_s
        self.notify: Callable[[], None] = lambda: None
        progress = RebalanceProgress(RebalanceState.RUNNING)
        self.row: Rebalance | None = Rebalance(CLUSTER, RebalanceSpec((Goal.FREE,), per_hour), progress=progress)
        self.begun_ns: list[int] = []
        self.moving = 0
        self.moving_most = 0
        self.last_ended_ns = 0

    def act(self, act: RebalanceAct) -> None:
        self._steer(act)
        self.notify()

    # ports.ClusterRebalancers, ports.ClusterRebalancer

    def controller(self, cluster: str) -> RebalancedCluster:
        assert CLUSTER == cluster
        return self

    def advance_rebalance(self) -> None:
        self._record_call("advance")
        with self.lock:
            if self.row is None or not self.row.is_active:
                return
            moves_max, _ = self._round(self.row)
            plan = None
            if moves_max:
                plan = RebalancePlan()
                for at in range(min(moves_max, self.gains, self.at_once)):
                    self._begin(at)
            row = replace(self.row, move_count=len(self.begun_ns))
            _, waiting_for = self._round(row)
            progress = after_round(row, self.moving, self._hour_count(), waiting_for, plan)
            self.row = replace(row, state=progress.state, progress=progress)

    def _begin(self, at: int) -> None:
        self.gains -= 1
        self.moving += 1
        self.moving_most = max(self.moving_most, self.moving)
        self.begun_ns.append(self.clock.now_ns())
        self.clock.after(self.away_s * (at + 1), self._end)

    def _end(self) -> None:
        with self.lock:
            self.moving -= 1
            self.last_ended_ns = self.clock.now_ns()

    def _round(self, row: Rebalance) -> tuple[int, str]:
        counts = self.moving, self._hour_count(), self.last_ended_ns
        return next_round(row.state, row.spec.moves_per_hour, *counts, self.clock.now_ns())

    def _hour_count(self) -> int:
        since_ns = self.clock.now_ns() - HOUR_S * NS_PER_S
        return sum(begun_ns > since_ns for begun_ns in self.begun_ns)

    # ports.RebalanceRecords

    def get(self, cluster: str) -> Rebalance | None:
        self._record_call("get")
        with self.lock:
            return self.row

    def steer(self, clusters: Collection[str], act: RebalanceAct) -> list[Rebalance]:
        self._record_call("steer")
        return [self._steer(act)]

    def _steer(self, act: RebalanceAct) -> Rebalance:
        with self.lock:
            if self.row is None:
                raise NotFound("gone")
            if refusal := act_refusal(act, CLUSTER, self.row.state):
                raise Aborted(refusal)
            state = after_act(self.row.state, act)
            self.row = replace(self.row, state=state, progress=replace(self.row.progress, state=state))
            return self.row
