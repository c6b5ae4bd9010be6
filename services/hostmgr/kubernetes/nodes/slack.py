"""The slack of nodes: each node is measured periodically, and the cpu unused by its ordinary pods becomes revocable.

``peloton.scheduling.slack`` computes the amount. Two measurements yield a rate: until then, and after a node has not
responded, its slack is unknown, which lets revocable pods stay and admits no more.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from peloton.model.ids import Hostname
from peloton.scheduling.slack import estimate, smooth
from services.hostmgr.driver import UseSample
from services.hostmgr.kubernetes.cluster_view import ClusterView
from services.hostmgr.kubernetes.nodes.node_line import Demand
from services.ticks import ticking

log = logging.getLogger(__name__)

MEASURED_AT_ONCE = 8
NODES_PER_ROUND_MAX = 200
"""Limit of nodes per round; the others follow in the next rounds."""
SILENCES_MAX = 3
"""Number of consecutive failed measurements after which the slack of a node is unknown."""


class _Count(NamedTuple):
    cpu_s: float
    at_s: float
    rate_milli: int | None  # None: measured once


class _Measured(NamedTuple):
    """The recorded measurements of a node."""

    counts: Mapping[str, _Count] = {}
    used_milli: int = 0  # smoothed
    silences: int = 0


class SlackEstimator:
    """Estimates slack on one thread. ``samples_of`` raises OSError or ValueError when a node cannot be measured."""

    def __init__(
        self,
        view: ClusterView,
        samples_of: Callable[[Hostname], Sequence[UseSample]],
        period_s: float,
        is_due: Callable[[], bool] = lambda: True,
    ) -> None:
        self._view = view
        self._samples_of = samples_of
        self._period_s = period_s
        self._is_due = is_due
        self._nodes: dict[str, _Measured] = {}
        self._last = ""
        self._askers = ThreadPoolExecutor(MEASURED_AT_ONCE, thread_name_prefix="slack")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubernetes slack", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop; pending requests must have been ended before."""
        self._stopping.set()
        self._askers.shutdown(cancel_futures=True)
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        with ticking("kubernetes slack", self._period_s) as loop:
            while not self._stopping.wait(self._period_s):
                loop.tick()
                try:
                    if self._is_due():
                        self.run_round()
                except Exception:
                    if not self._stopping.is_set():
                        log.exception("measuring the slack of nodes failed, retrying")

    def run_round(self) -> None:
        """Measure the next nodes."""
        with self._view.lock:
            lenders = self._view.ledger.lenders()
        self._nodes = {name: known for name in lenders if (known := self._nodes.get(name)) is not None}
        begin = bisect_right(lenders, self._last)
        chosen = [*lenders[begin:], *lenders[:begin]][:NODES_PER_ROUND_MAX]
        self._last = chosen[-1] if chosen else ""
        for name, samples in zip(chosen, self._askers.map(self._ask, chosen), strict=True):
            if samples is None:
                self._note_silence(name)
            else:
                self._note(name, samples)

    def _ask(self, name: str) -> Sequence[UseSample] | None:
        try:
            return self._samples_of(Hostname(name))
        except (OSError, ValueError) as error:
            log.debug("usage of pods on node %s is unknown: %s", name, error)
            return None

    def _note_silence(self, name: str) -> None:
        before = self._nodes.get(name, _Measured())
        if before.silences + 1 < SILENCES_MAX:
            self._nodes[name] = before._replace(silences=before.silences + 1)
            return
        self._nodes.pop(name, None)
        with self._view.lock:
            self._view.ledger.set_slack(name, None)

    def _note(self, name: str, samples: Sequence[UseSample]) -> None:
        before = self._nodes.get(name, _Measured())
        counts = {sample.key: _next_count(before.counts.get(sample.key), sample) for sample in samples}
        with self._view.lock:
            ledger = self._view.ledger
            node, last = ledger.node(name), ledger.slack_of(name)
            if node is None:
                return
            if last is None and not _is_measured_twice(before.counts, counts):
                self._nodes[name] = _Measured(counts)
                return
            allocated, measured = _ordinary(ledger.demands_on(name), counts)
            allocated = min(allocated, node.capacity.cpu_milli)
            used = smooth(before.used_milli, measured)
            self._nodes[name] = _Measured(counts, used)
            ledger.set_slack(name, estimate(last or 0, allocated, used))


def _next_count(before: _Count | None, sample: UseSample) -> _Count:
    """Return the next count. A counter that was reset starts a new one."""
    if before is None or sample.cpu_s < before.cpu_s:
        return _Count(sample.cpu_s, sample.at_s, None)
    if sample.at_s <= before.at_s:
        return before
    rate = (sample.cpu_s - before.cpu_s) / (sample.at_s - before.at_s)
    return _Count(sample.cpu_s, sample.at_s, round(rate * 1000))


def _is_measured_twice(before: Mapping[str, _Count], now: Mapping[str, _Count]) -> bool:
    """Return whether all pods in both measurements have a rate."""
    return bool(before) and all(count.rate_milli is not None for key, count in now.items() if key in before)


def _ordinary(demands: Mapping[str, Demand], counts: Mapping[str, _Count]) -> tuple[int, int]:
    """Return the cpu that ordinary pods request and use. A pod not measured twice counts as using its whole request; a
    pod that has just ended with its last use."""
    ordinary = {key: demand.held.cpu_milli for key, demand in demands.items() if not demand.slack_milli}
    rates = {key: count.rate_milli for key, count in counts.items() if count.rate_milli is not None}
    used = sum(rates.get(key, held) for key, held in ordinary.items())
    used += sum(rate for key, rate in rates.items() if key not in demands)
    return sum(ordinary.values()), used
