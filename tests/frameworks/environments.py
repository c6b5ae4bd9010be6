"""Virtual environments of the frameworks that the tests run: each has its own pins, which differ from Peloton's.

The folder ``requirements`` has one file for each environment. An environment is made at its first use, below
``.venv/frameworks``, and again when its file has changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = Path(__file__).parent / "requirements"
ENVIRONMENTS = ROOT / ".venv" / "frameworks"
INSTALL_MAX_S = 900.0
LINES_SHOWN, ERROR_CHARS = 15, 5_000


def environment(name: str) -> Path:
    """Return the Python of an environment, which is made if it is missing or out of date.

    It skips the test if the packages cannot be installed, as on a machine without a network.
    """
    requirements = REQUIREMENTS / f"{name}.txt"
    folder = ENVIRONMENTS / name
    python, stamp = folder / "bin" / "python", folder / "requirements.sha256"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    with open(ENVIRONMENTS / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (stamp.exists() and stamp.read_text() == digest):
            shutil.rmtree(folder, ignore_errors=True)
            run(sys.executable, "-m", "venv", str(folder))
            run(str(python), "-m", "pip", "--disable-pip-version-check", "install", "-q", "-r", str(requirements))
            stamp.write_text(digest)
    return python


def run_in(name: str, *words: str, timeout_s: float, variables: Mapping[str, str] | None = None) -> str:
    """Run a script with its arguments in an environment, with this checkout on its path; return what it printed."""
    done = subprocess.run(
        [str(environment(name)), *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), **(variables or {})},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-ERROR_CHARS:]
    return done.stdout


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=INSTALL_MAX_S, check=False)
    if done.returncode:
        shown = "\n".join((done.stdout + done.stderr).splitlines()[-LINES_SHOWN:])
        pytest.skip(f"{' '.join(command)}: {shown}")
