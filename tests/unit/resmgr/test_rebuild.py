"""Memory stays consistent under every sequence of events, and a rebuild from storage equals it."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from peloton.model.ids import JobId, RespoolId
from peloton.model.pod import PodState, PodStatus
from peloton.model.resources import Resources
from peloton.scheduling.cycle import plan_cycle
from services.resmgr.audit import faults
from services.resmgr.preemption import evictable, jobs_to_evict_from, order
from services.resmgr.recovery import rebuild
from services.resmgr.state import ResmgrState
from services.storage.storage import Storage
from tests.nightly import PROPERTY, examples
from tests.reasons import REQUEUED
from tests.unit.resmgr.world import World, facts

PICK = st.integers(0, 1000)
LATER_NS = 2**62


class ResmgrMachine(RuleBasedStateMachine):
    """A state machine with the loop's order of steps (store, then apply), one step at a time, without the loop."""

    store: Path

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        shutil.copy(self.store, self.folder.name)
        self.world = World(Storage(f"sqlite:///{self.folder.name}/store.db"))
        self.pools: list[RespoolId] = [self.world.pool("a", 3, 6), self.world.pool("b", 2, 4)]
        self.jobs: list[JobId] = []
        self.state: ResmgrState = rebuild(self.world.storage)
        self.state.set_capacity(Resources.of(8), Resources())

    def teardown(self) -> None:
        self.world.storage.close()
        self.folder.cleanup()

    def _job(self, pick: int) -> JobId | None:
        return self.jobs[pick % len(self.jobs)] if self.jobs else None

    @rule(
        pick=PICK,
        count=st.integers(1, 7),
        gang=st.sampled_from([0, 0, 2, 4]),
        cpus=st.lists(st.sampled_from([0.5, 1, 2]), max_size=3),
        priority=st.integers(0, 1),
        preemptible=st.booleans(),
    )
    def create(self, pick: int, count: int, gang: int, cpus: list[float], priority: int, preemptible: bool) -> None:
        pool = self.pools[pick % len(self.pools)]
        gang, cpus = min(gang, count), cpus[:count]
        self.jobs.append(self.world.job(pool, count, gang=gang, priority=priority, cpus=cpus, preemptible=preemptible))

    @rule(pick=PICK, limit=st.integers(1, 6))
    def enqueue(self, pick: int, limit: int) -> None:
        job_id = self._job(pick)
        job = self.world.storage.jobs.get(job_id) if job_id else None
        if job is None or job_id is None:
            return
        storage, seq = self.world.storage, self.state.next_seq
        ranges = storage.admission.queueable(job_id, limit)
        queued = storage.admission.mark_pending(job_id, ranges, seq)
        self.read_log()
        if queued:
            shapes = storage.configs.shapes_of([(job_id, job.config_version, 0, job.instance_count)])[0]
            self.state.enqueue_stored(job, shapes, queued)

    @rule(pod_limit=st.integers(1, 9), is_later=st.booleans())
    def admit(self, pod_limit: int, is_later: bool) -> None:
        """Admit gangs now, or at a time when no backoff is left."""
        plan = plan_cycle(self.state.snapshot(pod_limit, LATER_NS if is_later else self.world.now_ns))
        items = [(c.run.job_id, c.run.start, c.gang_count * c.run.gang_size) for c in plan.admission.admitted]
        marked = self.world.storage.admission.mark_ready(items)

        assert marked == sum(count for _, _, count in items)
        self.state.apply_admission(plan.admission)
        self.state.remember(plan, self.world.now_ns)

    @rule(pick=PICK, start=st.integers(0, 5), count=st.integers(1, 4))
    def kill(self, pick: int, start: int, count: int) -> None:
        job_id = self._job(pick)
        if job_id:
            self.world.want_killed(job_id, start, count)
            killed = self.world.storage.admission.kill_queued(job_id, 1)
            self.state.apply_kill(job_id, [(at, length) for at, length, _ in killed])

    @rule(
        pick=PICK,
        instances=st.lists(st.integers(0, 6), max_size=4),
        state=st.sampled_from([PodState.SUCCEEDED, PodState.LOST]),
    )
    def finish(self, pick: int, instances: list[int], state: PodState) -> None:
        job_id = self._job(pick)
        if job_id:
            self.world.finish(job_id, sorted(set(instances)), state)
            self.world.settle(job_id)

    @rule(pick=PICK, is_launched=st.booleans())
    def evict(self, pick: int, is_launched: bool) -> None:
        """Run a round in which every pool has been over its entitlement for long enough."""
        job_id = self._job(pick)
        if job_id and is_launched:
            self.world.launch(job_id, 3)
        self.read_log()
        due = frozenset(range(len(self.state.tree.ids)))
        held = self.world.storage.admission.list_held(jobs_to_evict_from(self.state, due))
        now = replace(self.state.snapshot(9, self.world.now_ns), evictable=evictable(self.state, held, due, 9))
        for result in self.world.storage.admission.evict([order(one) for one in plan_cycle(now).evictions]):
            self.state.apply_eviction(result)

    @rule(pick=PICK, is_launched=st.booleans())
    def requeue(self, pick: int, is_launched: bool) -> None:
        """Requeue a gang after a failed launch, before or after its members were launched."""
        job_id = self._job(pick)
        if job_id:
            if is_launched:
                self.world.launch(job_id, 0)
            self.read_log()
            gone = self.world.storage.admission.requeue_gang(job_id, REQUEUED)
            if gone.held_until_ns and job_id in self.state.jobs:
                self.state.apply_eviction(gone)

    @rule(pick=PICK, start=st.integers(0, 5), count=st.integers(1, 4))
    def find_no_host(self, pick: int, start: int, count: int) -> None:
        """Requeue some of the pods after a failed placement."""
        job_id = self._job(pick)
        if job_id:
            self.read_log()
            gone = self.world.storage.admission.requeue_pods(job_id, [(start, count)], REQUEUED)
            if gone.in_backoff:
                self.state.apply_eviction(gone)

    @rule(pick=PICK, limit=st.integers(1, 3))
    def leave(self, pick: int, limit: int) -> None:
        """End some of the pods that are to be killed, as hosts do."""
        job_id = self._job(pick)
        if job_id:
            reported = self.world.storage.host_pods.mark_killing(job_id, limit, again=True)
            self.world.storage.host_pods.apply_status([PodStatus(row[0], PodState.KILLED, 1) for row in reported])
            self.world.settle(job_id)

    @rule()
    def fail_over(self) -> None:
        """Change the leader: the order numbers of the new one continue after the last."""
        fresh = rebuild(self.world.storage)
        fresh.take_over(self.state)
        self.state = fresh

    @rule()
    def read_log(self) -> None:
        self.state.apply_log(self.world.storage.admission.status_log(self.state.log_cursor, 1000))

    @rule(reservation=st.integers(0, 3))
    def change_pools(self, reservation: int) -> None:
        pool_id = self.world.pool("c", reservation, 4)
        if pool_id not in self.pools:
            self.pools.append(pool_id)
        self.state.put_pool(next(spec for spec in self.world.storage.pools.specs() if spec.respool_id == pool_id))

    @invariant()
    def is_consistent(self) -> None:
        assert [] == list(faults(self.state))
        for quantity in (self.state.accounts.non_slack, self.state.accounts.demand):
            assert (quantity >= 0).all()
        held = self.state.tree.roll_up(self.state.accounts.non_slack)
        assert (held[1:] <= self.state.tree.limit[1:]).all()
        assert held[0, 0] <= np.int64(8000)

    @invariant()
    def equals_a_rebuild(self) -> None:
        self.state.apply_log(self.world.storage.admission.status_log(self.state.log_cursor, 1000))
        fresh = rebuild(self.world.storage)

        assert [] == list(faults(fresh))
        assert facts(fresh) == facts(self.state)


@pytest.mark.timeout(600)
@PROPERTY
def test_rebuilt_state_equals_the_state_before(empty_store: Path) -> None:
    """The rebuilt state equals memory after every step of a random history: queues with their order, and accounts."""
    machine = type("Machine", (ResmgrMachine,), {"store": empty_store})

    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(25), stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
