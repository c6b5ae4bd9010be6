"""Benchmark lines are compared with the baseline, profiles are summed up, and cases are documented."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from peloton.scheduling.tree import build_tree
from tests.bench import baseline, run, temporal_postgres
from tests.bench.cost import compare_cost, measure_rounds
from tests.bench.paint import measure_paint
from tests.bench.pools import DEPTH, leaves, organisation
from tests.bench.profile import table
from tests.unit import test_docs

BASE: dict[str, Any] = {
    "case": "throughput",
    "yardstick_ms": 50.0,
    "hosts": 1_000,
    "seconds": 60.0,
    "pods_per_second": 1_500.0,
    "first_running_seconds": 0.2,
    "history_events": 3_000,
    "peak_memory_mib": {"api": 100, "worker": 200},
    "rebuilt": {"cycle_ms": 8.0},
    "ratio_to_target": 0.6,
}


@pytest.fixture(autouse=True)
def yardstick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the yardstick of the base line: it is measured in 0.3 s of CPU."""
    monkeypatch.setattr(baseline, "yardstick_ms", lambda: BASE["yardstick_ms"])


def test_every_case_is_documented() -> None:
    """docs/benchmarks.md has a row for each case, and for no other."""
    assert sorted(row[0].strip("`") for row in test_docs.table(test_docs.DOCS / "benchmarks.md", "case")) == sorted(
        run.CASES
    )


def test_pools_are_as_many_as_asked_for() -> None:
    """The tree has exactly so many leaves, four levels, and is the same each time."""
    pools = organisation(300)

    assert len(leaves(pools)) == 300
    assert pools == organisation(300)
    assert int(build_tree(pools).depth.max()) == DEPTH


def test_the_same_line_is_its_own_baseline() -> None:
    """Every cost has the ratio 1; sizes and targets are no costs."""
    found = baseline.compare(BASE, BASE)

    assert found["worse"] == []
    assert found["to_baseline"] == dict.fromkeys(
        (
            "seconds",
            "pods_per_second",
            "first_running_seconds",
            "history_events",
            "peak_memory_mib",
            "rebuilt.cycle_ms",
        ),
        1.0,
    )


def test_dearer_costs_are_named() -> None:
    """Twice the time, half the rate, and twice the memory of all processes are worse."""
    now = BASE | {"seconds": 120.0, "pods_per_second": 750.0, "peak_memory_mib": {"api": 300, "worker": 300}}

    found = baseline.compare(now, BASE)

    assert found["worse"] == ["seconds", "pods_per_second", "peak_memory_mib"]
    assert {found["to_baseline"][name] for name in found["worse"]} == {2.0}


def test_a_slower_machine_is_not_a_slower_program() -> None:
    """Times and rates are scaled by the yardstick; memory and events are not."""
    now = BASE | {"yardstick_ms": 100.0, "seconds": 120.0, "pods_per_second": 750.0, "rebuilt": {"cycle_ms": 16.0}}

    assert baseline.compare(now, BASE)["worse"] == []
    assert baseline.compare(now | {"history_events": 6_000}, BASE)["worse"] == ["history_events"]


def test_small_costs_are_noise_until_they_are_large() -> None:
    """A cost of 0.4 s after 0.2 s is noise; 5 s is not."""
    assert baseline.compare(BASE | {"first_running_seconds": 0.4}, BASE)["worse"] == []
    assert baseline.compare(BASE | {"first_running_seconds": 5.0}, BASE)["worse"] == ["first_running_seconds"]


