"""`peloton top`: conversion of answers to rows, and filters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.text import Text

from cli.top.asked import (
    INSTANCE_ORDERS,
    JOB_ORDERS,
    instance_line,
    instances_asked,
    job_line,
    jobs_asked,
    matches,
)
from cli.top.faults import FAULTS_MAX, Weight, fault_grid, faults, head
from cli.top.grid import Column, Grid, Row, fit_columns
from cli.top.page import Picture
from cli.top.reading import Overview, Part
from cli.top.rows import (
    HOST_ORDERS,
    POOL_ORDERS,
    ROWS_MAX,
    age_text,
    amount,
    counts_text,
    duration_text,
    host_grid,
    job_grid,
    kinds_of,
    pod_grid,
    pool_bar,
    pool_grid,
    update_text,
)
from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.host import host_pb2
from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.overview import overview_pb2
from peloton.api.v0.table import table_pb2
from peloton.api.v0.update import update_pb2
from tests.unit.cli.top_answers import BATCH, BROKEN, NOW, SERVICE, host_pods, hosts, jobs, overview, tree


def plain(grid: Grid) -> list[list[str]]:
    return [[cell.plain for cell in row.cells] for row in grid.rows]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(-3, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172_800, "2d")],
)
def test_durations_have_one_unit(seconds: float, expected: str) -> None:
    """The unit is the largest one with a value of at least two."""
    assert expected == duration_text(seconds)


def test_an_age_needs_a_time() -> None:
    """A job without a start time has no age."""
    now = datetime(2026, 1, 31, 8, tzinfo=UTC)

    assert ["", "2h"] == [age_text(since, now) for since in ("", "2026-01-31T05:00:00.123456789Z")]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [("cpu", 1.5, "1.5"), ("memory", 0, "0"), ("memory", 512, "512Mi"), ("disk", 1536, "1.5Gi"),
     ("memory", 2**20, "1Ti"), ("gpu", 2, "2")],
)  # fmt: skip
def test_amounts_say_their_unit(kind: str, value: float, expected: str) -> None:
    """Memory and disk have the unit of the shortest number; a number of cores has none."""
    assert expected == amount(kind, value)


def test_counts_have_letters() -> None:
    """States of a kind are summed, in a fixed order, each with its letter and colour."""
    counts = counts_text({"KILLED": 1, "RUNNING": 3, "PENDING": 1, "INITIALIZED": 1, "LAUNCHED": 2})

    assert "R3 L2 P2 K1" == counts.plain
    assert {"cyan", "blue", "yellow", "magenta"} == {str(span.style) for span in counts.spans}


# Pools.


def test_pools_stand_in_their_tree() -> None:
    """Children follow their parents, and the queue stands next to its pool; a pool without the kind has no numbers."""
    cpu = plain(pool_grid(tree(), "cpu", POOL_ORDERS[0], "", 80))
    memory = plain(pool_grid(tree(), "memory", POOL_ORDERS[0], "", 80))

    assert [("/", "3"), ("  eng", "3"), ("  ads", "")] == [(row[0], row[1]) for row in cpu]
    assert ["6", "6", "3", "4", "6"] == cpu[1][3:]
    assert ["  ads", *[""] * 7] == memory[2]


def test_bars_have_one_scale() -> None:
    """All bars of a kind are relative to the cluster: one at half of it is half as long."""
    whole, eng, _ = (row[2] for row in plain(pool_grid(tree(), "cpu", POOL_ORDERS[0], "", 88)))

    assert (24, 12) == (len(whole.rstrip()), len(eng.rstrip()))
    assert whole.count("█") == 12
    assert eng.replace("┆", "█").replace("│", "█").count("█") == 12


def test_a_bar_shows_more_than_its_limit() -> None:
    """The bar includes the allocation above a reduced limit."""
    held = explain_pb2.PoolAmounts(kind="cpu", limit=2, allocation=6, entitlement=2)

    assert 6 == len(pool_bar(held, 12, 12).plain.rstrip())
    assert "" == pool_bar(explain_pb2.PoolAmounts(), 0, 4).plain.strip("·")


def test_pools_by_what_waits() -> None:
    """Pools in another order than the tree's have their full path."""
    order = next(order for order in POOL_ORDERS if order.title == "above entitlement")
    grid = pool_grid(tree(), "cpu", order, "", 80)

    assert ["/eng", "/", "/ads"] == [row.key for row in grid.rows]
    assert ["/eng", "/", "/ads"] == [row[0] for row in plain(grid)]


