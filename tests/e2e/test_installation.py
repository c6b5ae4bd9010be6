"""The package installs into an empty environment without an index, and runs there, on each supported Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nightly import NIGHTLY
from tests.package import build_distributions
from tests.unit.tidy import ROOT

pytestmark = [NIGHTLY, pytest.mark.xdist_group("installation")]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
STEP_TIMEOUT_S = 800


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_distributions(tmp_path_factory.mktemp("built"))


def interpreter(version: str) -> str:
    """Return an interpreter of this version that can make environments, or "" if the machine has none."""
    own = sys.executable if version == f"{sys.version_info.major}.{sys.version_info.minor}" else ""
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3"))
    for found in (own, shutil.which(f"python{version}"), *pyenv):
        # A shim of pyenv is on PATH for versions that are not chosen, and fails.
        if found and not subprocess.run([found, "-c", "import ensurepip"], capture_output=True, check=False).returncode:
            return str(found)
    return ""


@pytest.mark.timeout(2 * STEP_TIMEOUT_S)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_demo_runs_where_the_package_was_installed_without_an_index(
    version: str, dist: Path, tmp_path: Path
) -> None:
    """pip fills a wheelhouse and installs from it alone; the demo finds its server and its files there."""
    python = interpreter(version)
    if not python:
        pytest.skip(f"no Python {version} on this machine")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PELOTON_", "PYTHON"))}
    environment["PATH"] = f"{tmp_path}/venv/bin:{environment['PATH']}"

    def run(*command: str | Path) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=STEP_TIMEOUT_S
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    [wheel] = dist.glob("*.whl")
    pip = ["venv/bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run(python, "-m", "venv", "venv")
    run(*pip, "download", "--only-binary", ":all:", "--dest", "wheelhouse", "-c", ROOT / "constraints.txt",
        f"{wheel}[local]")  # fmt: skip
    run(*pip, "install", "--no-index", "--find-links", "wheelhouse", "peloton-temporal[local]")
    run(*pip, "check")

    assert run("peloton", "version").startswith("peloton ")
    shown = run("peloton", "demo")
    assert "SUCCEEDED 10/10" in shown
    assert "\n  peloton examples " in shown  # by its name alone: it is on PATH
    run("peloton", "examples")
    assert (tmp_path / "examples/tutorial/hello.yaml").is_file()
