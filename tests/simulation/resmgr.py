"""The resource manager of a simulated day: its real state and its real cycle, in the loop's order of steps.

First the rows, then memory. A crash between the two is a restart, after which memory must be what it would have been.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

from peloton.lifecycle.failed_placements import backoff_min_s, find_failed_placements
from peloton.model.host import PlacementBatch, ReadyGang
from peloton.model.ids import JobId
from peloton.model.respool import PoolSpec
from peloton.scheduling.cycle import Plan, Snapshot, plan_cycle
from peloton.scheduling.eviction import Eviction
from services.resmgr.audit import faults
from services.resmgr.preemption import PreemptionRounds, evictable, jobs_to_evict_from, order
from services.resmgr.recovery import rebuild
from services.resmgr.settings import LoopSettings
from services.resmgr.state import ResmgrState
from services.storage.storage import Storage
from tests.simulation import evictions, invariants
from tests.simulation.hosts import SimulatedHosts
from tests.simulation.invariants import Broken, accounts_of, usage_of
from tests.simulation.records import Job, Records
from tests.unit.resmgr.world import facts

LOOP = LoopSettings()
PLACEMENT_S = 600.0


class SimulatedResmgr:
    def __init__(self, records: Records, hosts: SimulatedHosts) -> None:
        self.records, self._admission, self._hosts = records, records.storage.admission, hosts
        self.state: ResmgrState = rebuild(cast(Storage, records.storage))
        self.state.set_capacity(*hosts.capacity(), host_pools=hosts.host_pools())
        self.is_dirty = True
        self.requeued_pods = self.ended_pods = 0
        self.cycles = self.restarts = self.evicted_pods = self.evicted_most = self.evicting_rounds = 0
        self._clock_s = lambda: records.clock_ns / 1e9
        self._rounds = PreemptionRounds(LOOP.preemption_period_s, LOOP.sustained_over_count, self._clock_s)
        self._accounts = accounts_of(records, self.state)
        self._passed: invariants.Passed = {}

    def enqueue(self, job: Job) -> int:
        """Queue the pods that may be queued; return their number."""
        job_id, queue_seq = job.record.job_id, self.state.next_seq
        self.state.check_queue(job.record)
        ranges = self._admission.queueable(job_id, LOOP.enqueued_pods_max)
        if not ranges:
            return 0
        marked = self._admission.mark_pending(job_id, ranges, queue_seq)
        self.read_log()
        shapes = self._admission.waiting_shapes(job_id, 0, job.record.instance_count)
        queued, rows = self.state.enqueue_stored(job.record, shapes, marked), sum(count for _, _, count in marked)
        if rows != queued:
            raise Broken(f"{rows} rows of {job.record.name} are PENDING, and {queued} pods in the queue")
        self.is_dirty = True
        return queued

    def kill_queued(self, job_id: JobId) -> None:
        killed = self._admission.kill_queued(job_id, self.records.clock_ns)
        self.state.apply_kill(job_id, [(start, count) for start, count, _ in killed])
        self.is_dirty |= bool(killed)

    def requeue_without_host(self, job: Job, gangs: Sequence[ReadyGang], batch: PlacementBatch) -> Iterator[float]:
        """Queue pods again that have waited for a host for too long; yield the delays in seconds until some may be
        admitted.
        """
        job_id = job.record.job_id
        self.state.note_unplaced(job_id, batch.unplaced_count, batch.why)
        turns = self.state.backoff_turns(job_id)
        vain = find_failed_placements([gang for gang in gangs if len(gang.pods) == 1], batch, PLACEMENT_S, turns)
        if not vain.instances:
            return
        gone = self._admission.requeue_pods(job_id, vain.instances, vain.reason, backoff_min_s(turns))
        if gone.queued:
            self.state.apply_eviction(gone)
            self.requeued_pods += sum(count for _, _, count in gone.queued)
            self.is_dirty = True
            self._accounts = accounts_of(self.records, self.state)
        yield from sorted({(until_ns - self.records.clock_ns) / 1e9 for *_, until_ns in gone.in_backoff})

    def look_again(self) -> None:
        self.is_dirty = True

    def read_log(self) -> None:
        rows = self._admission.status_log(self.state.log_cursor, LOOP.log_rows_max)
        self.is_dirty |= self.state.apply_log(rows)
        self._admission.prune_status_log(self.state.log_cursor, LOOP.pruned_rows_max)

    def set_capacity(self) -> None:
        self.is_dirty |= self.state.set_capacity(*self._hosts.capacity(), host_pools=self._hosts.host_pools())

    def set_pool(self, pool: PoolSpec) -> None:
        """Apply a change of a pool that storage already has."""
        self.records.storage.set_pool(pool)
        self.state.put_pool(pool)
        self.is_dirty = True

    def cycle(self) -> tuple[Plan, list[JobId]]:
        """Run one cycle with all its invariants; return the plan and the jobs with admitted pods."""
        self.is_dirty = False
        self.cycles += 1
        self.read_log()
        self.state.divide_hosts()
        before, held = accounts_of(self.records, self.state), usage_of(self.records, self.state)
        invariants.check_falls_only(self._accounts, before)
        now = self._snapshot()
        plan = plan_cycle(now)
        invariants.check_in_backoff(self.records, plan.admission)
        items = [(c.run.job_id, c.run.start, c.gang_count * c.run.gang_size) for c in plan.admission.admitted]
        pods, marked = sum(count for _, _, count in items), self._admission.mark_ready(items)
        if marked != pods:
            raise Broken(f"{pods} pods were admitted, {marked} of them were waiting")
        jobs = self.state.apply_admission(plan.admission)
        self.state.remember(plan, self.records.clock_ns)
        admitted = bool(jobs)
        self._accounts = accounts_of(self.records, self.state)
        invariants.check_accounts(self.state, self.records)
        invariants.check_cycle(now, plan, held, usage_of(self.records, self.state))
        invariants.check_controllers(self.state, before, self._accounts)
        invariants.check_order(self.state, self.records, plan.admission, self._passed)
        if plan.evictions:
            evictions.check_storm(now, plan.evictions)
            jobs += self._evict(plan.evictions)
        self.is_dirty |= admitted or bool(plan.evictions)
        return plan, jobs

    def _snapshot(self) -> Snapshot:
        now = self.state.snapshot(LOOP.admitted_pods_max, self.records.clock_ns)
        if not self._rounds.is_time():
            return now
        due = self._rounds.begin(self.state)
        jobs = jobs_to_evict_from(self.state, due)
        if not jobs:
            return now
        found = self._admission.list_held(jobs)
        return replace(now, evictable=evictable(self.state, found, due, LOOP.evicted_pods_max))

    def _evict(self, chosen: Sequence[Eviction]) -> list[JobId]:
        orders = [order(one) for one in chosen]
        results = self._admission.evict(orders)
        evictions.check_all_left(self.records, orders)
        for result in results:
            self.state.apply_eviction(result)
            self.ended_pods += sum(count for _, count in result.leaving)
        pods = sum(one.run.pod_count for one in chosen)
        self.evicted_pods, self.evicted_most = self.evicted_pods + pods, max(self.evicted_most, pods)
        self.evicting_rounds += 1
        self._accounts = accounts_of(self.records, self.state)
        invariants.check_accounts(self.state, self.records)
        return [result.job_id for result in results]

    def restart(self) -> None:
        """Read the state again after a loss of memory; check that it is unchanged."""
        self.read_log()
        old, self.state = self.state, rebuild(cast(Storage, self.records.storage))
        expected, actual = facts(old), facts(self.state)
        for name in expected:
            if expected[name] != actual[name]:
                raise Broken(f"after a restart {name} are {actual[name]}, before it {expected[name]}")
        self.state.take_over(old)
        self.restarts += 1
        self.is_dirty = True

    def validate(self) -> None:
        """Run the slow checks: the state's own, and the books against all rows."""
        assert [] == list(faults(self.state))
        if self.records.recount() != self.records.ledgers:
            raise Broken("the books of the simulation do not follow from its rows")
