"""The admission loop: the only writer of the resource manager's state.

Every change is committed to storage first and applied to memory right after. The lock and the one storage thread keep
all changes in one order. When a commit fails half-way its effect is unknown, so memory is thrown away and read again.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from peloton.errors import Aborted, NotFound, PelotonError, Reason, Unavailable
from peloton.lifecycle.failed_placements import backoff_min_s
from peloton.lifecycle.pool_fate import PoolFate, evaluate_pool
from peloton.lifecycle.reason_text import requeue_text
from peloton.model.admission import EvictionOrder, EvictionResult, HeldRange
from peloton.model.ids import ROOT_POOL_ID, JobId
from peloton.model.job import JobRecord
from peloton.model.pod import PodState
from peloton.model.reason import PlacementReason, RequeueReason
from peloton.ports import Lifecycles
from peloton.scheduling.cycle import Evictable, plan_cycle
from peloton.scheduling.eviction import Eviction
from services.resmgr.audit import audit
from services.resmgr.capacity_source import CapacitySource
from services.resmgr.enqueue_waiters import EnqueueWaiters
from services.resmgr.log_reads import read_changes, read_log
from services.resmgr.metrics import AdmissionMeter
from services.resmgr.preemption import PreemptionRounds, evictable, jobs_to_evict_from, order, summary
from services.resmgr.recovery import rebuild
from services.resmgr.rounds import repeat
from services.resmgr.settings import LoopSettings
from services.resmgr.state import LogRow, ResmgrState
from services.resmgr.tally import Tally
from services.storage.storage import Storage

log = logging.getLogger(__name__)
T = TypeVar("T")
A = TypeVar("A")


class AdmissionLoop:
    """Start it, then call its methods from the same event loop."""

    def __init__(
        self,
        records: Storage,
        lifecycles: Lifecycles,
        capacity_source: CapacitySource,
        settings: LoopSettings | None = None,
    ) -> None:
        self.state = ResmgrState()
        self.settings = settings or LoopSettings()
        self.state.preempts = self.settings.preempts
        self.state.passed.max_s = self.settings.backfill_s
        self._records, self._admission = records, records.admission
        self._lifecycles = lifecycles
        self._capacity_source = capacity_source
        self.clock_ns: Callable[[], int] = time.time_ns
        self._rounds = PreemptionRounds(self.settings.preemption_period_s, self.settings.sustained_over_count)
        self._storage = ThreadPoolExecutor(1, thread_name_prefix="resmgr-storage")
        self._network = ThreadPoolExecutor(1, thread_name_prefix="resmgr-capacity")
        self.tally = Tally()
        self._meter = AdmissionMeter(tally=self.tally)
        self.waiters = EnqueueWaiters(partial(lifecycles.jobs_changed, cause="pods were admitted"))
        self._lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._ask_capacity = asyncio.Event()
        self._is_dirty = True  # the state has changed since the last cycle
        self._is_stale = True  # memory may differ from storage
        self._commits: set[asyncio.Task[Any]] = set()
        self._loops: list[asyncio.Task[None]] = []

    # -- start and stop ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Rebuild memory from storage, then begin; raise the errors of storage."""
        await self._commit(lambda: None, lambda _: None)
        settings = self.settings
        rounds = {
            "admission": (self._admission_round, settings.entitlement_period_s),
            "capacity": (self._capacity_round, settings.capacity_period_s),
            "prune": (self._prune_round, settings.prune_period_s),
        }
        self._loops = [
            asyncio.create_task(repeat(one_round, settings.retry_period_s, period_s), name=f"resmgr {name}")
            for name, (one_round, period_s) in rounds.items()
        ]

    async def stop(self) -> None:
        """Stop after the commits under way; queued work stays in storage."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, *self._commits, return_exceptions=True)
        self._storage.shutdown()
        self._network.shutdown(wait=False, cancel_futures=True)

    # -- calls ------------------------------------------------------------------------------------------------------

    async def enqueue(self, job_id: JobId, limit: int) -> int:
        """Queue up to about ``limit`` INITIALIZED pods of a job; return how many.

        Pods of a pool that no longer exists fail, if they may, and count, too. Raises NotFound, Aborted.
        """
        limit = min(limit, self.settings.enqueued_pods_max)
        return await self._commit(lambda: self._store_enqueue(job_id, limit), lambda change: change())

    def _store_enqueue(self, job_id: JobId, limit: int) -> Callable[[], int]:
        job = self._records.jobs.get(job_id)
        if job is None:
            raise NotFound(f"job {job_id} not found").because(Reason.JOB_NOT_FOUND, job=job_id)
        if fate := self._pool_fate(job):
            if not fate.is_final:
                raise Aborted(f"job {job_id} waits: {fate.reason}")
            refused = self._admission.refuse(job_id, fate.reason, self.clock_ns())
            log.warning("failed %d instances of job %s: %s", refused, job_id, fate.reason)
            return lambda: refused
        ranges = self._admission.queueable(job_id, limit)
        if not ranges:
            return lambda: 0
        first, end = min(start for start, _ in ranges), max(start + count for start, count in ranges)
        queue_seq = self.state.next_seq
        queued = self._admission.mark_pending(job_id, ranges, queue_seq)
        # Read after the commit: until then an update may have changed the shapes.
        shapes = self._admission.waiting_shapes(job_id, first, end - first)
        # The pods' earlier runs ended before the pods became INITIALIZED: these rows are in the log by now.
        rows = self._read_log()

        def change() -> int:
            self.state.apply_log(rows)
            self._mark_changed()
            self.waiters.record_queued(job_id)
            known = self.state.jobs.get(job_id)
            if known is not None and known.is_unlike(job):  # by an update
                self._is_stale = True
                return sum(count for _, _, count in queued)
            self._meter.count_queued(queue_seq, job.created_ns if known is None else 0)
            return self.state.enqueue_stored(job, shapes, queued)

        return change

    def _pool_fate(self, job: JobRecord) -> PoolFate | None:
        pool_id, tree = job.respool_id, self.state.tree
        row = tree.row.get(pool_id)
        if row is None:
            is_stored = pool_id in self._records.pools.configs()
            return evaluate_pool(job.type, pool_id, is_known=False, is_stored=is_stored, is_leaf=False)
        is_leaf = pool_id != ROOT_POOL_ID and bool(tree.is_leaf[row])
        return evaluate_pool(job.type, tree.paths[row], is_known=True, is_stored=True, is_leaf=is_leaf)

    async def kill_queued(self, job_id: JobId) -> int:
        """End the job's queued and admitted pods whose goal is KILLED; return how many."""

        def apply(ranges: list[tuple[int, int, PodState]]) -> int:
            self.state.apply_kill(job_id, [(start, count) for start, count, _ in ranges])
            if ranges:
                self._mark_changed()
            return sum(count for _, count, _ in ranges)

        return await self._commit(lambda: self._admission.kill_queued(job_id, self.clock_ns()), apply)

    async def requeue_gang(self, job_id: JobId, why: RequeueReason) -> None:
        """Take back the admission of a gang whose launch failed, and wake its job."""
        await self._requeue(job_id, why, lambda s: self._admission.requeue_gang(job_id, why, s))
        self._lifecycles.jobs_changed([job_id], "its gang was queued again")

    async def requeue_pods(
        self, job_id: JobId, instances: Sequence[tuple[int, int]], why: RequeueReason, but: Sequence[int] = ()
    ) -> int:
        """Take back the admission of pods without a host; return how many. The caller wakes their job."""
        gone = await self._requeue(job_id, why, lambda s: self._admission.requeue_pods(job_id, instances, why, s, but))
        count = sum(count for _, _, count in gone.queued)
        if count and (ledger := self.state.jobs.get(job_id)):
            self._meter.count_requeued(self.state.path_of(ledger.pool_id), count)
        return count

    async def _requeue(
        self, job_id: JobId, why: RequeueReason, work: Callable[[int], EvictionResult]
    ) -> EvictionResult:
        """Commit ``work``, a function of the least backoff of requeued pods in seconds."""

        def apply(gone: EvictionResult) -> EvictionResult:
            if (gone.held_until_ns or gone.in_backoff) and job_id in self.state.jobs:
                self.state.apply_eviction(gone)
                self._mark_changed()
                log.info("requeued job %s with backoff: %s", job_id, requeue_text(why))
            return gone

        return await self._commit(lambda: work(backoff_min_s(self.state.backoff_turns(job_id))), apply)

    async def evict(self, orders: Sequence[EvictionOrder]) -> int:
        """Evict pods that the caller chose, and wake their jobs to end them on hosts. Return how many leave."""

        def apply(results: Sequence[EvictionResult]) -> list[EvictionResult]:
            gone = [result for result in results if result.leaving or result.queued or result.unqueued]
            for result in gone:
                self.state.apply_eviction(result)
            if gone:
                self._mark_changed()
            return gone

        gone = await self._commit(lambda: self._admission.evict(orders), apply, [order.job_id for order in orders])
        if gone:
            self._ask_capacity.set()  # their hosts have less slack now, or take no revocable pods for a while
            self._lifecycles.jobs_changed([result.job_id for result in gone], "pods were evicted")
        return sum(count for result in gone for _, count in result.leaving)

    def note_unplaced(self, job_id: JobId, count: int, why: PlacementReason) -> int:
        """Note unplaced pods; return how many times over the gangs in backoff of the job's pool would fill the pool."""
        self.state.note_unplaced(job_id, count, why)
        return self.state.backoff_turns(job_id)

    async def change_pools(self, decide: Callable[[], tuple[Callable[[], object], Callable[[], A]]]) -> A:
        """Change pools: ``decide`` returns a function that stores the change and one that applies it to memory, or
        raises. It decides with all rows of the status log applied: a pool whose last pod has just ended is idle."""
        return await self._shield(self._change_pools(decide))

    async def _change_pools(self, decide: Callable[[], tuple[Callable[[], object], Callable[[], A]]]) -> A:
        async with self._lock:
            await self._refresh()
            self._apply_log(await self._in_storage(self._read_log))
            store, change = decide()
            await self._in_storage(store)
            self._mark_changed()
            return change()

    async def with_held(
        self,
        jobs_of: Callable[[ResmgrState], list[JobId]],
        answer: Callable[[ResmgrState, Mapping[JobId, Sequence[HeldRange]]], A],
    ) -> A:
        """Call ``answer`` with the state, and the pods that the jobs of ``jobs_of`` hold by storage at the same
        moment."""

        def work() -> tuple[list[LogRow], Mapping[JobId, Sequence[HeldRange]]]:
            rows = self._read_log()
            jobs = jobs_of(self.state)
            return rows, self._admission.list_held(jobs) if jobs else {}

        def apply(found: tuple[list[LogRow], Mapping[JobId, Sequence[HeldRange]]]) -> A:
            self._apply_log(found[0])
            return answer(self.state, found[1])

        return await self._commit(work, apply)

    async def learn_capacity(self) -> None:
        """Ask the host manager for the capacity now. Raises Unavailable."""
        capacity = await asyncio.get_running_loop().run_in_executor(self._network, self._capacity_source.capacity)
        if self.state.set_capacity(*capacity):
            self._mark_changed()

    # -- rounds -----------------------------------------------------------------------------------------------------

    async def _admission_round(self) -> None:
        """Wait for a change or the end of the period, then run one cycle and the pause after it."""
        settings = self.settings
        preempts = settings.preempts and self.state.is_busy  # the first pods end the wait
        period_s = min(settings.entitlement_period_s, settings.preemption_period_s if preempts else math.inf)
        due_s = time.monotonic() + period_s
        while not self._is_dirty and time.monotonic() < due_s:
            log_s = settings.log_poll_s(self.state.has_waiting, self.state.is_busy)
            poll_s = min(log_s, due_s - time.monotonic())
            try:
                # Not wait_for: before Python 3.12 it may swallow a cancellation, and the loop would never end.
                async with asyncio.timeout(max(poll_s, 0)):
                    await self._wake.wait()
            except TimeoutError:
                if self.state.is_busy:
                    await self._commit(self._read_log, self._apply_log)
        quiet_until_s = time.monotonic() + settings.cycle_period_s
        await self.run_cycle()
        await asyncio.sleep(max(quiet_until_s - time.monotonic(), 0))

    async def run_cycle(self) -> list[JobId]:
        """Run one cycle now, whatever the pace; wake the jobs whose pods were admitted. For the loop and for tests."""
        jobs = await self._shield(self._cycle())
        if jobs:
            self._lifecycles.jobs_changed(jobs, "pods were admitted")
        return jobs

    async def _cycle(self) -> list[JobId]:
        """Read ended pods, plan, commit, apply. Return jobs with newly admitted pods."""
        async with self._lock:
            await self._refresh()
            self._wake.clear()
            self._is_dirty = False
            try:
                with self._meter.cycle():
                    cursor, rows_max = self.state.log_cursor, self.settings.log_rows_max
                    rows, volumes = await self._in_storage(lambda: read_changes(self._records, cursor, rows_max))
                    self._apply_log(rows)
                    self.state.accounts.set_volumes(volumes)
                    if self.state.capacity is None:
                        return []
                    return await self._admit()
            except BaseException:
                self._is_dirty = True
                raise

    async def _admit(self) -> list[JobId]:
        state = self.state
        state.divide_hosts()
        state.release_held(self.clock_ns())
        now = state.snapshot(self.settings.admitted_pods_max, self.clock_ns())
        if self.settings.preempts and self._rounds.is_time():
            now = replace(now, evictable=await self._find_evictable())
        plan = plan_cycle(now) if now.evictable is None else await asyncio.to_thread(plan_cycle, now)
        before = replace(now, usage=now.usage.copy()) if self.settings.checks_invariants else None
        chosen = plan.admission.admitted
        if chosen:
            items = [(c.run.job_id, c.run.start, c.gang_count * c.run.gang_size) for c in chosen]
            pods = sum(count for _, _, count in items)
            marked = await self._in_storage(lambda: self._admission.mark_ready(items), [job_id for job_id, *_ in items])
            if marked != pods:
                self._is_stale = True
                self._mark_changed()
                log.warning("%d of %d admitted pods were still PENDING; reading everything again", marked, pods)
        jobs = state.apply_admission(plan.admission)
        jobs = self.waiters.resolve(jobs, chosen)
        self._meter.count_admitted(state.tree, chosen, self.clock_ns())
        state.remember(plan, self.clock_ns())
        if before is not None and not self._is_stale:
            self._meter.broken(audit(before, plan, state))
        if chosen:
            self._mark_changed()  # the rest may fit in the next cycle, and reasons are outdated
        if plan.evictions and not self._is_stale:
            jobs += await self._evict(plan.evictions, jobs)
        return jobs

    async def _find_evictable(self) -> Evictable | None:
        due = self._rounds.begin(self.state)
        jobs = jobs_to_evict_from(self.state, due)
        if not jobs:
            return None
        held = await self._in_storage(lambda: self._admission.list_held(jobs))
        # Pods that ended since the log was read are not among them, and still count in memory: they count as leaving.
        # With 100,000 runs this takes seconds, so it has a thread; the lock keeps the state as it is.
        return await asyncio.to_thread(evictable, self.state, held, due, self.settings.evicted_pods_max)

    async def _evict(self, evictions: Sequence[Eviction], admitted: Sequence[JobId]) -> list[JobId]:
        """Commit and apply evictions; return the jobs to wake: their workflows end the pods on hosts."""
        concerned = [*admitted, *(one.run.job_id for one in evictions)]
        results = await self._in_storage(lambda: self._admission.evict([order(one) for one in evictions]), concerned)
        for result in results:
            self.state.apply_eviction(result)
        self._meter.count_evicted(evictions)
        self._mark_changed()
        log.info("%s", summary(evictions))
        return [result.job_id for result in results]

    async def _capacity_round(self) -> None:
        self._ask_capacity.clear()
        await self.learn_capacity()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.capacity_period_s):
                await self._ask_capacity.wait()

    async def _prune_round(self) -> None:
        await asyncio.sleep(self.settings.prune_period_s)
        upto, loop, rows_max = self.state.log_cursor, asyncio.get_running_loop(), self.settings.pruned_rows_max
        prune = partial(self._admission.prune_status_log, upto, rows_max)
        while await loop.run_in_executor(self._storage, prune) == rows_max:
            pass

    def _read_log(self) -> list[LogRow]:
        return read_log(self._admission, self.state.log_cursor, self.settings.log_rows_max)

    def _apply_log(self, rows: list[LogRow]) -> None:
        if self.state.apply_log(rows):
            self._mark_changed()

    def _mark_changed(self) -> None:
        self._is_dirty = True
        self._wake.set()

    # -- commits ----------------------------------------------------------------------------------------------------

    async def _commit(self, work: Callable[[], T], apply: Callable[[T], A], concerned: Sequence[JobId] = ()) -> A:
        """Do ``work`` in the storage thread, then ``apply`` its result to memory; no other change comes between."""
        return await self._shield(self._commit_now(work, apply, concerned))

    async def _commit_now(self, work: Callable[[], T], apply: Callable[[T], A], concerned: Sequence[JobId]) -> A:
        async with self._lock:
            await self._refresh()
            result = await self._in_storage(work, concerned)
            try:
                return apply(result)
            except BaseException:
                self._is_stale = True
                raise

    async def _shield(self, work: Coroutine[Any, Any, A]) -> A:
        """Run to the end even if the caller is cancelled, so that no commit stops between storage and memory."""
        task = asyncio.create_task(work)
        self._commits.add(task)
        task.add_done_callback(self._commits.discard)
        return await asyncio.shield(task)

    async def _in_storage(self, work: Callable[[], T], concerned: Sequence[JobId] = ()) -> T:
        """Run in the storage thread. ``concerned``: jobs to wake if the work failed and part of it may have been
        committed."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._storage, work)
        except BaseException as error:
            if isinstance(error, Unavailable) or not isinstance(error, PelotonError):  # else nothing was written
                self._is_stale = True
                self._lifecycles.jobs_changed(concerned, "admission failed half way")
            raise

    async def _refresh(self) -> None:
        """Rebuild memory from storage if it may differ."""
        if not self._is_stale:
            return
        began_s = time.monotonic()
        fresh = await asyncio.get_running_loop().run_in_executor(self._storage, rebuild, self._records)
        log.info("memory rebuilt from storage in %.2f s: %d jobs", time.monotonic() - began_s, len(fresh.jobs))
        fresh.take_over(self.state)
        self.state = fresh
        self._is_stale = False
        self._mark_changed()
