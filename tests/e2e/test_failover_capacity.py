"""The story of examples/failover-capacity, with shorter pods."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.shared import THREE_HOSTS, Lend
from tests.nightly import NIGHTLY

pytestmark = [NIGHTLY, pytest.mark.xdist_group("batch")]

ROOT = Path(__file__).parent.parent.parent
TIMEOUT_S = 300.0


def test_batch_uses_the_capacity_of_a_failover_until_it_happens(lend: Lend, tmp_path: Path) -> None:
    """Batch holds all that the service leaves idle, gives the reserved cores back when the region fails over, and has
    them again afterwards."""
    folder = shutil.copytree(ROOT / "examples", tmp_path / "examples") / "failover-capacity"
    text, count = re.subn(r"sleep 12", "sleep 6", (folder / "index.yaml").read_text())
    assert count == 1
    (folder / "index.yaml").write_text(text)
    with lend(THREE_HOSTS) as cluster:
        command = [sys.executable, str(folder / "run.py"), "--address", cluster.local.address, "--pause", "1"]
        run = subprocess.run(
            [*command, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert run.returncode == 0, f"{run.stdout}\n{run.stderr}\n" + "\n".join(cluster.log[-60:])

    lines = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    fails, back = (
        next(at for at, line in enumerate(lines) if line.get("event", "").startswith(event))
        for event in ("another region fails", "the region is back")
    )
    before, during, after = (
        [
            tuple(line["pools"][path]["allocation"] for path in ("/services", "/batch"))
            for line in part
            if "/batch" in line.get("pools", {})
        ]
        for part in (lines[:fails], lines[fails:back], lines[back:])
    )
    assert (4, 8) in before
    assert (8, 4) in during
    assert (4, 8) in after
    assert max(sum(held) for held in before + during + after) == 12
    assert re.search(r"every pod of the service ran \d+\.\d s after the failover began", run.stdout)
    can_draw = importlib.util.find_spec("matplotlib") is not None
    assert (tmp_path / "failover-capacity.svg").exists() == can_draw
