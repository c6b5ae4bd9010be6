"""Metrics of a host manager: its hosts, placements, launches and reports."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from threading import Lock

from opentelemetry.metrics import CallbackOptions, Observation

from peloton.api.convert_pool import wire_amount
from peloton.errors import Unavailable
from peloton.model.host import LaunchResult, PlacementBatch
from peloton.model.ids import PodId
from peloton.model.pod import TERMINAL, PodState, PodStatus
from peloton.model.resources import Resources
from services.hostmgr.hosts.host_cache import HostCache
from services.telemetry import state
from services.telemetry.metrics import counter, histogram, register_gauge
from services.telemetry.traces import Origins, record_batch

LAUNCHES_MAX = 100_000
"""Limit of the launches whose time is kept; the oldest ones are not measured."""
PLACEMENTS = histogram("peloton.placement.duration")
ROUNDS = counter("peloton.reconcile.rounds")
DROPPED = counter("peloton.status.dropped")
BATCHES = histogram("peloton.status.batch")
_PLACED = counter("peloton.placement.pods")
_LAUNCHED = counter("peloton.launch.pods")
_REPORTS = counter("peloton.status.reports")
_MEASURED = histogram("peloton.pod.launch_time")


class HostGauges:
    """Gauges of the hosts of a cluster; without values before the hosts are known."""

    def __init__(self, cache: HostCache) -> None:
        self._cache = cache
        register_gauge("peloton.hosts.registered", self._counts)
        register_gauge("peloton.hosts.capacity", lambda _: _amounts(lambda: cache.capacity()[0]))
        register_gauge("peloton.hosts.free", lambda _: _amounts(cache.free))
        register_gauge("peloton.hosts.offers", lambda _: [Observation(cache.resources_count)])

    def _counts(self, _: CallbackOptions) -> Iterable[Observation]:
        if not self._cache.are_hosts_known:
            return []
        up_count = self._cache.capacity()[2]
        out_count = self._cache.host_count() - up_count
        return [Observation(up_count, {"state": "up"}), Observation(out_count, {"state": "unavailable"})]


class LaunchTimes:
    """Measures the time from a launch to the report RUNNING, and adds reports to the trace of the launch. Any thread
    may call."""

    def __init__(self) -> None:
        self._launched_s: OrderedDict[PodId, float] = OrderedDict()
        self._origins = Origins()
        self._lock = Lock()

    def begin(self, pods: Iterable[PodId]) -> None:
        if not state.is_on():
            return
        pods = list(pods)
        self._origins.remember(pods)
        now_s = time.monotonic()
        with self._lock:
            self._launched_s.update(dict.fromkeys(pods, now_s))
            while len(self._launched_s) > LAUNCHES_MAX:
                self._launched_s.popitem(last=False)

    def take(self, statuses: Sequence[PodStatus]) -> None:
        if not state.is_on():
            return
        now_s = time.monotonic()
        pods, ended = [one.pod_id for one in statuses], [one.pod_id for one in statuses if one.state in TERMINAL]
        counts = Counter(status.state.name for status in statuses)
        record_batch("reports of pods", self._origins.take(pods, ended), counts)
        for pod_state, count in counts.items():
            _REPORTS.add(count, {"state": pod_state})
        with self._lock:
            running = [
                launched_s
                for status in statuses
                if status.state not in (PodState.LAUNCHED, PodState.STARTING)
                and (launched_s := self._launched_s.pop(status.pod_id, None)) is not None
                and status.state is PodState.RUNNING
            ]
        for launched_s in set(running):  # once for each launch: a value for each pod would cost as much as its report
            _MEASURED.record(now_s - launched_s)


LAUNCH_TIMES = LaunchTimes()


def count_placed(batch: PlacementBatch) -> None:
    for outcome, count in (("placed", batch.placed_count), ("no_host", batch.unplaced_count)):
        if count:
            _PLACED.add(count, {"outcome": outcome})


def count_launched(result: LaunchResult) -> None:
    counts = {"launched": result.launched_count, "refused": result.refused_count, "failed": result.failed_count}
    for outcome, count in counts.items():
        if count:
            _LAUNCHED.add(count, {"outcome": outcome})


def _amounts(read: Callable[[], Resources]) -> Iterable[Observation]:
    try:
        found = read()
    except Unavailable:
        return []
    return [Observation(wire_amount(kind, amount), {"kind": kind}) for kind, amount in found.items()]