def test_parts_of_the_hosts_are_in_the_tree() -> None:
    """The pool's part on hosts with restricted workloads stands below the pool, and opens it."""
    answer = tree()
    part = answer.pools[1].onHosts.add(hostPools="host pool batch")
    part.amounts.add(kind="cpu", limit=4, allocation=1)
    grid = pool_grid(answer, "cpu", POOL_ORDERS[0], "eng", 80)

    assert [("/eng", "  eng"), ("/eng", "    in host pool batch")] == [
        (row.key, row.cells[0].plain) for row in grid.rows
    ]


def test_kinds_are_those_of_the_cluster() -> None:
    """`r` cycles through the kinds of the answer; without any there is cpu."""
    assert ["cpu", "memory"] == kinds_of(tree())
    assert ["cpu"] == kinds_of(explain_pb2.PoolTreeResponse())


# Jobs.


def test_a_job_without_counts_has_its_size() -> None:
    """A job without created instances shows its instance count."""
    response = table_pb2.ListJobsResponse()
    job = response.jobs.add(name="new", instanceCount=7, poolPath="/eng")
    job.id.value = BROKEN

    ((name, state, count, age, pool, _, _, update, short),) = plain(job_grid(response.jobs, NOW))
    assert ("new", "UNKNOWN", "7", "", "/eng", "", BROKEN[:8]) == (name, state, count, age, pool, update, short)


def test_a_service_says_how_far_its_update_is() -> None:
    """The text is shown for an update that is under way or has failed, and is empty after success."""
    states = {"ROLLING_FORWARD": "ROLLING_FORWARD 3/10", "ABORTED": "ABORTED 3/10", "SUCCEEDED": ""}
    updates = [table_pb2.JobUpdate(state=update_pb2.State.Value(state), doneCount=3, totalCount=10) for state in states]

    assert list(states.values()) == [update_text(update) for update in updates]
    updates[0].failedRunCount, updates[0].stalledTime = 8, "2026-11-26T19:00:00Z"
    assert "ROLLING_FORWARD stalled 3/10, 8 runs failed" == update_text(updates[0])


FILTERS = {
    "state:failed,running tiles": "job table -s FAILED,RUNNING --name tiles -n 200",
    "state:active": "job table -s UNINITIALIZED,INITIALIZED,PENDING,RUNNING,KILLING -n 200",
    "pool:/eng owner:maps": "job table -r /eng --owner maps -n 200",
    "label:k=v,a=b since:24h type:service": "job table -t SERVICE -l k=v,a=b --since 24h -n 200",
    "": "job table -n 200",
}


@pytest.mark.parametrize("typed", FILTERS)
def test_filters_of_jobs_are_conditions(typed: str) -> None:
    """The filter's text becomes the conditions of `job table`."""
    assert FILTERS[typed] == job_line(jobs_asked(typed, JOB_ORDERS[0]))


WRONG = {
    "state:asleep": "invalid state 'asleep'",
    "team:maps": "unknown condition 'team:', expected one of state:, pool:, owner:, type:, label:, since:",
    "pool:eng": "path should begin with /, got 'eng'",
    "label:x": "Invalid label 'x'",
    "since:many": "expected a duration such as 10m",
}


@pytest.mark.parametrize("typed", WRONG)
def test_filters_that_say_nothing(typed: str) -> None:
    """The error names the invalid condition, and the expected form."""
    with pytest.raises(ValueError, match=WRONG[typed].replace("(", r"\(")):
        jobs_asked(typed, JOB_ORDERS[0])


def test_a_pool_is_no_condition_in_a_pool() -> None:
    """The jobs of a pool are filtered by that pool only."""
    assert "/eng" == jobs_asked("owner:maps", JOB_ORDERS[0], pool="/eng").pool
    with pytest.raises(ValueError, match="unknown condition 'pool:'"):
        jobs_asked("pool:/ads", JOB_ORDERS[0], pool="/eng")


