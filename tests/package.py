"""Builds the distributions as ``make dist`` does, from a copy of the tree: the build writes generated files."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.unit.tidy import ROOT, files


def build_distributions(folder: Path) -> Path:
    """Return the folder of a source distribution, and of a wheel that was built from it."""
    tree, dist = folder / "tree", folder / "dist"
    for path in files():
        if path.parts[0] not in ("docs", "tests"):
            (tree / path.parent).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, tree / path)
    _build("sdist", tree, dist)
    [source] = dist.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    _build("wheel", folder / source.name.removesuffix(".tar.gz"), dist)
    return dist


def _build(target: str, folder: Path, dist: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(dist)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