def test_what_is_recorded_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new line replaces the old one of its case, and of no other."""
    monkeypatch.setattr(baseline, "BASELINE", tmp_path / "baseline.jsonl")
    assert baseline.load() == {}

    baseline.record([BASE, {"case": "reads"}])
    baseline.record([{"case": "reads", "seconds": 1}])

    assert baseline.load() == {"throughput": BASE, "reads": {"case": "reads", "seconds": 1}}


def test_the_committed_baseline_is_of_cases_that_exist() -> None:
    """Each line of the file has a case, a yardstick, and at least one cost to compare."""
    for case, line in baseline.load().items():
        assert case in run.CASES
        assert baseline.compare(line, line)["to_baseline"], case


def test_profiles_are_summed_by_our_innermost_function() -> None:
    """Frames below the project's innermost function count as their package; code that only other packages called counts
    for none.
    """
    stacks = [
        "main (/x/cli/main.py:1);work (/x/services/storage/jobs.py:10);execute (/v/site-packages/sqlalchemy/a.py:5) 50",
        "main (/x/cli/main.py:1);work (/x/services/storage/jobs.py:11);execute (/v/site-packages/sqlalchemy/b.py:6) 25",
        "work (/x/services/storage/jobs.py:12) 15",
        "run (/usr/lib/python3.11/threading.py:3) 10",
    ]

    assert table(stacks).splitlines() == [
        "1.0 s in Python",
        "",
        "| share | in | in it |",
        "|---|---|---|",
        "| 75% | `services/storage/jobs.py` work | sqlalchemy |",
        "| 15% | `services/storage/jobs.py` work | itself |",
        "| 10% | no code of ours | threading.py |",
    ]


def test_a_case_that_cannot_run_here_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A case for Temporal on PostgreSQL without Go has a line without numbers, and the next case runs."""
    monkeypatch.setattr(temporal_postgres, "PROGRAMS", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(run.CASES, "next", lambda: {"seconds": 1})
    monkeypatch.setattr(sys, "argv", ["run", "churn-temporal-postgres", "next"])

    run.main()

    skipped, following = map(json.loads, capsys.readouterr().out.splitlines())
    assert skipped == {
        "case": "churn-temporal-postgres",
        "skipped": "Temporal's server is built with Go, and there is no `go` here",
    }
    assert following["seconds"] == 1


def test_what_is_counted_by_number_is_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """JSON has no numeric names: a line with some is compared with its recorded form."""
    monkeypatch.setattr(baseline, "BASELINE", tmp_path / "baseline.jsonl")
    monkeypatch.setitem(run.CASES, "wide", lambda: {"runs": {1: 10}, "peak_memory_mib": {"api": 100}})

    for arguments in (["wide", "--record"], ["wide"]):
        monkeypatch.setattr(sys, "argv", ["run", *arguments])
        run.main()

    recorded, compared = map(json.loads, capsys.readouterr().out.splitlines())
    assert recorded["runs"] == compared["runs"] == {"1": 10}
    assert compared["to_baseline"] == {"peak_memory_mib": 1.0}


def test_a_trace_says_when_a_page_was_painted() -> None:
    """The last navigation counts, by the thread that set the mark; a task that continues after the mark counts up to
    it.
    """
    page, mark = {"pid": 7, "tid": 1}, {"navigationId": "b"}

    def at(name: str, ms: int, of: dict[str, str]) -> dict[str, Any]:
        return {**page, "name": name, "cat": "blink.user_timing", "ts": ms * 1_000, "args": {"data": of}}

    def task(ms: int, took_ms: int, **more: int) -> dict[str, Any]:
        return {**page, "name": "RunTask", "cat": "", "ts": ms * 1_000, "dur": took_ms * 1_000, "args": {}, **more}

    events = [
        *(at("navigationStart", ms, {"navigationId": of}) for ms, of in ((100, "a"), (200, "b"))),
        *(at(name, ms, mark) for name, ms in (("firstPaint", 250), ("firstContentfulPaint", 260), ("drawn", 400))),
        *(task(150, 20), task(210, 30), task(390, 40), task(220, 50, tid=2), task(220, 50, pid=8)),
    ]

    assert measure_paint(events) == {
        "first_paint_ms": 50,
        "first_contents_ms": 60,
        "drawn_ms": 200,
        "main_thread_ms": 40,
        "longest_task_ms": 30,
    }


def cost_line(yardsticks: float) -> dict[str, Any]:
    return {"case": "cost", "date": "2026-11-27", "per_pod": {"sum_ms": 1.0, "yardsticks": yardsticks}}


@pytest.mark.parametrize(("now", "too_dear"), [(0.0104, []), (0.0106, ["per_pod"]), (0.005, [])])
def test_the_guard_on_cost_fails_above_its_limit(now: float, too_dear: list[str]) -> None:
    """A unit that costs more than 1.05 of the baseline, in yardsticks, is reported as too dear, with the baseline."""
    found = compare_cost(cost_line(now), cost_line(0.01))
    assert (too_dear, cost_line(0.01)["per_pod"]) == (found["too_dear"], found["baseline"]["per_pod"])


@pytest.mark.parametrize(
    ("measured", "best", "rounds"),
    [([3.0, 2.0, 2.01], 2.0, 3), ([3.0, 2.0, 4.0, 2.05], 2.0, 4), ([9.0, 1.0, 5.0, 3.0, 8.0, 2.0], 1.0, 6)],
)
def test_noisy_rounds_are_repeated(measured: list[float], best: float, rounds: int) -> None:
    """Rounds end when the two cheapest agree, or at their limit; the cheapest counts."""
    left = iter(measured)
    found = measure_rounds(lambda: {"yardsticks": next(left)})
    assert (best, rounds) == (found["yardsticks"], found["rounds"])


def test_a_cost_beyond_the_limit_fails_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """``make bench CASE=cost`` exits with 1 if a unit is too dear, and with 0 otherwise."""
    monkeypatch.setattr(baseline, "BASELINE", tmp_path / "baseline.jsonl")
    baseline.record([cost_line(0.01)])
    monkeypatch.setattr(sys, "argv", ["run", "cost"])
    for now, status in ((0.02, 1), (0.01, 0)):
        monkeypatch.setitem(run.CASES, "cost", partial(cost_line, now))
        assert status == run.main()
