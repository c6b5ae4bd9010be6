"""examples/udeploy, as its README has it: a good deploy, one that is taken back, a controller that is killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.e2e.test_tutorial import MARK, processes_with
from tests.nightly import NIGHTLY

pytestmark = [NIGHTLY, pytest.mark.xdist_group("udeploy")]

ROOT = Path(__file__).parent.parent.parent
TIMEOUT_S = 400.0


@pytest.mark.parametrize("api", ["peloton", "aurora"])
def test_the_story_of_three_deploys(tmp_path: Path, api: str) -> None:
    """Each pod of both clusters runs what the last good deploy brought; an update of Peloton's API waits while its
    controller is dead, and the next controller finishes it. No process is left."""
    mark = uuid.uuid4().hex
    run = subprocess.run(
        [sys.executable, "-u", "examples/udeploy/run.py", "--api", api, "--out", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, MARK: mark},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    logs = "\n".join(log.read_text()[-2_000:] for log in sorted(tmp_path.glob("up-*.log")))
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}\n{logs}"

    ran = re.findall(r"(\d+) pods run version (\w+)", run.stdout)
    assert ran == [("7", version) for version in ("1", "2", "2", "3") for _ in range(2)]
    assert re.findall(r"^([\w-]+): (?:DONE|TAKEN BACK|version \w+ is nowhere)", run.stdout, re.MULTILINE) == [
        "web-2",
        "web-bad",
        "web-bad",
        "web-3",
    ]
    assert "batches" not in "".join(re.findall(r"^web-bad: .*", run.stdout, re.MULTILINE))
    left = re.findall(r"it waits, with (\d+) instances to go", run.stdout)
    assert ([True] if api == "peloton" else []) == [0 < int(count) < 7 for count in left]
    assert processes_with(mark) == []
