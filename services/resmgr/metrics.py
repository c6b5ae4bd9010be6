"""Gauges per pool, which the meter's thread reads from the state, and the counters of admission."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from peloton.api.convert_pool import wire_amount
from peloton.model.ids import ROOT_POOL_ID
from peloton.model.resources import UNLIMITED
from peloton.model.times import NS_PER_S
from peloton.scheduling.admission import Admitted
from peloton.scheduling.eviction import Eviction
from peloton.scheduling.gangs import QueueKind
from peloton.scheduling.tree import Ints, PoolTree
from services.resmgr.state import ResmgrState
from services.resmgr.tally import Tally
from services.telemetry.metrics import counter, histogram, register_gauge, timing
from services.telemetry.traces import Origins, record_batch

QUEUED_TIMES_MAX = 50_000
"""Limit of the enqueue calls whose time is kept; pods of older ones are admitted without a recorded wait."""


class PoolGauges:
    """The amounts of pools by kind, in cores, MiB and gpus, and the lengths of their queues in pods."""

    def __init__(self, state: Callable[[], ResmgrState]) -> None:
        self._state = state
        register_gauge("peloton.pool.allocation", self._reader("allocation"))
        register_gauge("peloton.pool.demand", self._reader("demand"))
        register_gauge("peloton.pool.entitlement", self._reader("entitlement"))
        register_gauge("peloton.pool.reservation", self._reader("reservation"))
        register_gauge("peloton.pool.limit", self._reader("limit"))
        register_gauge("peloton.pool.queue_length", self._queue_lengths)

    def _reader(self, quantity: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(_: CallbackOptions) -> Iterable[Observation]:
            state = self._state()
            amounts = amounts_of(state).get(quantity)
            return [] if amounts is None else _observations(state.tree, amounts)

        return read

    def _queue_lengths(self, _: CallbackOptions) -> Iterable[Observation]:
        """Yield the lengths of all queues, empty ones too, or a dashboard would keep showing their last length."""
        state = self._state()
        tree = state.tree
        for pool_id, row in list(tree.row.items()):
            if not tree.is_leaf[row] or pool_id == ROOT_POOL_ID:
                continue
            queues = state.waiting.pools.get(pool_id, {})
            for kind in QueueKind:
                pods = sum(run.pod_count for run in list(queues.get(kind, ())))
                yield Observation(pods, {"pool": tree.paths[row], "queue": kind.name.lower()})


class AdmissionMeter:
    """The counters of admission, with the units of the table of metrics.

    The process that queued the pods times their wait: after a restart, waits of pods in the queue are not recorded.
    """

    def __init__(
        self,
        meter: Meter | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        tally: Tally | None = None,
    ) -> None:
        self._tally = tally or Tally()
        self._admitted = counter("peloton.pool.admitted", meter)
        self._preempted = counter("peloton.pool.preempted", meter)
        self._requeued = counter("peloton.pool.requeued", meter)
        self._broken = counter("peloton.resmgr.broken_invariants", meter)
        self._wait_time = histogram("peloton.pool.wait_time", meter)
        self._admission_time = histogram("peloton.job.admission_time", meter)
        self._cycle_time = histogram("peloton.resmgr.cycle_time", meter)
        self._queued_s: OrderedDict[int, tuple[float, int]] = OrderedDict()  # time, and submission in unix nanoseconds
        self._origins = Origins()
        self._clock_s = clock_s

    def count_queued(self, queue_seq: int, submitted_ns: int = 0) -> None:
        """``submitted_ns``: of a job whose first pods these are."""
        self._queued_s[queue_seq] = self._clock_s(), submitted_ns
        self._origins.remember([queue_seq])
        while len(self._queued_s) > QUEUED_TIMES_MAX:
            self._queued_s.popitem(last=False)

    def count_admitted(self, tree: PoolTree, chosen: Iterable[Admitted], now_ns: int = 0) -> None:
        now_s, chosen = self._clock_s(), list(chosen)
        self._tally.count_admitted(tree, chosen)
        for one in chosen:
            pool = {"pool": tree.paths[one.pool]}
            self._admitted.add(one.gang_count * one.run.gang_size, pool)
            queued_s, submitted_ns = self._queued_s.get(one.run.queue_seq, (None, 0))
            if queued_s is not None:
                self._wait_time.record(now_s - queued_s, pool)
                self._queued_s[one.run.queue_seq] = queued_s, 0
            origins = self._origins.take([one.run.queue_seq], last=[one.run.queue_seq])
            pods: dict[str, int | str] = {"job": one.run.job_id, "pods": one.gang_count * one.run.gang_size}
            record_batch("admission", origins, pods)
            if submitted_ns:
                self._admission_time.record(max(now_ns - submitted_ns, 0) / NS_PER_S)

    def count_evicted(self, evictions: Iterable[Eviction]) -> None:
        """Count evictions by the victim's pool, and whether the waiting gang is of the same pool."""
        evictions = list(evictions)
        self._tally.count_evicted(evictions)
        for one in evictions:
            kind = "inside" if one.grounds.is_inside else "between"
            self._preempted.add(one.run.pod_count, {"pool": one.grounds.pool_path, "kind": kind})

    def count_requeued(self, pool_path: str, pods: int) -> None:
        """Count pods that were queued again because no host was found for them."""
        self._requeued.add(pods, {"pool": pool_path})

    @contextmanager
    def cycle(self) -> Iterator[None]:
        with timing(self._cycle_time):
            yield

    def broken(self, count: int) -> None:
        if count:
            self._broken.add(count)


def amounts_of(state: ResmgrState) -> Mapping[str, Ints]:
    """Return by quantity the sums over each pool's subtree ``[P,R]``."""
    accounts, entitlement = state.accounts, state.entitlement
    tree = accounts.tree
    amounts = {
        "allocation": tree.roll_up(accounts.non_slack + accounts.slack),
        "demand": tree.roll_up(accounts.demand + accounts.slack_demand),
        "reservation": tree.reservation,
        "limit": tree.limit,
    }
    if entitlement is not None and entitlement.total.shape == tree.limit.shape:
        amounts["entitlement"] = entitlement.total
    return amounts


def _observations(tree: PoolTree, amounts: Ints) -> Iterable[Observation]:
    for path, row in zip(tree.paths, amounts.tolist(), strict=False):
        for kind, amount in zip(tree.kinds, row, strict=False):
            if amount < UNLIMITED:
                yield Observation(wire_amount(kind, amount), {"pool": path, "kind": kind})