def test_filters_of_instances_are_states() -> None:
    """Single words are states; the page is part of the command."""
    asked = instances_asked("failed state:lost host:h1,h2", INSTANCE_ORDERS[1], 200)

    expected = "task query J -s FAILED,LOST --hosts h1,h2 -n 200 --offset 200 -p state -a ASC"
    assert expected == instance_line("J", asked)
    with pytest.raises(ValueError, match="invalid state 'h1'"):
        instances_asked("h1", INSTANCE_ORDERS[0])


# Hosts.


def test_hosts_in_trouble_come_first() -> None:
    """DOWN hosts come first, then marked ones, then the rest; other orders sort by allocation."""
    found = [[row.key for row in host_grid(hosts(), order, "").rows] for order in HOST_ORDERS]

    assert ["host-3", "host-1", "host-2"] == found[0]
    assert ["host-1", "host-2", "host-3"] == found[1]
    assert ["host-1", "host-2", "host-3"] == found[2]
    assert ["", "3/4", "2/4"] == [row[3] for row in plain(host_grid(hosts(), HOST_ORDERS[0], ""))]


def test_hosts_are_found_by_labels() -> None:
    """Every word of the filter occurs in the host's name, state, host pool, mark or labels."""
    assert matches("rack=R2 up", "host-2", "UP", "rack=r2")
    assert ["host-2"] == [row.key for row in host_grid(hosts(), HOST_ORDERS[0], "rack=r2 UP").rows]
    assert "No host matches: rack=r9" == host_grid(hosts(), HOST_ORDERS[0], "rack=r9").nothing


def test_hosts_have_a_bound() -> None:
    """The table has the first hosts up to the bound, and the total."""
    answer = host_svc_pb2.QueryHostsResponse(
        host_infos=[host_pb2.HostInfo(hostname=f"h{n}", state=host_pb2.HOST_STATE_UP) for n in range(ROWS_MAX + 5)]
    )
    grid = host_grid(answer, HOST_ORDERS[1], "")

    assert (ROWS_MAX, ROWS_MAX + 5) == (len(grid.rows), grid.shown_of)


def test_pods_of_a_host_are_found() -> None:
    """Pods are filtered by job, pool, state and workload; each opens its instance."""
    pods = host_pods(overview_pb2.GetHostPodsRequest(hostname="host-1")).pods
    grid = pod_grid(pods, "", NOW)

    assert [
        (f"{BATCH}-0", "tiles", "/eng", "1", "512Mi", "shared"),
        (f"{SERVICE}-1", "search", "/ads", "1", "512Mi", "stateless"),
    ] == [(row.key, *(row.cells[index].plain for index in (2, 3, 5, 6, 7))) for row in grid.rows]
    assert [f"{SERVICE}-1"] == [row.key for row in pod_grid(pods, "stateless /ads", NOW).rows]


# The overview.


def make_overview(whole: overview_pb2.GetOverviewResponse | None = None, **parts: Any) -> Overview:
    others = {
        "tree": Part(tree()),
        "failed": Part(table_pb2.ListJobsResponse()),
    }
    return Overview(whole or overview(), **{**others, **parts})


FAILED = table_pb2.ListJobsRequest(filter=table_pb2.JobFilter(states=[job_pb2.JobState.Value("FAILED")]))


def test_the_worst_comes_first() -> None:
    """Critical problems precede warnings and notes; each has its age and opens its subject."""
    whole = overview()
    whole.problems.add(severity=overview_pb2.SEVERITY_CRITICAL, text="Kill is locked: no pod is killed",
                       subject_kind=overview_pb2.SUBJECT_KIND_COMPONENT, subject_id="Kill")  # fmt: skip
    found = faults(make_overview(whole, failed=Part(jobs(FAILED))), NOW)

    assert [
        (Weight.CRITICAL, "Host host-3 left cluster local 3 min ago and is not back", "host:host-3", "3m"),
        (Weight.CRITICAL, "Kill is locked: no pod is killed", "", ""),
        (Weight.WARNING, "Host host-1 is marked RED: cpu 97 %", "host:host-1", ""),
        (Weight.WARNING, "The resource manager is slow", "", ""),
        (Weight.WARNING, "Job broken failed: 1 of 2 instances", f"job:{BROKEN}", "9m"),
        (Weight.NOTE, "Pool /eng: 3 instances wait for cpu 3", "pool:/eng", ""),
    ] == [(fault.weight, fault.what, fault.key, fault.age) for fault in found]


