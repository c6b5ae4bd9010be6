"""Gauges per pool. The meter's thread reads a table that the event loop replaces as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from peloton.model.resources import RESOURCE_KINDS, UNLIMITED
from peloton.scheduling.tree import Ints
from services.resmgr.state import ResmgrState

METER = "peloton.resmgr"
_UNITS = {"cpu": 1000, "memory": 1, "disk": 1, "gpu": 1000}


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
            return [] if amounts is None else _observations(state.tree.paths, amounts)

        return read

    def _queue_lengths(self, _: CallbackOptions) -> Iterable[Observation]:
        state = self._state()
        for pool_id, row in list(state.tree.row.items()):
            queues = state.waiting.pools.get(pool_id, {})
            for kind, queue in list(queues.items()):
                pods = sum(run.pod_count for run in list(queue))
                yield Observation(pods, {"pool": state.tree.paths[row], "queue": kind.name.lower()})


def amounts_of(state: ResmgrState) -> Mapping[str, Ints]:
    """Quantity -> sums over each pool's subtree ``[P,R]``."""
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


def _observations(paths: tuple[str, ...], amounts: Ints) -> Iterable[Observation]:
    for path, row in zip(paths, amounts.tolist(), strict=False):
        for kind, amount in zip(RESOURCE_KINDS, row, strict=True):
            if amount < UNLIMITED:
                yield Observation(amount / _UNITS[kind], {"pool": path, "kind": kind})
