"""Usage of hosts from the counters of their agents, the order of measurement, and the metrics."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from peloton.model.ids import Hostname, PodId
from peloton.model.reason import QosReason, QosRule
from peloton.scheduling.qos import Correction, HostWatch, QosPolicy, Use
from services.hostmgr.host_samples import in_turn
from services.hostmgr.host_use import HostUse, next_use
from services.hostmgr.hosts.host_cache import HostCache
from services.hostmgr.mesos.codec import samples_of
from services.hostmgr.qos import QosMeter
from tests.unit.hostmgr.test_hosts import agent

POD = "00000000-0000-4000-8000-000000000001-0-1"


def row(executor: str, cpu_s: float, at_s: float, memory_mib: int = 0, framework: str = "f") -> dict[str, Any]:
    numbers = {
        "cpus_user_time_secs": cpu_s / 2,
        "cpus_system_time_secs": cpu_s / 2,
        "mem_rss_bytes": memory_mib * 2**20,
        "timestamp": at_s,
    }
    return {"framework_id": framework, "executor_id": executor, "statistics": numbers}


def look(before: HostUse, rows: list[dict[str, Any]]) -> HostUse:
    """Return the usage after a read of the counters of framework f."""
    return next_use(before, samples_of(rows, "f"))


def test_two_reads_make_a_rate() -> None:
    """CPU is the increase of the counter over the time between; memory is the current value."""
    first = look(HostUse(), [row(POD, 3, 100, 20), row("other", 1, 100, 5)])
    second = look(first, [row(POD, 4, 102, 30), row("other", 1.5, 102, 5)])

    assert (first.total(), first.is_news) == (Use(0, 25), False)
    assert (second.total(), second.is_news) == (Use(750, 35), True)
    assert second.pods() == {PodId.parse(POD): Use(500, 30)}


def test_the_same_numbers_again_are_no_news() -> None:
    """An agent without a new measurement repeats the last one; the rate stays as it was."""
    second = look(look(HostUse(), [row(POD, 3, 100)]), [row(POD, 4, 101)])
    third = look(second, [row(POD, 4, 101)])

    assert (third.total(), third.is_news) == (Use(1000, 0), False)


def test_what_cannot_be_measured_is_left_out() -> None:
    """An entry without numbers is ignored; a counter that restarts makes no negative usage."""
    first = look(HostUse(), [row(POD, 3, 100), {"framework_id": "f", "executor_id": "x"}])
    second = look(first, [row(POD, 1, 101)])

    assert second.total() == Use(0, 0)


def test_every_host_has_its_turn() -> None:
    """A round has a bounded number of hosts, starting after the last one, even if that has gone."""
    agents = [agent(name, 1, 1) for name in ("a", "c", "e")]

    turns = [[found.hostname for found in in_turn(agents, Hostname(last), 2)] for last in ("", "c", "d", "e")]

    assert turns == [["a", "c"], ["e", "a"], ["e", "a"], ["a", "c"]]
    assert [found.hostname for found in in_turn(agents, Hostname("c"), 9)] == ["e", "a", "c"]
    assert in_turn([], Hostname("a"), 2) == []


def test_the_meter_sums_over_hosts() -> None:
    """The metrics are usage of the measured hosts, slack of all hosts, hot hosts, and evicted pods by cause."""
    pool = HostCache(30.0)
    pool.set_hosts([agent("a", 1500, 500), agent("b", 500, 0)])
    reader = InMemoryMetricReader()
    meter = QosMeter(pool, MeterProvider([reader]).get_meter("test"))
    first = look(HostUse(), [row(POD, 3, 100)])

    meter.note({Hostname("a"): look(first, [row(POD, 3.5, 101, 20)])}, {Hostname("a"): HostWatch(2)}, QosPolicy())
    meter.record_evicted([Correction(PodId.parse(POD), QosReason(QosRule.HOT_CPU, "a", 3_500, 4_000, 90))])

    data = reader.get_metrics_data()
    assert data is not None
    found = {
        (metric.name, *sorted(map(str, dict(point.attributes or {}).values()))): getattr(point, "value", None)
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
    }
    assert found == {
        ("peloton.hosts.used", "cpu"): 0.5,
        ("peloton.hosts.used", "memory"): 20,
        ("peloton.hosts.slack",): 2.0,
        ("peloton.hosts.slack_held",): 0.5,
        ("peloton.qos.hot_hosts",): 1,
        ("peloton.qos.evicted", "hot cpu"): 1,
    }


def test_pods_of_another_framework_are_not_ours() -> None:
    """Pods of another framework count for the usage of the host all the same."""
    (sample,) = samples_of([row(POD, 3, 100, framework="g")], "f")

    assert (sample.pod_id, sample.cpu_s) == (None, 3)
