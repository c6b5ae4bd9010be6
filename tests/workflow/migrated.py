"""Services that migrate, and the port of their workflow on them. The rules are in ``peloton.lifecycle``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from peloton.errors import Aborted, NotFound
from peloton.lifecycle.migration import (
    ServicePods,
    after_act,
    binding_of,
    may_be_in,
    next_service_step,
    progress_of,
    refusal_of,
    service_waits,
    services_to_step,
)
from peloton.model.ids import JobId
from peloton.model.migration import (
    Migration,
    MigrationAct,
    MigrationProgress,
    MigrationSpec,
    MigrationState,
    ServiceProgress,
    ServiceState,
)
from tests.workflow.cluster import Clock
from tests.workflow.counted_calls import CountedCalls

ID = "00000000-0000-4000-8000-00000000000a"
HOME, TARGET = "a", "b"
JOBS = [JobId(f"00000000-0000-4000-8000-{i:012}") for i in range(1, 10)]


class MigratedPool(CountedCalls):
    """Services of a pool, all in ``a``. A notified job ends its pods, which run again ``away_s`` later in the cluster
    to which their pool is bound then. Implements ``ports.MigrationRecords``.
    """

    def __init__(
        self,
        clock: Clock,
        services: int = 2,
        instances: int = 4,
        *,
        batch: int = 2,
        away_s: float = 3.0,
        jobs: Sequence[JobId] = JOBS,
    ) -> None:
        super().__init__()
        self.clock, self.away_s = clock, away_s
        self.notify: Callable[[], None] = lambda: None
        spec = MigrationSpec(TARGET, batch, services_at_once=1)
        self.row: Migration | None = Migration(ID, "pool", True, "/maps", spec)
        self.services = [ServiceProgress(job, f"web{i}", ServiceState.WAITING) for i, job in enumerate(jobs[:services])]
        self.homes = {one.job_id: dict.fromkeys(range(instances), HOME) for one in self.services}
        self.leaving: dict[str, set[int]] = {one.job_id: set() for one in self.services}
        self.away: dict[str, set[int]] = {one.job_id: set() for one in self.services}
        self.moved: dict[str, set[int]] = {one.job_id: set() for one in self.services}
        self.away_most = 0
        self.moving_most = 0

    def act(self, act: MigrationAct) -> None:
        self._steer(act)
        self.notify()

    def end_leaving(self, job_id: str) -> None:
        """End the pods of the job that leave; they run again soon."""
        with self.lock:
            leaving, self.leaving[job_id] = self.leaving[job_id], set()
            for instance in leaving:
                del self.homes[job_id][instance]
            self.away[job_id] |= leaving
        if leaving:
            self.clock.after(self.away_s, lambda: self._back(job_id, leaving))

    def _back(self, job_id: str, instances: set[int]) -> None:
        with self.lock:
            assert self.row is not None
            home = next(cluster for cluster in (HOME, TARGET) if may_be_in(cluster, binding_of(self.row)))
            self.homes[job_id] |= dict.fromkeys(instances, home)
            self.away[job_id] -= instances

    @property
    def clusters(self) -> Counter[str]:
        return Counter(cluster for homes in self.homes.values() for cluster in homes.values())

    # ports.MigrationRecords

    def advance(self, migration_id: str) -> MigrationProgress:
        self._record_call("advance")
        with self.lock:
            if self.row is None:
                return MigrationProgress(MigrationState.ROLLED_BACK)
            to_wake: list[str] = []
            if self.row.is_active and self.row.state is not MigrationState.PAUSED:
                for one in services_to_step(self.services, self.row.spec.services_at_once):
                    to_wake += self._step(self.row, one)
            progress = progress_of(self.row, self.services, to_wake=to_wake)
            self.row = replace(self.row, state=progress.state)
            self.moving_most = max(self.moving_most, len(progress.services))
            return progress

    def _step(self, row: Migration, one: ServiceProgress) -> list[str]:
        job = one.job_id
        missing, moved = self.leaving[job] | self.away[job], self.moved[job]
        pods = ServicePods(self.homes[job], self.leaving[job], missing, moved)
        step = next_service_step(pods, row, row.spec.batch_size)
        self.leaving[job] |= set(step.ask)
        moved |= set(step.ask)
        self.away_most = max(self.away_most, len(self.leaving[job] | self.away[job]))
        state = ServiceState.DONE if step.is_done else ServiceState.MOVING
        waits = service_waits(step, "", len(step.ask), f"cluster {TARGET}")
        self.services[self.services.index(one)] = replace(
            one, state=state, moved_count=len(moved), left_count=step.left_count - len(step.ask), waiting_for=waits
        )
        return [job] if self.leaving[job] else []

    def steer(self, migration_id: str, act: MigrationAct) -> Migration:
        self._record_call("steer")
        return self._steer(act)

    def _steer(self, act: MigrationAct) -> Migration:
        with self.lock:
            if self.row is None:
                raise NotFound("gone")
            if refusal := refusal_of(act, self.row):
                raise Aborted(refusal)
            self.row = replace(self.row, state=after_act(self.row, act))
            if act is MigrationAct.ROLL_BACK:
                back = (ServiceState.DONE, ServiceState.MOVING)
                self.services = [replace(one, state=back[bool(self.moved[one.job_id])]) for one in self.services]
            return self.row