def test_a_queue_without_demand_says_why_it_waits() -> None:
    """Gangs in backoff wait, and do not count as demand."""
    answer = tree()
    for pool in answer.pools:
        for each in pool.amounts:
            each.demand = 0
    found = faults(make_overview(tree=Part(answer)), NOW)

    assert "Pool /eng: 3 instances wait, in backoff because no host was found" in [fault.what for fault in found]


def test_jobs_that_failed_long_ago_are_not_wrong_now() -> None:
    """A failed job is not a problem after an hour."""
    failed = Part(jobs(FAILED))
    found = [faults(make_overview(failed=failed), NOW + timedelta(minutes=late)) for late in (50, 52)]

    assert [True, False] == [any(fault.key.startswith("job:") for fault in each) for each in found]


def test_who_does_not_answer_is_said() -> None:
    """The head names a role without a leader, a silent cluster, and a part of the overview that failed."""
    whole = overview()
    whole.roles.add(role="hostmgr/blue")
    whole.clusters.add(cluster="blue", is_silent=True)
    lines = [line.plain for line in head(make_overview(whole, tree=Part(None, "pools are not known")), 80)]

    assert lines[-2] == (
        "resmgr led at 10.0.0.1:5394  hostmgr/blue: NO LEADER  cluster blue: NO ANSWER  pools: pools are not known"
    )
    assert ["cpu", "(cores)", "12", "4", "6", "2", "?", "1", "2"] == lines[1].split()[:9]


def test_capacity_by_kind() -> None:
    """Each kind has its total, unavailable, allocated, free, queued, used and slack amounts summed over clusters,
    and a bar that fits; hosts, jobs and pods are counted by state."""
    whole = overview()
    whole.clusters.add(cluster="blue").amounts.add(kind="cpu", capacity=8, allocation=1)
    lines = [line.plain for line in head(make_overview(whole), 80)]

    assert ["cpu", "(cores)", "20", "4", "7", "9", "3", "1", "2"] == lines[1].split()[:9]
    assert ["memory", "24Gi", "0", "6Gi", "18Gi", "0"] == lines[2].split()[:6]
    assert "Hosts: 1 DOWN, 2 UP  Jobs: 1 FAILED, 2 RUNNING  Pods: R8 P3" == lines[-1]
    assert (5, 80) == (len(lines), max(map(len, lines)))


def test_faults_have_a_bound() -> None:
    """The table has the first pools of a thousand that wait, and the total."""
    answer = explain_pb2.PoolTreeResponse(
        pools=[explain_pb2.PoolNode(path=f"/p{n}", isLeaf=True, queuedInstances=1) for n in range(1000)]
    )
    grid = fault_grid(faults(make_overview(tree=Part(answer)), NOW))

    assert (FAULTS_MAX, 1_003) == (len(grid.rows), grid.shown_of)


# Fitting a width.


def grid_of(*columns: tuple[Column[Any], str]) -> Grid:
    return Grid(tuple(column for column, _ in columns), (Row("", tuple(Text(content) for _, content in columns)),))


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (60, [(0, 12), (1, 6), (2, 20), (3, 5)]),
        (40, [(0, 7), (1, 6), (2, 14), (3, 5)]),
        (30, [(0, 6), (1, 6), (2, 12)]),
        (20, [(0, 5), (2, 11)]),
        (9, [(0, 4), (2, 10)]),
    ],
)
def test_columns_fit(width: int, expected: list[tuple[int, int]]) -> None:
    """Long texts are cut first, then the least important columns are left out; a column that may not be cut is
    scrolled."""
    grid = grid_of(
        (Column("A", least=4), "a" * 12), (Column("B", spare=2), "b" * 6), (Column("C", least=10), "c" * 20),
        (Column("D", spare=1), "d" * 5),
    )  # fmt: skip

    assert expected == fit_columns(grid, width)


def test_empty_columns_go_first() -> None:
    """Empty columns are left out first, regardless of their importance."""
    grid = grid_of((Column("A"), "a" * 10), (Column("Empty", spare=9), ""), (Column("C", spare=1), "c" * 10))

    assert [0, 2] == [index for index, _ in fit_columns(grid, 26)]
    assert Picture(grid).note == ""
