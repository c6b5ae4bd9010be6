"""The life of services while their cluster is rebalanced, by the real records and the real host manager."""

from __future__ import annotations

from typing import Any

from peloton.model.rebalance import Goal, RebalanceAct, RebalanceSpec
from services.hostmgr import rebalancer
from tests.simulation.hostmgr import NoListener
from tests.simulation.service_life import ROUNDS_TO_END_MAX, ServiceLife

CLUSTER = "local"
GOALS = ((Goal.FREE,), (Goal.FREE, Goal.SPREAD), (Goal.FREE, Goal.EMPTY), (Goal.SPREAD,), (Goal.EMPTY,))
REST_ROUNDS = 3
"""Rounds without a move after which the life has come to rest."""


class RebalancedLife(ServiceLife):
    def _lead(self) -> None:
        super()._lead()
        back = self.storage.host_pods.coming_back
        records, count_domains = self.storage.rebalances, self.core.count_domains
        kill = self.core.kill_evicted
        self.rebalancer = rebalancer.Rebalancer(
            self.core.cache, records, CLUSTER, back, NoListener(), count_domains, kill
        )

    def run_tasks(self) -> str:
        """Run the periodic steps, and a step of the rebalancing workflow with each of them."""
        said = super().run_tasks()
        self.steer()
        self.rebalancer.advance()
        return said + str(self.row())

    def steer(self) -> None:
        """Start, pause or stop the rebalancing, as users do."""
        drawn, records = self.random.random(), self.storage.rebalances
        if drawn < 0.3 or records.get(CLUSTER) is None:
            records.start([CLUSTER], RebalanceSpec(self.random.choice(GOALS), self.budget()))
        elif drawn < 0.4:
            records.steer([CLUSTER], self.random.choice(list(RebalanceAct)))

    def budget(self) -> int:
        """Return the moves per hour."""
        return 10_000

    def row(self) -> Any:
        row = self.storage.rebalances.get(CLUSTER)
        return row and (row.state, row.spec.goals, row.progress)

    def rest(self, *goals: Goal) -> int:
        """Run rounds without other acts until no pod moves; return how many moved."""
        self._lead()  # the end has checked memory with another one
        self._round()
        self.storage.rebalances.start([CLUSTER], RebalanceSpec(goals, 10_000))
        before, quiet = self._move_count(), 0
        with self._explain_failure():
            for _ in range(ROUNDS_TO_END_MAX):
                count = self._move_count()
                self.rebalancer.advance()
                for _ in range(4):
                    self._round()
                self.clock.pass_s(20)
                quiet = quiet + 1 if self._move_count() == count else 0
                if quiet > REST_ROUNDS:
                    return count - before
        raise AssertionError(f"seed {self.seed}: rebalancing for {goals} does not come to rest: {self.row()}")

    def _move_count(self) -> int:
        row = self.storage.rebalances.get(CLUSTER)
        return row.move_count if row is not None else 0
