"""Benchmark cases run at a small size and print what docs/benchmarks.md promises."""

from __future__ import annotations

import json

from peloton.scheduling.tree import build_tree
from tests.bench import resmgr, scheduling
from tests.bench.churn import churn, scale_out
from tests.bench.pools import DEPTH, leaves, organisation
from tests.bench.run import CASES
from tests.unit.test_docs import DOCS, table

TIMES = {"median_ms", "p90_ms", "cpu_median_ms"}
MEMORY = {"rss_growth_mib", "rss_mib", "peak_rss_mib"}


def test_every_case_is_documented() -> None:
    """docs/benchmarks.md has a row for each case, and for no other."""
    assert sorted(row[0].strip("`") for row in table(DOCS / "benchmarks.md", "case")) == sorted(CASES)


def test_pools_are_as_many_as_asked_for() -> None:
    """The tree has exactly so many leaves, four levels, and is the same each time."""
    pools = organisation(300)

    assert len(leaves(pools)) == 300
    assert pools == organisation(300)
    assert int(build_tree(pools).depth.max()) == DEPTH


def test_entitlement() -> None:
    """Both trees are timed, alone and after a changed pool."""
    found = scheduling.entitlement((10, 1_000), runs=1)

    assert found.keys() == {"10_leaves", "1000_leaves"}
    assert found["1000_leaves"].keys() >= TIMES | {"pools", "ratio_to_target", "pool_change_ratio_to_target"}


def test_admission_pass() -> None:
    """Each leaf has four queues; the pass admits something and leaves something."""
    found = scheduling.admission_pass(leaf_count=5, runs=1)

    assert found["queues"] == 20
    assert found["admitted_pods"] > 0
    assert found["whole_cycle"].keys() >= TIMES | {"ratio_to_target"}
    assert json.dumps(found)


def test_queued_million() -> None:
    """All pods are queued, and a successor knows the same queues."""
    found = resmgr.queued_million(job_count=3, pods_per_job=4, leaf_count=2)

    assert found["queued"]["queued_pods"] == 12
    assert found["queued"].keys() >= MEMORY | {"enqueue_seconds", "plan_cpu_median_ms"}
    assert found["rebuilt"]["is_equal"]
    assert "ratio_to_target" in found


def test_rebuild() -> None:
    """Pods are in every state before kill -9, evicted ones among them, and the rebuilt state equals the one before."""
    found = resmgr.rebuild(job_count=0, big_job_count=4, big_job_pods=40, databases=["sqlite"])["sqlite"]

    assert found["before"]["pods_by_state"].keys() >= {"PENDING", "READY", "RUNNING", "PREEMPTING"}
    assert found["before"]["jobs_with_evicted_pods"] > 0
    assert found["after"]["is_equal"]
    assert found["after"].keys() >= MEMORY | {"seconds_to_first_cycle", "rebuild_seconds"}


def test_resmgr_churn() -> None:
    """When all jobs have ended nothing is left of them."""
    found = resmgr.resmgr_churn(rounds=2, jobs_per_round=3, pods_per_job=2)

    assert (found["jobs"], found["ledgers_left"], found["queues_left"]) == (6, 0, 0)


def test_churn() -> None:
    """Every job of every client ends well, and each is seen to have run."""
    found = churn(jobs=5, pods=3, clients=2, hosts=5)

    assert (5, 15, 5, 5) == tuple(found[name] for name in ("jobs", "pods", "jobs_succeeded", "jobs_that_ran"))
    assert found["history_events_per_job"] <= 35
    assert found.keys() >= {"submit_p99_ms", "first_running_p99_seconds", "cpu_ms_per_job", "ratio_to_target"}


def test_scale_out() -> None:
    """The same jobs with one of each and with two of each."""
    found = scale_out(jobs=4, pods=2, clients=2, hosts=5)

    assert (4, 4) == (found["1_and_1"]["jobs_succeeded"], found["2_and_2"]["jobs_succeeded"])
    assert {"worker", "worker-2", "api", "api-2"} <= found["2_and_2"]["cpu_seconds"].keys()
    assert found["speed_up"] > 0


def test_many_shapes() -> None:
    """Pods of one job that all differ are queued, admitted and rebuilt."""
    found = resmgr.many_shapes(pods=30)

    assert found["queued"].keys() >= MEMORY | {"enqueue_call_median_ms", "cycle_median_ms"}
    assert found["rebuilt"]["is_equal"]
