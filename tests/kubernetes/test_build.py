"""The build of a real Kubernetes, with a compiler of our own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

PATIENCE_S = 180.0
COMPILER = """#!/bin/sh
echo $$ > {seen}.new
mv {seen}.new {seen}
exec sleep 600
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_build_ends_with_the_process_that_asked_for_it(tmp_path: Path) -> None:
    """After kill -9 of a build no compiler goes on by itself."""
    seen, compiler = tmp_path / "seen", tmp_path / "go"
    compiler.write_text(COMPILER.format(seen=seen))
    compiler.chmod(0o700)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path)}
    build = subprocess.Popen([sys.executable, "-m", "tests.kubernetes.build"], env=environment)
    try:
        _wait(seen.is_file)
        compiling = seen.read_text().strip()
        assert _lives(compiling)
    finally:
        build.kill()
        build.wait()
    _wait(lambda: not _lives(compiling))


def _lives(process_id: str) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # it has ended, and nobody has asked how


def _wait(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.05)
