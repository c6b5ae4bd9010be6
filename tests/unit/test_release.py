"""The version is one step ahead of the last release, and names the commit."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

from cli.version import read_commit
from tests.unit.compatibility.release import latest

ROOT = Path(__file__).resolve().parents[2]


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.removesuffix(".dev0").split(".")]


def releases() -> list[str]:
    return re.findall(r"^## (\d+\.\d+\.\d+) - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_the_version_is_ahead_of_the_last_release() -> None:
    """The version of pyproject.toml is greater than each release of the change log, unless it is the release itself."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    assert releases() == sorted(releases(), key=numbers, reverse=True)
    if version.endswith(".dev0"):
        assert numbers(version) > numbers(releases()[0])
    else:
        assert version == releases()[0]


def test_the_frozen_release_is_in_the_change_log() -> None:
    """The record that compatibility tests compare with belongs to the newest release of the change log."""
    assert numbers(releases()[0])[:2] == numbers(latest().name)


def git(root: Path, *words: str) -> str:
    identity = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    return subprocess.run(
        ["git", "-C", str(root), *identity, *words], capture_output=True, text=True, check=True
    ).stdout


def test_the_commit_is_that_of_the_checkout_or_of_the_build(tmp_path: Path) -> None:
    """A checkout asks git, whatever an earlier build noted; a package reads the note of its build."""
    (tmp_path / "cli").mkdir()
    assert read_commit(tmp_path) == ""

    (tmp_path / "cli" / "commit.txt").write_text(f"{'a' * 40}\n")
    assert read_commit(tmp_path) == "a" * 12

    git(tmp_path, "init", "-q")
    assert read_commit(tmp_path) == ""  # of no commit
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    assert read_commit(tmp_path) == git(tmp_path, "rev-parse", "HEAD")[:12]
