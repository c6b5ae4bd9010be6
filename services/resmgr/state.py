"""In-memory state of the resource manager: pools, queues and allocation. It does no I/O: ``AdmissionLoop`` owns it, and
applies changes after storage has committed them.

Each event is a method, which returns what the loop needs next: a count, or the jobs to signal. The state can be rebuilt
from storage (see ``recovery.py``) and then equals the previous one, including the order of queues: the position of a
run is (priority, queue_seq, start), and queue_seq is stored with the pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from peloton.errors import InvalidArgument, NotFound, Reason
from peloton.model.admission import EvictionResult
from peloton.model.host import HostPoolCapacity
from peloton.model.ids import ROOT_POOL_ID, JobId, RespoolId
from peloton.model.job import JobRecord
from peloton.model.pod import PodState, ShapeRange
from peloton.model.reason import PlacementReason
from peloton.model.resources import Resources
from peloton.model.respool import PoolSpec
from peloton.scheduling.admission import Admission
from peloton.scheduling.compartments import Compartment, compartments, part_of
from peloton.scheduling.cycle import Plan, Snapshot
from peloton.scheduling.entitlement import Entitlement
from peloton.scheduling.gangs import Footprint, GangRun
from peloton.scheduling.tree import PoolTree, build_tree, list_kinds
from services.resmgr.accounts import Accounts
from services.resmgr.in_backoff import Releases, find_held_gangs, loads_of, skip_held
from services.resmgr.ledger import CODES, HOLDING, IS_ALLOCATED, LEAVING, PENDING, JobLedger
from services.resmgr.passed import PassedGangs
from services.resmgr.queues import WaitingRuns
from services.resmgr.unplaced import Unplaced

LogRow = tuple[int, JobId, int, int, PodState]
"""Row of the status log: seq, job, instance, run, state."""


class ResmgrState:
    def __init__(self, pools: Iterable[PoolSpec] = ()) -> None:
        self.pools: dict[RespoolId, PoolSpec] = {pool.respool_id: pool for pool in pools}
        self.tree: PoolTree = build_tree(self.pools.values())
        self.accounts = Accounts(self.tree)
        self.waiting = WaitingRuns()
        self.jobs: dict[JobId, JobLedger] = {}
        self.preempts = True
        self.evicted: set[JobId] = set()  # jobs whose evicted pods still hold resources
        self.in_backoff: set[JobId] = set()  # jobs with gangs that are in backoff, or were
        self.capacity: Resources | None = None  # None until a host manager has answered
        self.registered = Resources()  # capacity of all hosts, with which limits of pools are compared
        self.slack_cpu = 0
        self.compartments: tuple[Compartment, ...] = ()
        self._divided: tuple[Compartment, ...] = ()  # compartments that apply from the next cycle on
        self.entitlement: Entitlement | None = None
        self.admission = Admission()
        self.next_seq = 1
        self.log_cursor = 0
        self.passed = PassedGangs()
        self._unplaced = Unplaced()
        self._releases = Releases()

    # -- events -----------------------------------------------------------------------------------------------------

    def set_capacity(
        self,
        capacity: Resources,
        revocable: Resources,
        registered: Resources | None = None,
        host_pools: Iterable[HostPoolCapacity] = (),
    ) -> bool:
        """Set the capacity. Return whether the amounts to divide among pools changed.

        ``registered`` is the capacity of all hosts, including those that take no pods; None means the same as
        ``capacity``.
        """
        found = compartments(host_pools)
        has_changed = (capacity, revocable.cpu_milli, found) != (self.capacity, self.slack_cpu, self._divided)
        if self.capacity is not None and (not capacity.fits_in(self.capacity) or found != self._divided):
            self._releases.note_capacity(on_same_hosts=registered is not None and registered == self.registered)
        self.capacity, self.slack_cpu, self._divided = capacity, revocable.cpu_milli, found
        self.registered = registered if registered is not None else capacity
        return has_changed

    def divide_hosts(self) -> None:
        """Apply the compartments of the latest capacity. Must not be called within a cycle."""
        self.compartments, parts = self._divided, part_of(self._divided)
        if parts != self.accounts.part_of:
            self.accounts = self.accounts.of_all(self.jobs.values(), parts)
            self.entitlement, self.admission = None, Admission()

    def put_pool(self, pool: PoolSpec) -> None:
        self._set_pools({**self.pools, pool.respool_id: pool})

    def drop_pool(self, pool_id: RespoolId) -> None:
        self._set_pools({key: pool for key, pool in self.pools.items() if key != pool_id})

    def _set_pools(self, pools: dict[RespoolId, PoolSpec], kinds: tuple[str, ...] = ()) -> None:
        old, kinds = self.tree, list_kinds(pools.values(), kinds or self.tree.kinds)
        if by := len(kinds) - len(old.kinds):  # others may share these objects with a plan: they are not changed
            self.jobs = {job_id: ledger.widen(kinds) for job_id, ledger in self.jobs.items()}
            self.waiting = self.waiting.widen(by)
        self.pools, self.tree = pools, build_tree(pools.values(), kinds)
        self.accounts = self.accounts.move_to(self.tree)
        for job in self.jobs.values():  # jobs of pools that were unreachable until now
            if job.pool_id not in old.row and job.pool_id in self.tree.row:
                self.accounts.count(job)
        self.entitlement, self.admission = None, Admission()

    def _learn_kinds(self, shapes: Sequence[ShapeRange]) -> None:
        """Add the extended resources that no pool names any more, and pods of these shapes still request."""
        asked = {name for each in shapes for name, _ in each.shape.resources.extended}
        if more := asked.difference(self.tree.kinds):
            self._set_pools(self.pools, (*self.tree.kinds, *sorted(more)))

    def check_queue(self, job: JobRecord) -> None:
        """Raise NotFound or InvalidArgument unless gangs of this job may be queued in its pool."""
        row = self.tree.row.get(job.respool_id)
        if row is None:
            raise NotFound(f"resource pool {job.respool_id} not found").because(
                Reason.POOL_NOT_FOUND, pool=job.respool_id
            )
        if job.respool_id == ROOT_POOL_ID or not self.tree.is_leaf[row]:
            raise InvalidArgument(f"resource pool {self.tree.paths[row]} takes no jobs: it is not a leaf")

    def ledger(self, job: JobRecord) -> JobLedger:
        """Return the ledger of the job, created if necessary."""
        ledger = self.jobs.setdefault(job.job_id, JobLedger(job, self.tree.kinds))
        ledger.grow(job.instance_count)
        if ledger.gang_due_ns:
            self.in_backoff.add(job.job_id)
        return ledger

    def learn(self, job: JobRecord, shapes: Sequence[ShapeRange], start: int, count: int) -> None:
        """Learn the footprints of instances ``start .. start+count-1`` of the job, in recovery."""
        self._learn_kinds(shapes)
        self.ledger(job).footprints.learn(shapes, start, count)

    def enqueue(
        self,
        job: JobRecord,
        shapes: Sequence[ShapeRange],
        ranges: Iterable[tuple[int, int]],
        queue_seq: int,
        in_backoff: Iterable[tuple[int, int, int]] = (),
    ) -> int:
        """Queue instances ``(start, count)`` as PENDING under ``queue_seq``; return the number of pods.

        In recovery some of them are in backoff: ``(start, count, end of the backoff)``.
        """
        self._learn_kinds(shapes)
        ledger = self.ledger(job)
        self.next_seq = max(self.next_seq, queue_seq + 1)
        queued = 0
        ranges = list(ranges)
        for start, count in ranges:
            self._mark_pending(ledger, shapes, start, count)
        self.back_off(ledger, in_backoff)
        for start, count in ranges:
            for run in ledger.runs(queue_seq, start, count):
                self.waiting.push(ledger.pool_id, run)
            queued += count
        return queued

    def enqueue_stored(
        self, job: JobRecord, shapes: Sequence[ShapeRange], queued: Iterable[tuple[int, int, int]]
    ) -> int:
        """Queue instances ``(queue_seq, start, count)`` that have become PENDING, at the end or at their earlier
        position.

        Return the number of pods.
        """
        self._learn_kinds(shapes)
        ledger, last_seq, pods = self.ledger(job), self.next_seq - 1, 0
        back: dict[int, list[np.ndarray]] = {}
        for queue_seq, start, count in queued:
            pods += count
            if queue_seq > last_seq:
                self.enqueue(job, shapes, [(start, count)], queue_seq)
            else:
                self._mark_pending(ledger, shapes, start, count)
                back.setdefault(queue_seq, []).append(np.arange(start, start + count))
        if back:
            self._requeue(ledger, {seq: np.concatenate(pieces) for seq, pieces in back.items()})
        return pods

    def _mark_pending(self, ledger: JobLedger, shapes: Sequence[ShapeRange], start: int, count: int) -> None:
        """Mark instances as PENDING and count them as demand; the caller puts them into the queue."""
        ledger.grow(start + count)
        ledger.footprints.learn(shapes, start, count)
        held = ledger.states[start : start + count]
        assert not IS_ALLOCATED[held].any(), f"pods of {ledger.job_id} in {start}+{count} still hold resources"
        held[:] = PENDING
        ledger.back_off(start, count, 0)
        ledger.pending_count += count
        for _, length, footprint in ledger.footprints.pieces(start, count):
            self.accounts.want(ledger.pool_id, footprint, length)

    def restore_held(
        self,
        job: JobRecord,
        shapes: Sequence[ShapeRange],
        ranges: Iterable[tuple[int, int]],
        is_leaving: bool = False,
    ) -> None:
        """Count instances ``(start, count)`` as holding resources, in recovery. ``is_leaving``: they have been
        evicted."""
        self._learn_kinds(shapes)
        ledger = self.ledger(job)
        for start, count in ranges:
            ledger.grow(start + count)
            ledger.footprints.learn(shapes, start, count)
            ledger.states[start : start + count] = LEAVING if is_leaving else HOLDING
            if is_leaving:
                self.evicted.add(job.job_id)
            ledger.allocated_count += count
            for _, length, footprint in ledger.footprints.pieces(start, count):
                self._hold(ledger, footprint, length)

    def apply_admission(self, admission: Admission) -> list[JobId]:
        """Move admitted gangs from their queues to the allocation. Return their jobs."""
        by_queue: dict[tuple[int, int], list[tuple[GangRun, int]]] = {}
        jobs = dict[JobId, None]()
        for chosen in admission.admitted:
            run, pods = chosen.run, chosen.gang_count * chosen.run.gang_size
            by_queue.setdefault((chosen.pool, run.queue), []).append((run, chosen.gang_count))
            ledger = self.jobs[run.job_id]
            ledger.states[run.start : run.start + pods] = HOLDING
            ledger.pending_count -= pods
            ledger.allocated_count += pods
            self._unplaced.forget(run.job_id)  # placement tries again
            for _, length, footprint in ledger.footprints.pieces(run.start, pods):
                self.accounts.want(ledger.pool_id, footprint, -length)
                self._hold(ledger, footprint, length)
            jobs[run.job_id] = None
        for (row, _), taken in by_queue.items():
            self.waiting.take(self.tree.ids[row], taken[0][0].queue, taken)
        return list(jobs)

    def apply_kill(self, job_id: JobId, ranges: Iterable[tuple[int, int]]) -> None:
        """Apply that queued or admitted instances ``(start, count)`` have become KILLED.

        The other instances keep their positions. A gang that lost a member is queued as single pods.
        """
        ledger = self.jobs.get(job_id)
        if ledger is None:
            return
        none = np.zeros(0, np.int64)
        end = len(ledger.states)
        instances = np.concatenate([none, *(np.arange(start, min(start + count, end)) for start, count in ranges)])
        queued = instances[ledger.states[instances] == PENDING]
        for length, footprint in ledger.footprints.tally(queued):
            self.accounts.want(ledger.pool_id, footprint, -length)
        ledger.states[queued] = CODES[PodState.KILLED]
        ledger.pending_count -= len(queued)
        self._release(ledger, instances, np.full(len(instances), CODES[PodState.KILLED], np.uint8))
        if len(queued):
            self._requeue(ledger, {})
        self._forget(ledger)

    def apply_eviction(self, gone: EvictionResult) -> None:
        """Apply an eviction or a requeue: pods are queued at their old position, are in no queue, or hold resources
        until they end."""
        ledger = self.jobs[gone.job_id]
        if gone.held_until_ns:
            ledger.requeue_count, ledger.gang_due_ns = gone.requeue_count, gone.held_until_ns
            self.in_backoff.add(gone.job_id)
        back: dict[int, list[np.ndarray]] = {}
        for queue_seq, start, count in gone.queued:
            self._release(ledger, np.arange(start, start + count), np.full(count, PENDING, np.uint8))
            self._mark_pending(ledger, (), start, count)
            back.setdefault(queue_seq, []).append(np.arange(start, start + count))
        self.back_off(ledger, gone.in_backoff)
        if back:
            self._requeue(ledger, {seq: np.concatenate(pieces) for seq, pieces in back.items()})
        for start, count in gone.unqueued:
            states = np.full(count, CODES[PodState.INITIALIZED], np.uint8)
            self._release(ledger, np.arange(start, start + count), states)
        for start, count in gone.leaving:
            ledger.states[start : start + count] = LEAVING
            self.evicted.add(gone.job_id)
        self._forget(ledger)

    def back_off(self, ledger: JobLedger, pods: Iterable[tuple[int, int, int]]) -> None:
        """Put PENDING instances ``(start, count, end of the backoff)`` into backoff, before they are queued."""
        for start, count, until_ns in pods:
            ledger.back_off(start, count, until_ns)
            self.in_backoff.add(ledger.job_id)

    def backoff_turns(self, job_id: JobId) -> int:
        """Return how many times the gangs in backoff would fill the pool of the job."""
        return self._releases.turns(self.jobs[job_id].pool_id) if job_id in self.jobs else 0

    def release_held(self, now_ns: int) -> None:
        """End the backoff of gangs for which there may be hosts now."""
        for job_id in self._releases.due(self.in_backoff, self.jobs, now_ns):
            self.jobs[job_id].release()
            self.in_backoff.discard(job_id)

    def _requeue(self, ledger: JobLedger, back: Mapping[int, np.ndarray]) -> None:
        """Queue the PENDING pods of the job again: those in the queue, and those of ``back`` by their queue_seq."""
        waits = self.waiting.withdraw(ledger.pool_id, ledger.job_id)
        for queue_seq in sorted(waits.keys() | back.keys()):
            none = np.zeros(0, np.int64)
            instances = np.sort(np.concatenate([waits.get(queue_seq, none), back.get(queue_seq, none)]))
            for start, count in ledger.pending_ranges(instances):
                for run in ledger.runs(queue_seq, start, count):
                    self.waiting.push(ledger.pool_id, run)

    def apply_log(self, rows: Sequence[LogRow]) -> bool:
        """Apply rows of the status log in order. Return whether any pod released its resources by ending."""
        by_job: dict[JobId, dict[int, int]] = {}
        for seq, job_id, instance_id, _run, state in rows:
            if job_id in self.jobs:
                by_job.setdefault(job_id, {})[instance_id] = CODES[state]
            self.log_cursor = max(self.log_cursor, seq)
        released = 0
        for job_id, changes in by_job.items():
            ledger = self.jobs[job_id]
            instances = np.fromiter(changes.keys(), np.int64, len(changes))
            codes = np.fromiter(changes.values(), np.uint8, len(changes))
            is_known = instances < len(ledger.states)
            if job_id in self.in_backoff and ledger.may_use(instances[is_known]):
                self._releases.freed_jobs.add(job_id)
            released += self._release(ledger, instances[is_known], codes[is_known])
            self._forget(ledger)
        return released > 0

    def take_over(self, old: ResmgrState) -> None:
        """Copy from the old state, in recovery, what cannot be rebuilt from storage or from events."""
        self.capacity, self.slack_cpu, self.preempts = old.capacity, old.slack_cpu, old.preempts
        self.registered, self._divided = old.registered, old._divided
        self.divide_hosts()
        self.passed = old.passed
        self._releases = old._releases
        self._releases.repeat()
        self._unplaced = old._unplaced
        self._unplaced.keep(self.jobs)

    def note_unplaced(self, job_id: JobId, count: int, why: PlacementReason) -> None:
        self._unplaced.note(job_id, count, why)

    def _release(self, ledger: JobLedger, instances: np.ndarray, codes: np.ndarray) -> int:
        """Set the new states of instances that hold resources, and release the resources of ended ones. Return their
        number."""
        is_held = IS_ALLOCATED[ledger.states[instances]]
        instances, codes = instances[is_held], codes[is_held]
        ledger.states[instances] = codes
        ended = instances[~IS_ALLOCATED[codes]]
        for count, footprint in ledger.footprints.tally(ended):
            self._hold(ledger, footprint, -count)
        ledger.allocated_count -= len(ended)
        if ledger.job_id in self.evicted and not (ledger.states == LEAVING).any():
            self.evicted.discard(ledger.job_id)
        return len(ended)

    def _hold(self, ledger: JobLedger, footprint: Footprint, count: int) -> None:
        """Add ``count`` pods to the allocation of the job and of its pool; a negative count releases them."""
        self.accounts.hold(ledger.pool_id, footprint, count)
        ledger.held[footprint] += count
        if not ledger.held[footprint]:
            del ledger.held[footprint]

    def _forget(self, ledger: JobLedger) -> None:
        if ledger.is_over:
            self.jobs.pop(ledger.job_id, None)
            self.evicted.discard(ledger.job_id)
            self.in_backoff.discard(ledger.job_id)
            self._unplaced.forget(ledger.job_id)

    # -- the cycle --------------------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """True if any pod waits or holds resources."""
        return bool(self.jobs)

    @property
    def has_waiting(self) -> bool:
        """True if any gang waits in a queue."""
        return bool(self.waiting.pools)

    def snapshot(self, pod_limit: int, now_ns: int) -> Snapshot:
        """Return the input of a cycle. It is valid until the next event, because it shares arrays with this state.

        Gangs in backoff count neither as waiting nor as demand.
        """
        assert self.capacity is not None
        tree, accounts = self.tree, self.accounts
        waiting = {
            tree.row[pool_id]: queues
            for pool_id, queues in self.waiting.pools.items()
            if pool_id in tree.row and tree.is_leaf[tree.row[pool_id]]
        }
        held = find_held_gangs(tree, self.waiting, [self.jobs[job_id] for job_id in sorted(self.in_backoff)], now_ns)
        waiting, demand, slack_demand = skip_held(held, waiting, accounts.demand, accounts.slack_demand)
        capacity = tree.compute_capacity(self.capacity)
        self._releases.note(tree, capacity, held, now_ns)
        return Snapshot(
            tree,
            capacity,
            self.slack_cpu,
            accounts.usage,
            demand=demand,
            slack_demand=slack_demand,
            waiting=waiting,
            pod_limit=pod_limit,
            begin_at=self.admission.resume_at,
            leaving=self.leaving().usage if self.evicted else None,
            preempts=self.preempts,
            held=held,
            compartments=loads_of(self.compartments, accounts, held),
            backfill=self.passed.backfill(now_ns),
        )

    def leaving(self, more: Mapping[JobId, np.ndarray] | None = None) -> Accounts:
        """Return the resources that evicted pods still hold. For the jobs of ``more``, count those instances
        instead."""
        accounts = Accounts(self.tree, part_of=self.accounts.part_of)
        instances = {job_id: np.flatnonzero(self.jobs[job_id].states == LEAVING) for job_id in self.evicted}
        for job_id, own in (instances | dict(more or {})).items():
            ledger = self.jobs[job_id]
            for count, footprint in ledger.footprints.tally(own):
                accounts.hold(ledger.pool_id, footprint, count)
        return accounts

    def remember(self, plan: Plan, now_ns: int) -> None:
        """Store the entitlements and reasons of a cycle, and the times since which gangs are passed."""
        self.entitlement, self.admission = plan.entitlement, plan.admission
        self.passed.note(plan.admission, self.jobs, now_ns)

    # -- queries ----------------------------------------------------------------------------------------------------

    def count_unplaced(self, job_id: JobId) -> tuple[int, PlacementReason]:
        """Return the number of pods of the job without a host after the last placement, and why."""
        return self._unplaced.of(job_id)

    def list_unplaced(self) -> list[tuple[JobId, PlacementReason]]:
        """Return the jobs that have pods without a host after their last placement, and why, latest first."""
        return self._unplaced.latest()

    def path_of(self, pool_id: RespoolId) -> str:
        """Return the path of the pool, or its id if it does not exist."""
        row = self.tree.row.get(pool_id)
        return pool_id if row is None else self.tree.paths[row]
