"""Preemption in simulated days: it happens, comes to rest at constant demand, and loses no gang."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from peloton.model.ids import PodId
from peloton.model.pod import PodState
from peloton.scheduling.cycle import Plan, plan_cycle
from peloton.scheduling.eviction import Eviction
from tests.nightly import NIGHTLY, nightly
from tests.simulation import resmgr
from tests.simulation.day import ROUGH, USUAL, Day
from tests.simulation.description import HOUR_S, Size
from tests.simulation.resmgr import LOOP

LOADED = Size(hosts=40, pools=12, pods=1_000, hours=2, step_s=10, load=1.5)
STANDS_AT_S = HOUR_S
ROUNDS_TO_REST = 60
"""Rounds of preemption from the last event on."""
ROUNDS_AT_REST = 60


class StandingDay(Day):
    """Day in which from STANDS_AT_S on no job comes, no pod ends, no host breaks: the demand is constant."""

    evicted_at_s: list[int]

    def stand_still(self) -> None:
        """Run the first hour, then only the resource manager for so many rounds."""
        self.evicted_at_s = []
        end_s = STANDS_AT_S + int(LOOP.preemption_period_s) * (ROUNDS_TO_REST + ROUNDS_AT_REST)
        for at_s in range(STANDS_AT_S, end_s, self.size.step_s):
            self._at(at_s, self._look_again)
        while self._times and self._times[0] < end_s:
            self._step()

    @property
    def stands(self) -> bool:
        return self.now_s >= STANDS_AT_S

    def _look_again(self) -> None:
        self.resmgr.is_dirty = True

    def _cycle(self) -> None:
        before = self.resmgr.ended_pods
        super()._cycle()
        if self.resmgr.ended_pods > before:
            self.evicted_at_s.append(self.now_s)

    def _report(self, pod_id: PodId, state: PodState, reason: str = "") -> None:
        if not self.stands or state in (PodState.RUNNING, PodState.KILLED):
            super()._report(pod_id, state, reason)

    def _arrive(self, plan: Any) -> None:
        if not self.stands:
            super()._arrive(plan)

    def _kill(self, job_id: Any, luck: float) -> None:
        if not self.stands:
            super()._kill(job_id, luck)

    def _lose_hosts(self, first: int, count: int) -> None:
        if not self.stands:
            super()._lose_hosts(first, count)

    def _return_host(self, row: int) -> None:
        if not self.stands:
            super()._return_host(row)

    def _change_pool(self) -> None:
        if not self.stands:
            super()._change_pool()

    def _restore(self) -> None:
        """Do nothing: this day has no recovery."""


@pytest.mark.parametrize(("seed", "chances"), [(1, USUAL), nightly(2, USUAL), nightly(12, ROUGH), nightly(14, ROUGH)])
def test_comes_to_rest_at_constant_demand(seed: int, chances: Any) -> None:
    """Evictions end soon at constant demand, although pods wait and everything is full. Pods without a host are
    admitted in turns, and yield to each other without harm.
    """
    day = StandingDay(seed, LOADED, chances)

    day.stand_still()

    assert day.resmgr.evicted_pods > 0
    assert sum(job.pending_count for job in day.resmgr.state.jobs.values()) > 0
    rest_s = STANDS_AT_S + int(LOOP.preemption_period_s) * ROUNDS_TO_REST
    assert [at_s for at_s in day.evicted_at_s if at_s >= rest_s] == []


def _spoil(monkeypatch: pytest.MonkeyPatch, spoiled: Any) -> str:
    """Return the failure of a day whose plans are changed before they are carried out."""
    real = plan_cycle
    monkeypatch.setattr(resmgr, "plan_cycle", lambda now: spoiled(now, real(now)))
    with pytest.raises(AssertionError) as caught:
        Day(1, LOADED).run()
    return str(caught.value)


@NIGHTLY
def test_needless_evictions_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evictions of all preemptible pods break an invariant: the queues demand less."""

    def storm(now: Any, plan: Plan) -> Plan:
        if not plan.evictions:
            return plan
        grounds = plan.evictions[0].grounds
        mine = [one for one in now.evictable.held if one.run.preemptible and one.run.gang_size == 1]
        return replace(plan, evictions=[Eviction(one.pool, one.run, one.is_launched, grounds) for one in mine])

    assert " was evicted in one round" in _spoil(monkeypatch, storm)


@NIGHTLY
def test_who_may_not_be_evicted_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An eviction of a pod that is not preemptible fails with the name of its job."""

    def careless(now: Any, plan: Plan) -> Plan:
        chosen = [replace(one, run=replace(one.run, preemptible=False)) for one in plan.evictions]
        return replace(plan, evictions=chosen)

    assert " is not preemptible, and was evicted" in _spoil(monkeypatch, careless)
