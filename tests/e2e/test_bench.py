"""Benchmark cases run at a small size and print what docs/benchmarks.md promises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench import aurora_reads, reads, resmgr, scheduling
from tests.bench import cost as guard
from tests.bench.aurora import Size as AuroraSize
from tests.bench.aurora import aurora
from tests.bench.churn import churn, scale_out
from tests.bench.daemons import daemon_50k
from tests.bench.deep import Size, deep
from tests.bench.faults import throughput_faults
from tests.bench.growth import updates
from tests.bench.live import ROLES, LiveSize, live
from tests.bench.live_faults import live_faults
from tests.bench.minicluster import minicluster_updates
from tests.bench.pods import pods
from tests.bench.pressure import pressure
from tests.bench.rebalance import rebalance
from tests.bench.retention import Size as RetentionSize
from tests.bench.retention import retention
from tests.bench.security import LIMITS, OFF, security
from tests.bench.web import web, web_paint
from tests.bench.weight import config_weight
from tests.bench.wide import hosts, wide
from tests.browser.chromium import lacking
from tests.nightly import NIGHTLY

pytestmark = NIGHTLY

TIMES = {"median_ms", "p90_ms", "cpu_median_ms"}
MEMORY = {"rss_growth_mib", "rss_mib", "peak_rss_mib"}


def test_entitlement() -> None:
    """Entitlement of both trees is timed, alone and after a changed pool."""
    found = scheduling.entitlement((10, 1_000), runs=1)

    assert found.keys() == {"10_leaves", "1000_leaves"}
    assert found["1000_leaves"].keys() >= TIMES | {"pools", "ratio_to_target", "pool_change_ratio_to_target"}


def test_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each unit has the CPU of every process, and its cheapest round."""
    monkeypatch.setattr(guard, "QUIET_S", 0.1)
    monkeypatch.setattr(guard, "ROUNDS_MAX", 2)
    monkeypatch.setattr(guard, "ROUNDS_MIN", 2)
    monkeypatch.setattr(guard, "WARM_UP_JOBS", 1)
    found = guard.cost(jobs=10, pods=100, launches=100, hosts=5)

    for unit in ("per_job", "per_pod", "per_launch"):
        assert found[unit]["sum_ms"] == pytest.approx(sum(found[unit]["cpu_ms"].values()), abs=0.01)
        assert found[unit]["yardsticks"] > 0
        assert (2, True) == (found[unit]["rounds"], found[unit]["apart"] >= 1)


