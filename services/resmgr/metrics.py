"""Gauges per pool, which the meter's thread reads from the state, and the counters of admission."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Meter, Observation

from peloton.api.convert_pool import wire_amount
from peloton.model.ids import ROOT_POOL_ID
from peloton.model.resources import UNLIMITED
from peloton.scheduling.admission import Admitted
from peloton.scheduling.eviction import Eviction
from peloton.scheduling.gangs import QueueKind
from peloton.scheduling.tree import Ints, PoolTree
from services.resmgr.state import ResmgrState
from services.resmgr.tally import Tally

METER = "peloton.resmgr"
QUEUED_TIMES_MAX = 50_000
"""Limit of the enqueue calls whose time is kept; pods of older ones are admitted without a recorded wait."""
CYCLE_BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class PoolGauges:
    """``peloton.pool.<quantity>`` by pool and kind, in cores, MiB and gpus; ``peloton.pool.queue_length`` in pods."""

    def __init__(self, state: Callable[[], ResmgrState]) -> None:
        self._state = state
        meter = metrics.get_meter(METER)
        for quantity in ("allocation", "demand", "entitlement", "reservation", "limit"):
            meter.create_observable_gauge(f"peloton.pool.{quantity}", [self._reader(quantity)])
        meter.create_observable_gauge("peloton.pool.queue_length", [self._queue_lengths])

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
    """The counters of admission.

    ``peloton.pool.admitted``, ``peloton.pool.preempted`` and ``peloton.pool.requeued`` are in pods,
    ``peloton.pool.wait_time`` in seconds, once per run of like gangs, ``peloton.resmgr.cycle_time`` in seconds, and
    ``peloton.resmgr.broken_invariants`` in faults.

    The process that queued the pods times their wait: after a restart, waits of pods in the queue are not recorded.
    """

    def __init__(
        self,
        meter: Meter | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        tally: Tally | None = None,
    ) -> None:
        self._tally = tally or Tally()
        meter = meter or metrics.get_meter(METER)
        self._admitted = meter.create_counter("peloton.pool.admitted")
        self._preempted = meter.create_counter("peloton.pool.preempted")
        self._requeued = meter.create_counter("peloton.pool.requeued")
        self._broken = meter.create_counter("peloton.resmgr.broken_invariants")
        self._wait_time = meter.create_histogram("peloton.pool.wait_time", unit="s")
        self._cycle_time = meter.create_histogram(
            "peloton.resmgr.cycle_time", unit="s", explicit_bucket_boundaries_advisory=CYCLE_BOUNDS_S
        )
        self._queued_s: OrderedDict[int, float] = OrderedDict()
        self._clock_s = clock_s

    def count_queued(self, queue_seq: int) -> None:
        self._queued_s[queue_seq] = self._clock_s()
        while len(self._queued_s) > QUEUED_TIMES_MAX:
            self._queued_s.popitem(last=False)

    def count_admitted(self, tree: PoolTree, chosen: Iterable[Admitted]) -> None:
        now_s, chosen = self._clock_s(), list(chosen)
        self._tally.count_admitted(tree, chosen)
        for one in chosen:
            pool = {"pool": tree.paths[one.pool]}
            self._admitted.add(one.gang_count * one.run.gang_size, pool)
            queued_s = self._queued_s.get(one.run.queue_seq)
            if queued_s is not None:
                self._wait_time.record(now_s - queued_s, pool)

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
        began_s = self._clock_s()
        yield
        self._cycle_time.record(self._clock_s() - began_s)

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
