"""A machine with a real kubelet leaves no trace after any kill."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kubernetes import keeper
from tests.kubernetes.kubelet import unfit

TIMEOUT_S = 120.0
OWNER = f"""
import os, subprocess, sys
keeper = [sys.executable, {keeper.__file__!r}, "{keeper.CGROUP_PREFIX}" + str(os.getpid()), *sys.argv[1:]]
process = subprocess.Popen(keeper, stdin=subprocess.PIPE)
print(process.pid, flush=True)
process.wait()
"""
COMMAND = """
echo $$ > "$0/first"
mount -t tmpfs tmpfs "$0/mounted"
cat /proc/self/mountinfo > "$0/mounts.new"
mv "$0/mounts.new" "$0/mounts"
exec sleep 1000
"""


@pytest.fixture(autouse=True)
def _fit() -> None:
    if why := unfit():
        pytest.skip(why)


@contextmanager
def _owner(folder: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Start the owner of a keeper whose command runs; yield it with the keeper's folder in /proc."""
    (folder / "mounted").mkdir(parents=True)
    argv = [sys.executable, "-c", OWNER, str(folder), "sh", "-c", COMMAND, str(folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        keeping = Path("/proc", owner.stdout.readline().strip())
        try:
            _wait((folder / "mounts").is_file)
            yield owner, keeping
        finally:
            owner.kill()


def _groups(owner: subprocess.Popen[str]) -> list[Path]:
    return [*keeper.CGROUPS.glob(f"*/{keeper.CGROUP_PREFIX}{owner.pid}")]


def _wait(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.05)


def _lives(process: Path) -> bool:
    """Return whether the process runs. A zombie does not: the first process of a container may stay one."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _mounts() -> list[str]:
    return Path("/proc/self/mountinfo").read_text().splitlines()


def test_nothing_is_left_when_its_owner_is_killed(tmp_path: Path) -> None:
    """No process, mount, control group or file is left."""
    folder = tmp_path / "machine"
    with _owner(folder) as (owner, keeping):
        assert _groups(owner)
        assert "1\n" == (folder / "first").read_text()
        assert str(folder) in (folder / "mounts").read_text()
        [child] = (keeping / "task" / keeping.name / "children").read_text().split()

        owner.kill()

        _wait(lambda: not _lives(keeping))
    assert not _lives(Path("/proc", child))
    assert [] == _groups(owner)
    assert [] == [line for line in _mounts() if str(folder) in line]
    assert not folder.exists()


def test_the_next_one_removes_what_a_killed_keeper_left(tmp_path: Path) -> None:
    """Processes of a killed keeper end with it; the next keeper removes its control groups."""
    with _owner(tmp_path / "first") as (owner, keeping):
        [child] = (keeping / "task" / keeping.name / "children").read_text().split()
        assert _groups(owner)
        subprocess.run(["kill", "-KILL", keeping.name], check=True)
        owner.wait(TIMEOUT_S)
        _wait(lambda: not _lives(Path("/proc", child)))

    keeper.remove_stale_cgroups()

    assert [] == _groups(owner)
