"""Gauges of a pool for dashboards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from opentelemetry.metrics import CallbackOptions
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Metric, NumberDataPoint

from peloton.model.ids import JobId
from peloton.model.reason import Grounds, Rule
from peloton.model.resources import Resources
from peloton.scheduling.cycle import plan_cycle
from peloton.scheduling.eviction import Eviction
from peloton.scheduling.gangs import GangRun, QueueKind
from services.resmgr.metrics import AdmissionMeter, PoolGauges, amounts_of
from services.resmgr.recovery import rebuild
from tests.present import require
from tests.unit.resmgr.world import World


def test_gauges(world: World) -> None:
    """Every quantity is there, inner pools are the sums of their leaves, and queues count pods, empty ones too."""
    parent = world.pool("eng", 10, 50)
    job = world.job(world.pool("maps", 5, 50, parent), 7)
    ranges = world.storage.admission.queueable(job, 10)
    world.storage.admission.mark_pending(job, ranges, 1)
    state = rebuild(world.storage)
    state.set_capacity(Resources.of(100), Resources())
    state.remember(plan_cycle(state.snapshot(100, 0)), 0)

    amounts = amounts_of(state)
    queue = list(PoolGauges(lambda: state)._queue_lengths(CallbackOptions()))

    assert set(amounts) == {"allocation", "demand", "entitlement", "reservation", "limit"}
    assert np.array_equal(amounts["demand"][:, 0], [7000, 7000, 7000])
    assert {str((o.attributes or {})["queue"]): o.value for o in queue} == {
        **{kind.name.lower(): 0 for kind in QueueKind},
        "ordinary": 7,
    }
    assert {(o.attributes or {})["pool"] for o in queue} == {"/eng/maps"}


def test_admitted_pods_and_their_wait(world: World) -> None:
    """Admitted pods are counted by pool, and the wait is from the enqueue call to the cycle that admits."""
    job = world.job(world.pool("maps", 5, 50), 7)
    world.storage.admission.mark_pending(job, world.storage.admission.queueable(job, 10), 1)
    state = rebuild(world.storage)
    state.set_capacity(Resources.of(100), Resources())
    reader, now_s = InMemoryMetricReader(), [10.0]
    meter = AdmissionMeter(MeterProvider([reader]).get_meter("test"), lambda: now_s[0])

    meter.count_queued(1)
    now_s[0] = 12.5
    meter.count_admitted(state.tree, plan_cycle(state.snapshot(100, 0)).admission.admitted)

    data = reader.get_metrics_data()
    assert data is not None
    admitted, waits = (metric.data.data_points[0] for metric in data.resource_metrics[0].scope_metrics[0].metrics)
    assert (getattr(admitted, "value", None), dict(admitted.attributes or {})) == (7, {"pool": "/maps"})
    assert (getattr(waits, "sum", None), getattr(waits, "count", None)) == (2.5, 1)


def test_evicted_and_requeued_pods_and_broken_invariants(world: World) -> None:
    """Evicted pods are counted by their pool and by the pool of the waiting gang, pods without a host by their pool;
    faults are counted only if there are any.
    """
    reader = InMemoryMetricReader()
    meter = AdmissionMeter(MeterProvider([reader]).get_meter("test"))
    run = GangRun(JobId("low"), 0, 2, 3, (1000, 0, 0, 0), 0, 1)
    away = Grounds(Rule.ENTITLEMENT, "/a", "/b", "back", "cpu", 1, 2, 1)

    meter.count_evicted(
        [Eviction(1, run, True, away), Eviction(1, run, True, replace(away, for_pool="/a", priority=1))]
    )
    meter.count_evicted([Eviction(1, run, False, away)])
    meter.count_requeued("/a", 3)
    meter.broken(0)
    meter.broken(2)

    data = reader.get_metrics_data()
    assert data is not None
    preempted, requeued, broken = data.resource_metrics[0].scope_metrics[0].metrics

    def points(metric: Metric) -> list[NumberDataPoint]:
        return [point for point in metric.data.data_points if isinstance(point, NumberDataPoint)]

    found = {str(require(point.attributes)["kind"]): point.value for point in points(preempted)}
    assert found == {"between": 12, "inside": 6}
    assert [({"pool": "/a"}, 3)] == [(point.attributes, point.value) for point in points(requeued)]
    assert [point.value for point in points(broken)] == [2]