def test_security(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each unit has its cost without, with security and with telemetry, and a ratio for each of the two by round."""
    monkeypatch.setattr(guard, "QUIET_S", 0.1)
    found = security(jobs=5, pods=100, rounds=2, hosts=5)

    for unit in ("per_job", "per_pod"):
        assert found[unit]["cpu_ms"].keys() == found[unit]["per_second"].keys() == {OFF, *LIMITS}
        assert dict.fromkeys(LIMITS, 2) == {name: len(ratios) for name, ratios in found[unit]["cpu_ratios"].items()}


def test_a_standing_month() -> None:
    """The jobs of a standing month are there with the pods and events that retention leaves of them, and age."""
    found = retention(RetentionSize(10, days=2, queries=1, standing_days=30, days_per_line=1))

    stood, first, second = found["days"]
    assert 10 * (30 * 2 + 14 + 7 * 6) <= stood["rows"]
    assert (0, True) == (stood["deleted"], first["deleted"] == second["deleted"] > 0)


def test_aurora() -> None:
    """Updates through the bridge have a cost next to those of the own API, and each read has its figures."""
    found = aurora(AuroraSize(jobs=4, hosts=5, reads=aurora_reads.Size(pods=40, updates=3, jobs=5)))

    for way in ("bridge_create", "bridge_update", "own_create", "own_update"):
        assert found[way]["updates_per_second"] > 0
        assert {"api", "aurorabridge"} == found[way]["cpu_ms"].keys()
    for method in aurora_reads.TARGET_S:
        assert found["reads"][method]["answer_mib"] >= 0
        assert found["reads"][method]["wall_s"] > 0


def test_live() -> None:
    """Services are created, left alone, and each role is killed while some of them are stopped."""
    found = live(LiveSize(services=50, hosts=5, idle_s=2, rollouts=2, short_jobs=10, restart_s=1.0))

    assert 0 <= found["idle_cores"] == pytest.approx(sum(found["idle_cores_of"].values()), abs=0.001)
    assert found["mib_per_1000_jobs"] > 0
    assert found["stop_p99_seconds"] > 0
    assert found["restarts"].keys() == set(ROLES)
    assert found["restart_cpu_ms_per_job"] == max(one["cpu_ms_per_job"] for one in found["restarts"].values())
    assert found["created_per_second"] > 0


def test_live_faults() -> None:
    """No pod is lost and none runs twice."""
    found = live_faults(services=30, hosts=5, stopped_s=1.0)

    assert len(found["faults"]) == 7
    assert (found["further_runs"], found["launched_twice"], found["duplicates_in_mesos"]) == (0, 0, 0)


def test_admission_pass() -> None:
    """Each leaf has four queues; the pass admits something and leaves something."""
    found = scheduling.admission_pass(leaf_count=5, runs=1)

    assert found["queues"] == 20
    assert found["admitted_pods"] > 0
    assert found["whole_cycle"].keys() >= TIMES | {"ratio_to_target"}
    assert json.dumps(found)


def test_rebalance() -> None:
    """There are moves for each goal."""
    found = rebalance(host_count=1_000)

    assert found.keys() == {"hosts", "pods", "free", "spread", "empty"}
    assert all(found[goal]["moves"] > 0 for goal in ("free", "spread", "empty"))


def test_queued_million() -> None:
    """All pods are queued, and a successor has the same queues."""
    found = resmgr.measure_queued_million(job_count=3, pods_per_job=4, leaf_count=2)

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
    """Jobs leave no state behind when all of them have ended."""
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


def test_throughput_faults() -> None:
    """Every pod runs once although each process is killed once or more at full load; nothing is held at the end."""
    found = throughput_faults(pods=3_000, hosts=50, rounds=1, between_s=1.5)

    assert sum(found["kills"].values()) >= 2
    assert found["pods_stored_succeeded"] == 3_000
    assert (found["launched_twice"], found["duplicates_in_mesos"], found["allocation_left"]) == (0, 0, 0)


def test_config_weight() -> None:
    """A streamed job runs, its pods have the configurations that were sent, and it is small in storage."""
    found = config_weight(pods=40, hosts=10, run_pods=40)

    assert (found["state"], found["pods_succeeded"], found["odd_configs"]) == ("SUCCEEDED", 40, 0)
    assert found["config_bytes"] >= 10_000
    assert 0 < found["stored_mib"] < found["sent_mib"]
    assert found.keys() >= {"accepted_seconds", "api_cpu_ms_per_config", "peak_memory_mib", "ratio_to_target"}


def test_updates() -> None:
    """All instances that were added run."""
    found = updates(updates=4, added=3, hosts=5)

    assert (found["pods"], found["pods_stored_succeeded"]) == (12, 12)
    assert found.keys() >= {"first_50_calls_p50_ms", "last_50_calls_p50_ms", "seconds", "ratio_to_target"}


def test_pressure() -> None:
    """All that was taken has ended, some calls were refused, and reads were answered meanwhile."""
    found = pressure(seconds=5, waiting_max=5, hosts=5)

    assert found["unexpected"] == 0
    assert found["jobs_taken"] > 0
    assert found["calls_refused"] > 0
    assert found["jobs_waiting_max"] <= 5
    assert found.keys() >= {"job_get_p99_ms", "ratio_to_target", "peak_memory_mib", "cpu_seconds"}


def test_pods() -> None:
    """Each count is measured."""
    found = pods((30, 60))

    assert list(found) == ["30", "60"]
    assert found["30"].keys() >= {"stored_bytes_per_pod", "rebuild_seconds", "resmgr_mib", "job_query_cpu_median_ms"}
    assert found["30"].keys() >= {f"{cycle}_cycle_{time}" for cycle in ("waiting", "admitting") for time in TIMES}


def test_deep() -> None:
    """A cluster comes up on stored pods, fills its hosts with them, answers, and runs small jobs; pods that no host may
    have are queued again."""
    size = Size(4, 30, (40,), 3, 2, 2, hosts=2, run_s=(600, 601), fresh_pods=2, ask_s=1)

    found = deep(size)

    assert (found["jobs"], found["pools"]) == (6, 4)
    states = found["pods_by_state"]
    assert states.pop("SUCCEEDED") == 2 * found["fresh_jobs"]
    assert states["PENDING"] >= 3
    assert states["RUNNING"] > 60
    assert sum(states.values()) == 4 * 30 + 40 + 3
    assert found["cycles"] > 0
    assert found.keys() >= {"rebuilds", "job_get_p99_ms", "pod_query_p99_ms", "back_after_kill_seconds"}


def test_reads() -> None:
    """Launches are counted with and without clients, none of whom is refused."""
    found = reads.reads(reads.Size(20, 5_000, slots=10, run_s=0.2, hosts=3, clients=3, seconds=3))

    assert found["failures"] == 0
    assert found["launches_kept"].keys() == {"each_second", "no_pause", "unlike_each_second"}
    assert min(found[kind]["gets"] for kind in found["launches_kept"]) >= 3


def test_minicluster_updates() -> None:
    """Every task has two updates and ends."""
    found = minicluster_updates(host_count=20, task_count=200)

    assert (found["ended"], found["updates"]) == (200, 400)
    assert found.keys() >= {"updates_per_second", "cpu_us_per_update", "peak_memory_mib", "ratio_to_target"}


def test_wide() -> None:
    """All hosts are known after both failovers, all pods run, and none has run twice."""
    found = wide(host_count=30, pods_per_host=2, idle_s=0.1, agents_back_s=0.2)

    assert (found["runs"], found["states"]) == ({1: 60}, {"RUNNING": 60})
    assert found.keys() >= {"hostmgr_failover", "master_failover", "idle_cpu_seconds_per_minute", "ratio_to_target"}


def test_hosts() -> None:
    """Each size has its own figures."""
    found = hosts(sizes=[3, 6], pods_max=8, idle_s=0.1)

    assert {size: figures["pods"] for size, figures in found.items()} == {"3": 6, "6": 8}
    assert found["6"].keys() >= {"ready_seconds", "hostmgr_mib", "minicluster_mib", "cpu_ms_per_pod"}


def test_daemon() -> None:
    """The daemon runs on all hosts, leaves with one and comes back with it, is updated and ends; each step is
    counted."""
    found = daemon_50k(host_count=20, idle_s=0.1)

    stages = [found[stage] for stage in ("start", "leave", "come_back", "update", "stop")]
    assert found["leave"]["away"] == 1
    assert all(stage.keys() >= {"seconds", "cpu_seconds", "job_events", "daemon_events"} for stage in stages)
    assert found["start"]["daemon_events"] < 100
    assert found["update"]["update_events"] > 0
    assert found.keys() >= {"peak_memory_mib", "pods_per_second", "ratio_to_target"}


def test_web() -> None:
    """Each page is drawn, and watched by all viewers if it streams; without a browser the case is passed over."""
    if why := lacking():
        pytest.skip(why)

    found = web(host_count=20, viewers=3, seconds=2)

    assert found["pages"].keys() >= {"overview"}
    assert {"usage"} == {name for name, page in found["pages"].items() if not page["first_event_bytes"]}
    for page in found["pages"].values():
        assert page["drawn_ms"] > 0
        assert page["percent_of_a_core"].keys() == {"web", "api"}
        assert page["pods"]["running"] > 0
        assert page["pods"]["changes_per_second"] >= page["pods"]["started_per_second"]
    assert sum(page["pods"]["started_per_second"] for page in found["pages"].values()) > 0


def test_web_paint() -> None:
    """The maps are drawn, of which the traces say when; the trace can be opened."""
    if why := lacking():
        pytest.skip(why)

    found = web_paint(host_count=20)

    assert found["pages"].keys() == {"job", "hosts"}
    for page in found["pages"].values():
        assert 0 < page["first_paint_ms"] <= page["first_contents_ms"] <= page["drawn_ms"]
        assert 0 < page["longest_task_ms"] <= page["main_thread_ms"] <= page["drawn_ms"]
        assert json.loads(Path(page["trace"]).read_text())["traceEvents"]
