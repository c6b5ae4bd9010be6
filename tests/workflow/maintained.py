"""A host in maintenance, and the ports of its workflow on it. The rules are in ``peloton.lifecycle``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from peloton.errors import Aborted, NotFound
from peloton.lifecycle.maintenance import Step, drain_progress, next_step, plan_drain, refusal_of
from peloton.model.host import HostState
from peloton.model.ids import Hostname, JobId
from peloton.model.job import JobType
from peloton.model.maintenance import Blocker, DrainProgress, HostedPod, HostMaintenance, MaintenanceAct
from peloton.ports import MaintenanceController
from tests.workflow.cluster import Clock
from tests.workflow.counted_calls import CountedCalls

CLUSTER, HOST = "local", Hostname("host1")
SERVICE = JobId("00000000-0000-4000-8000-000000000001")
LEAVE_S = 0.5


class MaintainedHost(CountedCalls):
    """One host with pods of a service, whose SLA allows one pod to be evicted at a time; each is unavailable for
    ``back_s``.
    """

    def __init__(
        self, clock: Clock, name: Hostname = HOST, *, pods: int = 3, turn: bool = True, back_s: float = 2.0
    ) -> None:
        super().__init__()
        self.clock, self.name = clock, name
        self.notify: Callable[[], None] = lambda: None
        self.row: HostMaintenance | None = None
        self.staying, self.leaving, self.away = pods, 0, 0
        self.turn, self.back_s = turn, back_s
        self.steps: list[str] = []  # steps that were done, each of them once
        self.away_most = 0

    # Acts of an operator.

    def request(self, to_pool: str = "") -> None:
        with self.lock:
            asked = HostMaintenance(CLUSTER, self.name, HostState.UP, HostState.DOWN, to_pool=to_pool)
            self.row = self.row or asked
        self.notify()

    def act(self, act: MaintenanceAct) -> None:
        with self.lock:
            assert self.row is not None
            assert not (refusal := refusal_of(act, self.row, self.clock.now_ns())), refusal
            if act is MaintenanceAct.FORCE:
                self.row = replace(self.row, is_forced=True)
            elif self.row.waits_for_turn:
                self.row = None
            else:
                self.row = replace(self.row, goal=HostState.UP)
        self.notify()

    def give_turn(self) -> None:
        with self.lock:
            self.turn = True
        self.notify()

    # ports.MaintenanceRecords

    def get(self, cluster: str, hostname: str) -> HostMaintenance | None:
        assert (cluster, hostname) == (CLUSTER, self.name)
        self._record_call("read")
        with self.lock:
            return self.row

    # ports.MaintenanceController

    def controller(self, cluster: str) -> MaintenanceController:
        assert cluster == CLUSTER
        return self

    def cordon(self, hostname: str) -> None:
        self._record_call("cordon")
        with self.lock:
            if self._is_next(Step.CORDON) and self.turn:
                self._move(HostState.DRAINING)

    def drain(self, hostname: str) -> None:
        self._record_call("drain")
        with self.lock:
            if not self._is_next(Step.DRAIN):
                return
            assert self.row is not None
            if not self.staying + self.leaving:
                self._move(HostState.DRAINED)
                return
            plan = plan_drain(
                [HostedPod(SERVICE, i, JobType.SERVICE, is_leaving=i >= self.staying)
                 for i in range(self.staying + self.leaving)]
            )  # fmt: skip
            granted = self.staying if self.row.is_forced else min(self.staying, 1 - min(self.away + self.leaving, 1))
            self._send_away(granted)
            refused = len(plan.disrupt.get(SERVICE, ())) - granted
            blockers = (
                [Blocker(SERVICE, refused, "1 of at most 1 instances are unavailable already")] if refused else []
            )
            self.row = replace(self.row, progress=drain_progress(plan, blockers))

    def take_down(self, hostname: str) -> None:
        self._record_call("take_down")
        with self.lock:
            if self._is_next(Step.TAKE_DOWN):
                assert not self.staying + self.leaving, "taken down with pods on it"
                self._move(HostState.DOWN)

    def relabel(self, hostname: str) -> None:
        self._record_call("relabel")
        with self.lock:
            if self._is_next(Step.RELABEL):
                assert self.row is not None
                assert not self.staying + self.leaving, "put into another host pool with pods on it"
                self.row = replace(self.row, goal=HostState.UP)
                self.steps.append(f"in {self.row.to_pool}")

    def bring_up(self, hostname: str) -> None:
        self._record_call("bring_up")
        with self.lock:
            if self._is_next(Step.BRING_UP):
                self.row = None
                self.steps.append("UP")

    def steer(self, hostname: str, act: MaintenanceAct) -> None:
        self._record_call("steer")
        with self.lock:
            if self.row is None:
                raise NotFound(f"host {hostname} is not in maintenance")
            if refusal := refusal_of(act, self.row, self.clock.now_ns()):
                raise NotFound(refusal) if act is MaintenanceAct.COMPLETE else Aborted(refusal)
            self.act(act)

    # Pods.

    def _send_away(self, count: int) -> None:
        self.staying -= count
        self.leaving += count
        for _ in range(count):
            self.clock.after(LEAVE_S, self._record_left)
        self.away_most = max(self.away_most, self.leaving + self.away)

    def _record_left(self) -> None:
        with self.lock:
            self.leaving -= 1
            self.away += 1
        self.clock.after(self.back_s, self._back)
        self.notify()

    def _back(self) -> None:
        with self.lock:
            self.away -= 1
            is_drained = self._is_next(Step.DRAIN)
        if is_drained:
            self.notify()

    def _is_next(self, step: Step) -> bool:
        return self.row is not None and next_step(self.row) is step

    def _move(self, state: HostState) -> None:
        assert self.row is not None
        since_ns = self.row.drained_from_ns or self.clock.now_ns()
        self.row = replace(self.row, state=state, drained_from_ns=since_ns, progress=DrainProgress())
        self.steps.append(state.value)
