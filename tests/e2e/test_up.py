"""Errors of `peloton up` before it starts any process: one line and exit code 1."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from services.lab.local.control import control_file
from tests.e2e.quick_cli import quick_cli
from tests.ports import free_ports

pytestmark = pytest.mark.xdist_group("up")


Up = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Return a function that runs `peloton up` until it ends."""
    with quick_cli(tmp_path_factory.mktemp("up"), "services.lab.local.cluster") as folder:

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            command = [str(folder / "peloton"), "up", "--port", "0", *arguments]
            return subprocess.run(command, capture_output=True, text=True, timeout=240)

        yield run


def test_a_data_folder_belongs_to_one_cluster(up: Up, tmp_path: Path) -> None:
    """A second `peloton up` in the same folder names the process that uses it, and starts nothing."""
    with (tmp_path / "lock").open("w") as lock:
        lock.write("4711")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)

        result = up("--data", str(tmp_path))

    assert 1 == result.returncode
    assert f"data folder {tmp_path} is in use by the `peloton up` with pid 4711" in result.stderr


def test_a_bad_hosts_file_is_reported_at_once(up: Up, tmp_path: Path) -> None:
    """The error names host, field, bounds and value."""
    hosts = tmp_path / "hosts.yaml"
    hosts.write_text("- {name: a, cpus: -2, mem: 10, disk: 10}\n")

    result = up("--hosts", str(hosts))

    assert 1 == result.returncode
    assert "host 'a': cpus: must be a number from 0 to 1e+12, got -2" in result.stderr
    assert "internal error" not in result.stderr


@pytest.mark.parametrize("url", ["nonsense://x", "postgresql+psycopg://user:secret@127.0.0.1:1/none"])
def test_a_database_that_cannot_be_used_is_named(up: Up, url: str, tmp_path: Path) -> None:
    """The error names the database and not its password."""
    result = up("--data", str(tmp_path), "--database", url)

    assert 1 == result.returncode
    assert "database" in result.stderr
    assert "secret" not in result.stderr
    assert "internal error" not in result.stderr


def test_a_mesos_that_cannot_be_used_is_named(up: Up) -> None:
    """An unusable Mesos is refused before anything starts: no listener, no address, and options that describe emulated
    hosts."""
    (port,) = free_ports(1)

    away, nonsense = up("--mesos", f"127.0.0.1:{port}"), up("--mesos", "https://mesos")
    both = up("--mesos", f"127.0.0.1:{port}", "--simulate", "3")

    assert (1, 2, 2) == (away.returncode, nonsense.returncode, both.returncode)
    assert f"no Mesos master answers at 127.0.0.1:{port}: start it, or leave out --mesos" in away.stderr
    assert "https://mesos: want HOST:PORT or zk://HOST:PORT,.../PATH" in nonsense.stderr
    assert "--mesos has hosts of its own" in both.stderr


def test_names_of_clusters_are_unique(up: Up, tmp_path: Path) -> None:
    """Duplicate and malformed names, and names combined with a hosts file, are refused."""
    hosts = tmp_path / "hosts.yaml"
    hosts.write_text("- {name: a}\n")

    twice, first = up("--cluster", "west", "--cluster", "west"), up("--cluster", "local")
    bad = up("--cluster", "a/b")
    with_file = up("--cluster", "west", "--hosts", str(hosts))

    assert [2, 2, 2, 1] == [one.returncode for one in (twice, first, bad, with_file)]
    assert "cluster 'a/b': want at most 63 letters" in bad.stderr
    for result in (twice, first):
        assert "each cluster needs a name of its own, and the first one is local" in result.stderr
    assert "a hosts file describes one cluster" in with_file.stderr


def test_a_missing_temporal_server_is_named(up: Up) -> None:
    """The error names the address, whether nothing listens there or another server does."""
    (port,) = free_ports(1)

    unreachable, malformed = up("--temporal", f"127.0.0.1:{port}"), up("--temporal", "temporal")
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
        threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        other_server = up("--temporal", f"127.0.0.1:{other.server_port}")
        other.shutdown()

    assert (1, 2, 1) == (unreachable.returncode, malformed.returncode, other_server.returncode)
    assert f"no Temporal server answers at 127.0.0.1:{port}" in unreachable.stderr
    assert f"no Temporal server answers at 127.0.0.1:{other.server_port}" in other_server.stderr
    assert "--temporal temporal: want HOST:PORT" in malformed.stderr


@pytest.mark.parametrize("name", ["peloton.db", "temporal.db"])
def test_a_damaged_file_is_named(up: Up, name: str, tmp_path: Path) -> None:
    """The error names the damaged file before any part starts."""
    (tmp_path / name).write_text("not a database" * 100)

    result = up("--data", str(tmp_path))

    assert 1 == result.returncode
    assert f"{tmp_path / name} is damaged: file is not a database" in result.stderr


def test_a_role_without_a_database_ends() -> None:
    """A role without PELOTON_DATABASE ends with exit code 2."""
    environment = {name: value for name, value in os.environ.items() if name != "PELOTON_DATABASE"}
    command = [sys.executable, "-m", "cli.main", "serve", "worker"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)

    assert 2 == result.returncode
    assert "PELOTON_DATABASE is not set" in result.stderr


def test_a_hangup_ends_the_cluster_in_order(tmp_path: Path) -> None:
    """A hangup ends all processes and removes the control file. Files in the data folder are readable by their user
    only."""
    data, (port,) = tmp_path / "data", free_ports(1)
    command = [
        sys.executable,
        "-m",
        "tests.e2e.forked_up",
        "up",
        "--port",
        str(port),
        "--data",
        str(data),
        "--simulate",
        "2",
    ]
    before, hangup = os.umask(0o022), signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    finally:
        os.umask(before)
        signal.signal(signal.SIGHUP, hangup)
    with process:
        assert process.stdout is not None
        assert any("ready: API" in line for line in process.stdout)
        assert control_file(port).exists()

        process.send_signal(signal.SIGHUP)

        assert process.stdout.read().rstrip().endswith("stopped")
    assert (0, False) == (process.returncode, control_file(port).exists())
    found = [data, *data.rglob("*")]
    assert {"peloton.db", "temporal.db", "lock", "api.log"} <= {path.name for path in found}
    assert [] == [str(path) for path in found if path.lstat().st_mode & 0o077 and not path.is_symlink()]
