"""Pod failures that the host manager records, and their effect on leases."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint

from peloton.hosts import avoidances
from peloton.hosts.avoidances import HostAvoidances
from peloton.lifecycle.avoidance import DEPRIORITIZED_S, NO_AVOIDANCE, RunEnd
from peloton.lifecycle.reason_text import misfit_text
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.pod import HostLabel, PodLabel, Strategy
from peloton.model.resources import Resources
from services.hostmgr.driver import RegisteredHost
from services.hostmgr.hosts.host_cache import HostCache
from tests.unit.hostmgr.test_hosts import (
    JOB,
    LEASE_S,
    OTHER,
    THIRD,
    agent,
    free_part,
    lease_hosts,
    pool_with,
    refusals_of,
    shape,
)

H1, H2, H3 = Hostname("h1"), Hostname("h2"), Hostname("h3")
WHY = "avoided after 3 pods of 2 jobs failed there within 1 s"


def there(name: str) -> RegisteredHost:
    return replace(agent(name, 0, 0), labels={"hostname": name})


def make_failure(job: JobId, instance: int = 0, host: Hostname = H1, ran_s: float = 1.0) -> RunEnd:
    return RunEnd(PodId(job, instance, 1), host, is_failure=True, ran_s=ran_s)


def make_success(job: JobId, host: Hostname = H1) -> RunEnd:
    return RunEnd(PodId(job, 0, 1), host, is_success=True)


SICK = [make_failure(JOB), make_failure(JOB, 1), make_failure(OTHER)]


def three_hosts(ends: Sequence[RunEnd] = ()) -> HostCache:
    pool = pool_with(free_part("h1"), free_part("h2"), free_part("h3"))
    pool.set_hosts([there("h1"), there("h2"), there("h3")])
    pool.avoidances.take(ends, 0.0)
    return pool


def test_a_host_on_which_several_jobs_fail_is_not_leased() -> None:
    """The host is not leased even to a job that has never been there, as long as other hosts could take its pods, free
    or not.
    """
    pool = three_hosts(SICK)

    lease = pool.acquire(THIRD, [(shape(4.0), 3)], 1.0)

    assert [H2, H3] == [host.hostname for host in lease.hosts]
    assert {WHY: 1} == refusals_of(lease)
    assert [H1] == lease_hosts(pool, shape(), 1, now_s=61.0, job=JobId("later"))


def test_who_can_run_nowhere_else_runs_there() -> None:
    """Pods that require this host, and pods of a cluster whose hosts are all avoided, still run."""
    pool = three_hosts(SICK)
    only = shape(constraint=HostLabel("hostname", "h1"))
    assert ["h1"] == lease_hosts(pool, only, 1, now_s=1.0, job=THIRD)

    alone = pool_with(free_part("h1"))
    alone.set_hosts([there("h1"), there("h2")])
    alone.avoidances.take(SICK, 0.0)
    alone.set_hosts([there("h1")])
    assert ["h1"] == lease_hosts(alone, shape(), 1, now_s=1.0, job=THIRD)


def test_a_pod_that_keeps_apart_from_those_on_the_other_hosts_runs_there() -> None:
    """The pod would wait as long as the pods on the other hosts run, and pods of a service do not end."""
    pool = three_hosts(SICK)
    apart = shape(constraint=PodLabel("app", "web", "<", 1))
    pool.pods_launched(THIRD, [(0, 1, "h2", (("app", "web"),))])
    assert ["h3"] == lease_hosts(pool, apart, 2, now_s=1.0, job=THIRD)

    pool.pods_launched(THIRD, [(1, 1, "h3", (("app", "web"),))])
    assert ["h1"] == lease_hosts(pool, apart, 1, now_s=2.0, job=THIRD)


def test_a_pod_that_wants_company_waits_for_it_elsewhere() -> None:
    """The pods that it has to join are on a full host that is not avoided: that one could take it later."""
    pool = three_hosts(SICK)
    pool.pods_launched(OTHER, [(0, 1, "h1", (("app", "web"),)), (1, 1, "h2", (("app", "web"),))])
    pool.acquire(OTHER, [(shape(constraint=HostLabel("hostname", "h2")), 1)], 1.0)

    assert [] == lease_hosts(pool, shape(constraint=PodLabel("app", "web", ">", 0)), 1, now_s=1.0, job=THIRD)


def test_hosts_that_take_no_such_pods_are_not_waited_for() -> None:
    """Hosts closed to revocable pods do not take them, and hosts that their cluster removes soon take no pods."""
    revocable = shape(revocable=True)
    closed = pool_with(free_part("h1", revocable=4), free_part("h2", revocable=4))
    closed.set_hosts([replace(there(name), revocable=Resources(4_000)) for name in ("h1", "h2")])
    closed.avoidances.take(SICK, 0.0)
    assert ["h2"] == lease_hosts(closed, revocable, 5, now_s=1.0, job=THIRD)
    closed.close_to_revocable({H2: 0})
    assert ["h1"] == lease_hosts(closed, revocable, 5, now_s=2.0, job=THIRD)

    going = pool_with(free_part("h1"), replace(free_part("h2"), goes_ns=1))
    going.set_hosts([there("h1"), there("h2")])
    going.avoidances.take(SICK, 0.0)
    assert ["h1"] == lease_hosts(going, shape(), 1, now_s=1.0, job=THIRD)


@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_host_on_which_a_pod_of_a_job_failed_comes_last_for_it(strategy: Strategy) -> None:
    """The lease marks the host and takes it only for pods that the other hosts cannot take."""
    pool = three_hosts([make_failure(JOB)])

    few = pool.acquire(JOB, [(shape(4.0, strategy=strategy), 2)], 1.0)
    assert {H2, H3} == {host.hostname for host in few.hosts}
    all_of_them = pool.acquire(JOB, [(shape(4.0, strategy=strategy), 3)], 2.0)
    assert [(H2, False), (H3, False), (H1, True)] == [(h.hostname, h.is_deprioritized) for h in all_of_them.hosts]
    pool.release(all_of_them.lease_id)
    assert "h1" in lease_hosts(pool, shape(4.0, strategy=strategy), 1, now_s=3.0, job=OTHER)


def test_a_job_keeps_away_from_where_its_pods_fail_at_once() -> None:
    """The job waits for the other hosts; other jobs do not."""
    pool = three_hosts([make_failure(JOB, instance) for instance in range(3)])

    lease = pool.acquire(JOB, [(shape(4.0), 3)], 1.0)
    assert {"avoided after 3 pods of the job failed there within 1 s": 1} == refusals_of(lease)
    assert [H2, H3] == [host.hostname for host in lease.hosts]
    assert ["h1"] == lease_hosts(pool, shape(), 1, now_s=1.0, job=OTHER)


def test_a_service_goes_where_its_pods_failed_when_there_is_no_other_capacity() -> None:
    """A rollout fails more often than hosts do, and a service never gives up: such hosts are only its last."""
    pool = three_hosts([replace(make_failure(JOB, instance), is_batch=False) for instance in range(3)])

    lease = pool.acquire(JOB, [(shape(4.0), 3)], 1.0)

    assert [(H2, False), (H3, False), (H1, True)] == [(host.hostname, host.is_deprioritized) for host in lease.hosts]


def test_a_job_that_fails_on_all_hosts_goes_anywhere() -> None:
    """The job itself is broken: neither it nor other jobs avoid hosts, and its failures count against no host."""
    everywhere = [make_failure(JOB, instance, host) for host in (H1, H2, H3) for instance in range(3)]
    memory = HostAvoidances(lambda: 3)

    memory.take([*everywhere, make_failure(OTHER), make_failure(OTHER, 1)], 0.0)

    assert NO_AVOIDANCE == memory.of_job(JOB, 1.0)
    assert {} == memory.list_avoided(1.0)


def test_failures_of_long_ago_make_no_job_broken() -> None:
    """A job that runs for weeks fails on every host at some time; it still avoids a degraded host."""
    memory = HostAvoidances(lambda: 4)
    for number, host in enumerate((H1, H2, H3)):
        memory.take([make_failure(JOB, number, host)], number * DEPRIORITIZED_S)
    now_s = 3 * DEPRIORITIZED_S

    memory.take([make_failure(JOB, 0), make_failure(JOB, 1), make_failure(OTHER)], now_s)

    assert {H1: WHY} == {host: misfit_text(why) for host, why in memory.of_job(JOB, now_s).avoided.items()}
    assert {H1} == memory.of_job(JOB, now_s).deprioritized


def test_a_job_that_was_broken_is_no_longer_once_its_failures_are_old() -> None:
    """A repaired job avoids one bad host again."""
    memory = HostAvoidances(lambda: 3)
    memory.take([make_failure(JOB, 0, host) for host in (H1, H2, H3)], 0.0)
    assert NO_AVOIDANCE == memory.of_job(JOB, 1.0)

    memory.take([make_failure(JOB)], DEPRIORITIZED_S)

    assert {H1} == memory.of_job(JOB, DEPRIORITIZED_S).deprioritized


def test_what_is_old_takes_no_space() -> None:
    """Old records are removed: of hosts, of jobs, and of hosts in the record of a job that continues to fail."""
    memory = HostAvoidances(lambda: 100)
    memory.take([make_failure(JOB, number, Hostname(f"h{number}")) for number in range(5)], 0.0)
    memory.take([make_failure(OTHER, 0, Hostname("h7"))], 1.0)

    memory.take([make_failure(JOB, 0, Hostname("h9"))], DEPRIORITIZED_S + 1.0)

    assert {"h9"} == memory._hosts.keys()
    assert {JOB: {"h9"}} == {job: own.keys() for job, own in memory._jobs.items()}


def test_how_often_a_host_was_avoided_is_remembered_beyond_that() -> None:
    """The count survives so that the next avoidance is longer."""
    memory = HostAvoidances(lambda: 100)
    thrice = [make_failure(JOB, instance) for instance in range(3)]
    memory.take(thrice, 0.0)

    memory.take(thrice, DEPRIORITIZED_S + 1.0)

    assert {H1} == memory.of_job(JOB, 3 * DEPRIORITIZED_S).avoided.keys()


def test_success_is_forgiveness() -> None:
    """A job that succeeds on a host no longer avoids it; old failures are forgotten too."""
    memory = HostAvoidances(lambda: 3)
    memory.take([make_failure(JOB), make_failure(OTHER)], 0.0)
    memory.take([make_success(JOB)], 1.0)

    assert NO_AVOIDANCE == memory.of_job(JOB, 1.0)
    assert {H1} == memory.of_job(OTHER, 1.0).deprioritized
    assert NO_AVOIDANCE == memory.of_job(OTHER, DEPRIORITIZED_S)


def test_no_more_than_a_share_of_the_hosts_is_avoided() -> None:
    """The limit holds since many bad hosts are a sign of another cause."""
    memory = HostAvoidances(lambda: 8)
    hosts = [Hostname(f"h{number}") for number in range(4)]

    for number, host in enumerate(hosts):
        jobs = JobId(f"{number}a"), JobId(f"{number}b")
        memory.take(
            [make_failure(jobs[0], 0, host), make_failure(jobs[0], 1, host), make_failure(jobs[1], 0, host)],
            float(number),
        )

    assert hosts[:2] == [*memory.list_avoided(5.0)]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts and jobs that failed longest ago are forgotten."""
    monkeypatch.setattr(avoidances, "HOSTS_MAX", 2)
    monkeypatch.setattr(avoidances, "JOBS_MAX", 2)
    memory = HostAvoidances(lambda: 100)

    memory.take([make_failure(JobId(f"j{number}"), 0, Hostname(f"h{number}")) for number in range(3)], 0.0)

    assert [False, True, True] == [bool(memory.of_job(JobId(f"j{n}"), 1.0).deprioritized) for n in range(3)]
    assert {"h1", "h2"} == memory._hosts.keys()


