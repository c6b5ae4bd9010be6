"""The story of examples/elastic-pools, with shorter sleeps."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from peloton.api.v0.job import job_pb2
from peloton.api.v0.respool import respool_pb2
from tests.e2e.local import Cluster, temporary
from tests.e2e.test_tutorial import MARK, processes_with
from tests.nightly import NIGHTLY

pytestmark = [NIGHTLY, pytest.mark.xdist_group("elastic-pools")]

ROOT = Path(__file__).parent.parent.parent
TIMEOUT_S = 300.0


def shorter(tmp_path: Path) -> Path:
    """Copy the example with jobs that sleep less, and return its script."""
    folder = shutil.copytree(ROOT / "examples", tmp_path / "examples") / "elastic-pools"
    for name, seconds in (("sweep.yaml", 24), ("report.yaml", 3)):
        text, count = re.subn(r"sleep \d+", f"sleep {seconds}", (folder / name).read_text())
        assert count == 1
        (folder / name).write_text(text)
    return folder / "run.py"


def measure_held(line: dict[str, Any]) -> tuple[float, float]:
    return line["pools"]["/team-a"]["allocation"], line["pools"]["/team-b"]["allocation"]


def test_two_teams_lend_to_each_other(tmp_path: Path) -> None:
    """Team B borrows all that A leaves idle, shrinks to its own share when A comes, and is back when A has gone; the
    script takes its jobs and pools away again."""
    with Cluster(temporary(tmp_path / "cluster")) as cluster:
        command = [sys.executable, str(shorter(tmp_path)), "--address", cluster.local.address, "--pause", "1"]
        run = subprocess.run(
            [*command, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert run.returncode == 0, f"{run.stdout}\n{run.stderr}\n" + "\n".join(cluster.log[-60:])
        pools = cluster.client.respools.Query(respool_pb2.QueryRequest()).resourcePools
        jobs = cluster.client.jobs.Query(job_pb2.QueryRequest()).results

    lines = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    came = next(i for i, line in enumerate(lines) if line.get("event", "").startswith("team A submits"))
    left = next(i for i, line in enumerate(lines) if line.get("event") == "team A is done")
    before, shared, after = (
        [line for line in part if "/team-b" in line.get("pools", {})]
        for part in (lines[:came], lines[came:left], lines[left:])
    )
    assert (0, 12) in [measure_held(line) for line in before]
    assert (6, 6) in [measure_held(line) for line in shared if line["pools"]["/team-b"]["entitlement"] == 6]
    assert any(a == 0 and b > 6 for a, b in map(measure_held, after))
    assert max(a + b for a, b in map(measure_held, before + shared + after)) == 12
    assert measure_held(after[-1]) == (0, 0)
    assert ([pool.path.value for pool in pools], list(jobs)) == (["/"], [])
    can_draw = importlib.util.find_spec("matplotlib") is not None
    assert (tmp_path / "elastic-pools.svg").exists() == can_draw
    assert ("because matplotlib is not installed" in run.stdout) != can_draw


def test_ctrl_c_ends_the_story_and_its_cluster(tmp_path: Path) -> None:
    """The script with a cluster of its own, interrupted while team B borrows, ends with exit code 130, no trace, no
    process left."""
    mark, log = uuid.uuid4().hex, tmp_path / "log"
    command = [sys.executable, "-u", str(shorter(tmp_path)), "--out", str(tmp_path), "--pause", "60"]
    with log.open("w") as output:
        run = subprocess.Popen(command, cwd=ROOT, env={**os.environ, MARK: mark}, stdout=output, stderr=output)
        deadline_s = time.monotonic() + TIMEOUT_S
        while "6 borrowed" not in log.read_text():
            assert run.poll() is None, log.read_text()
            assert time.monotonic() < deadline_s, log.read_text()
            time.sleep(0.1)
        run.send_signal(signal.SIGINT)
        run.wait(TIMEOUT_S)

    assert (run.returncode, "Traceback" in log.read_text()) == (130, False)
    assert processes_with(mark) == []
