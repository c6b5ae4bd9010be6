"""examples/pipeline, as its README has it: a pipeline that succeeds, and one that is taken back."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.shared import FIVE_HOSTS, Lend

pytestmark = pytest.mark.xdist_group("services")
ROOT = Path(__file__).parent.parent.parent
TIMEOUT_S = 300.0


def test_the_story_of_a_pipeline(lend: Lend, tmp_path: Path) -> None:
    """The README shows what is printed: a failure undoes what succeeded, the last first, and leaves nothing behind."""
    with lend(FIVE_HOSTS) as cluster:
        run = subprocess.run(
            [sys.executable, "examples/pipeline/run.py", "--address", cluster.local.address, "--out", str(tmp_path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert run.returncode == 0, f"{run.stdout}\n{run.stderr}\n" + "\n".join(cluster.log[-60:])

    shown = re.search(r"```text\n(.*?)```", (ROOT / "examples/pipeline/README.md").read_text(), re.DOTALL)
    assert shown is not None
    assert shown[1] == run.stdout
