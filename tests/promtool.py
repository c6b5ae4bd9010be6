"""Prometheus's own checker of rules and metrics, from Debian's package, unpacked once into a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

FETCH_MAX_S = 120.0
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "peloton" / "prometheus"
_PROGRAM = Path("usr/bin/promtool")


def find_promtool() -> str:
    """Return the path of promtool, which is fetched if it is not there; skips the test where it cannot be."""
    if installed := shutil.which("promtool"):
        return installed
    if not (_CACHE / _PROGRAM).is_file():
        _fetch()
    return str(_CACHE / _PROGRAM)


def _fetch() -> None:
    if lacking := [name for name in ("apt-get", "dpkg-deb") if shutil.which(name) is None]:
        pytest.skip(f"no promtool, and {lacking[0]} is not installed: want Debian")
    _CACHE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_CACHE.parent) as work:
        try:
            for argv in (["apt-get", "download", "prometheus"], ["sh", "-c", "dpkg-deb --extract *.deb root"]):
                subprocess.run(argv, cwd=work, check=True, capture_output=True, timeout=FETCH_MAX_S)
        except (subprocess.SubprocessError, OSError) as error:
            pytest.skip(f"no promtool, and it cannot be fetched: {error}")
        if not _CACHE.exists():
            (Path(work) / "root").rename(_CACHE)


def run_promtool(*arguments: str, stdin: bytes = b"") -> None:
    """Run it; fail with its output."""
    done = subprocess.run([find_promtool(), *arguments], input=stdin, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
