"""The version of a worker is that of the code that its workflows run."""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path

import pytest

from services.worker.build import PACKAGES, ROOT, build_id
from tests.unit.tidy import is_below, name_of, python_files, reachable


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a tree with the packages that decide the version, and another one."""
    for package in (*PACKAGES, "peloton/scheduling"):
        shutil.copytree(ROOT / package, tmp_path / package)
    return tmp_path


def test_the_version_names_release_and_code(tree: Path) -> None:
    """The version does not depend on the place of the installation."""
    assert build_id(tree) == build_id()
    assert build_id().startswith(f"{metadata.version('peloton-temporal')}-")


@pytest.mark.parametrize("package", PACKAGES)
def test_another_code_is_another_version(package: str, tree: Path) -> None:
    """One more line or file in any package that workflows run changes the version."""
    found = [build_id()]
    for path in (next((tree / package).glob("*.py")), tree / package / "another.py"):
        path.write_text(f"{path.read_text() if path.exists() else ''}\nMORE = 1\n", encoding="utf-8")
        build_id.cache_clear()
        found.append(build_id(tree))

    assert len(set(found)) == 3


def test_code_that_no_workflow_runs_makes_no_version(tree: Path) -> None:
    """Workers of both builds can serve the same runs."""
    (tree / "peloton/scheduling/another.py").write_text("MORE = 1\n", encoding="utf-8")

    assert build_id(tree) == build_id()


def test_everything_that_a_workflow_reaches_decides() -> None:
    """All imports of workflows are in the packages of the version, except errors and ports, which are names and
    shapes.
    """
    packages = [package.replace("/", ".") for package in PACKAGES]
    ours = {
        name for name in reachable([name_of(path) for path in python_files("workflows")]) if name.startswith("peloton.")
    }
    assert {"peloton.errors", "peloton.ports"} == {
        name for name in ours if not any(is_below(name, package) for package in packages)
    }
