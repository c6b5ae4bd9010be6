"""What `peloton up` refuses before it starts anything: one line each, exit code 1."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("faults")


def up(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cli.main", "up", "--port", "0", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_data_folder_belongs_to_one_cluster(tmp_path: Path) -> None:
    """A second cluster in the same folder would end the first one's pods: it names the holder, and starts nothing."""
    with (tmp_path / "lock").open("w") as lock:
        lock.write("4711")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)

        refused = up("--data", str(tmp_path))

    assert 1 == refused.returncode
    assert f"data folder {tmp_path} is in use by the `peloton up` with pid 4711" in refused.stderr


def test_a_bad_hosts_file_is_told_at_once(tmp_path: Path) -> None:
    """File, host, rule and number; nothing was started."""
    hosts = tmp_path / "hosts.yaml"
    hosts.write_text("- {name: a, cpus: -2, mem: 10, disk: 10}\n")

    refused = up("--hosts", str(hosts))

    assert 1 == refused.returncode
    assert "host 'a': cpus must be a number from 0, got -2" in refused.stderr
    assert "internal error" not in refused.stderr


@pytest.mark.parametrize("url", ["nonsense://x", "postgresql+psycopg://user:secret@127.0.0.1:1/none"])
def test_a_database_that_cannot_be_used_is_named(url: str, tmp_path: Path) -> None:
    """The URL without its password, and why."""
    refused = up("--data", str(tmp_path), "--database", url)

    assert 1 == refused.returncode
    assert "database" in refused.stderr
    assert "secret" not in refused.stderr
    assert "internal error" not in refused.stderr


def test_clusters_need_names_of_their_own(tmp_path: Path) -> None:
    """A name twice, that of the first one included, or with a file that describes one cluster, starts nothing."""
    hosts = tmp_path / "hosts.yaml"
    hosts.write_text("- {name: a}\n")

    twice, first = up("--cluster", "west", "--cluster", "west"), up("--cluster", "local")
    bad = up("--cluster", "a/b")
    with_file = up("--cluster", "west", "--hosts", str(hosts))

    assert [2, 2, 2, 1] == [one.returncode for one in (twice, first, bad, with_file)]
    assert "cluster 'a/b': want at most 63 letters" in bad.stderr
    for refused in (twice, first):
        assert "each cluster needs a name of its own, and the first one is local" in refused.stderr
    assert "a hosts file describes one cluster" in with_file.stderr
