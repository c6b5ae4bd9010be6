"""The version of a worker is that of the code which its workflows run."""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path

import pytest

from services.worker.build import PACKAGES, ROOT, build_id
from tests.unit.tidy import is_below, name_of, python_files, reachable


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The packages that decide, and another one."""
    for package in (*PACKAGES, "peloton/scheduling"):
        shutil.copytree(ROOT / package, tmp_path / package)
    return tmp_path


def test_the_version_names_release_and_code(tree: Path) -> None:
    """Wherever the code is installed."""
    assert build_id(tree) == build_id()
    assert build_id().startswith(f"{metadata.version('peloton-temporal')}-")


@pytest.mark.parametrize("package", PACKAGES)
def test_another_code_is_another_version(package: str, tree: Path) -> None:
    """A line more, or a file more, in any package that workflows run."""
    found = [build_id()]
    for path in (next((tree / package).glob("*.py")), tree / package / "another.py"):
        path.write_text(f"{path.read_text() if path.exists() else ''}\nMORE = 1\n", encoding="utf-8")
        build_id.cache_clear()
        found.append(build_id(tree))

    assert len(set(found)) == 3


def test_code_that_no_workflow_runs_makes_no_version(tree: Path) -> None:
    """Workers of both can serve the same runs."""
    (tree / "peloton/scheduling/another.py").write_text("MORE = 1\n", encoding="utf-8")

    assert build_id(tree) == build_id()


def test_everything_that_a_workflow_reaches_decides() -> None:
    """Of our own code; errors and ports are names and shapes."""
    packages = [package.replace("/", ".") for package in PACKAGES]
    ours = {
        name for name in reachable([name_of(path) for path in python_files("workflows")]) if name.startswith("peloton.")
    }
    assert {"peloton.errors", "peloton.ports"} == {
        name for name in ours if not any(is_below(name, package) for package in packages)
    }
