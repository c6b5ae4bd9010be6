"""Gauges: what a dashboard sees of a pool."""

from __future__ import annotations

import numpy as np
from opentelemetry.metrics import CallbackOptions

from peloton.model.resources import Resources
from peloton.scheduling.cycle import plan_cycle
from services.resmgr.metrics import PoolGauges, amounts_of
from services.resmgr.recovery import rebuild
from tests.unit.resmgr.world import World


def test_gauges(world: World) -> None:
    """Every quantity is there, inner pools are the sums of their leaves, and queues count pods."""
    parent = world.pool("eng", 10, 50)
    job = world.job(world.pool("maps", 5, 50, parent), 7)
    ranges = world.gateway.queueable(job, 10)
    world.gateway.mark_pending(job, ranges, 1)
    state = rebuild(world.gateway)
    state.set_capacity(Resources.of_capacity(100), Resources())
    state.note(plan_cycle(state.snapshot(100)))

    amounts = amounts_of(state)
    queue = list(PoolGauges(lambda: state)._queue_lengths(CallbackOptions()))

    assert set(amounts) == {"allocation", "demand", "entitlement", "reservation", "limit"}
    assert np.array_equal(amounts["demand"][:, 0], [7000, 7000, 7000])
    assert [(o.value, dict(o.attributes or {})) for o in queue] == [(7, {"pool": "/eng/maps", "queue": "ordinary"})]
