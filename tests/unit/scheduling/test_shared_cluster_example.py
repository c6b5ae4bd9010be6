"""The simulation of examples/shared-cluster, with a small day."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
DAY = ["--services", "120", "--databases", "40", "--batch", "600"]
HOST_MILLI = 32_000


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """Return the output and the figures of a small day."""
    out = tmp_path_factory.mktemp("shared-cluster")
    command = [sys.executable, "examples/shared-cluster/run.py", *DAY, "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((out / "figures.json").read_text())


def test_no_cluster_holds_more_than_its_hosts_have(ran: tuple[str, dict[str, Any]]) -> None:
    """Requests stay below the capacity except on slack, and the cpu in use does there, too."""
    _, days = ran
    over = {
        name
        for name, day in days.items()
        if any(sum(held) > day["hosts"] * HOST_MILLI for held in zip(*day["held"].values(), strict=True))
    }
    assert over <= {"  and best-effort on slack"}
    assert [] == [name for name, day in days.items() if max(day["used"]) > day["hosts"] * HOST_MILLI]


def test_services_have_in_the_shared_cluster_what_they_had_in_their_own(ran: tuple[str, dict[str, Any]]) -> None:
    """Databases always run whole; services may lag by the minutes that preemption takes, and not all day."""
    _, days = ran
    own, shared = days["three separate clusters"]["held"], days["one shared cluster"]["held"]
    assert own["databases"] == shared["databases"]
    lag = sum(one - other for one, other in zip(own["services"], shared["services"], strict=True))
    assert 0 <= lag <= sum(own["services"]) // 100


def test_the_table_says_what_sharing_and_slack_bring(ran: tuple[str, dict[str, Any]]) -> None:
    """The shared cluster is no larger, its hosts are busier, and slack makes them busier still."""
    text, days = ran
    separate, shared, slack = (
        days[name] for name in ("three separate clusters", "one shared cluster", "  and best-effort on slack")
    )
    assert f"{shared['hosts']} instead of {separate['hosts']}" in text
    assert shared["hosts"] == slack["hosts"] <= separate["hosts"]
    assert sum(separate["used"]) / separate["hosts"] <= sum(shared["used"]) / shared["hosts"]
    assert sum(shared["used"]) < sum(slack["used"])