def test_many_reasons_are_reported_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reasons of a placement are counted: separate ones would fill it."""
    monkeypatch.setattr(avoidances, "NUMBERED_MAX", 0)
    memory = HostAvoidances(lambda: 3)
    memory.take(SICK, 0.0)

    assert "avoided after pods of several jobs failed there" == misfit_text(memory.of_job(THIRD, 1.0).avoided[H1])


def test_it_is_reported_once_measured_and_shown(caplog: pytest.LogCaptureFixture) -> None:
    """The avoidance is a line in the log, a gauge, and a text of the host."""
    reader = InMemoryMetricReader()
    meter = MeterProvider(metric_readers=[reader]).get_meter("test")
    cache = HostCache(LEASE_S, meter=meter)
    cache.set_hosts([there("h1"), there("h2"), there("h3")])
    with caplog.at_level(logging.WARNING):
        cache.avoidances.take([*SICK, make_failure(THIRD)], time.monotonic())

    assert [f"host h1 is {WHY}; for 60 s"] == [record.getMessage() for record in caplog.records]
    data = reader.get_metrics_data()
    assert data is not None
    metrics = {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    (point,) = metrics["peloton.hosts.avoided"].data.data_points
    assert isinstance(point, NumberDataPoint)
    assert 1 == point.value

    pool = three_hosts()
    pool.avoidances.take(SICK, time.monotonic())
    shown = {host.hostname: host.avoided for host in pool.hosts()}
    assert shown[H1].startswith("after 3 pods of 2 jobs failed there within 1 s, until ")
    assert ["", ""] == [shown[H2], shown[H3]]
