"""Roles that are forked from a process that has loaded them (``nursery``) instead of started: of the CPU that the start
of a cluster takes, loading them is three quarters. Each is a process of its own, with its signals, output and end."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from services.lab.local.cluster import LocalCluster
from services.lab.local.part import LINE_BYTES_MAX, Part
from services.storage.migrate import upgrade

SERVE = [sys.executable, "-m", "cli.main"]


class Nursery:
    """One for all clusters of this process; it ends with us, and its children with it."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.nursery", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONUNBUFFERED": "1", "OPENBLAS_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._turn = threading.Lock()

    def fork(self, words: Sequence[str], environment: Mapping[str, str], output: int, ended: int) -> int:
        order = {"words": list(words), "environment": dict(environment), "folder": os.getcwd()}
        with self._turn:
            socket.send_fds(self._orders, [json.dumps(order).encode()], [output, ended])
            return int(self._orders.recv(64))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._orders.close()


_nurseries: list[Nursery] = []
_starting = threading.Lock()


def nursery() -> Nursery:
    with _starting:
        if not _nurseries:
            _nurseries.append(Nursery())
        return _nurseries[0]


def kill_nurseries() -> None:
    """End the forked roles that are left, with the process that forked them."""
    while _nurseries:
        _nurseries.pop().kill()


class Process:
    """The part of ``asyncio.subprocess.Process`` that a supervised process uses."""

    def __init__(self, pid: int, stdout: asyncio.StreamReader, ended: asyncio.StreamReader) -> None:
        self.pid, self.stdout = pid, stdout
        self.returncode: int | None = None
        self._waiting = asyncio.create_task(self._await_end(ended))

    async def _await_end(self, ended: asyncio.StreamReader) -> None:
        self.returncode = int((await ended.read()).decode() or -signal.SIGKILL)

    async def wait(self) -> int:
        await asyncio.shield(self._waiting)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkedPart(Part):
    async def _spawn(self) -> None:
        self.starts += 1
        environment, words = self.whole_environment, self.argv[len(SERVE) :]
        output, theirs = os.pipe()
        ended, reported = os.pipe()
        try:
            pid = await asyncio.to_thread(lambda: nursery().fork(words, environment, theirs, reported))
        finally:
            os.close(theirs)
            os.close(reported)
        process: Any = Process(pid, await reader(output), await reader(ended))
        self.process = process


async def reader(descriptor: int) -> asyncio.StreamReader:
    found = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    protocol = asyncio.StreamReaderProtocol(found)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(descriptor, "rb", 0))
    return found


@cache
def migrate_database() -> Path:
    """Return an SQLite file with the newest schema and no rows, which is made once per process."""
    path = Path(tempfile.mkdtemp(prefix="peloton-schema-")) / "peloton.db"
    atexit.register(shutil.rmtree, path.parent, ignore_errors=True)
    upgrade(f"sqlite:///{path}")
    return path


class ForkedCluster(LocalCluster):
    """Fork the roles, and copy a new database instead of migrating it; start the other processes as users do."""

    def _describe_parts(self) -> None:
        super()._describe_parts()
        for name, part in self.parts.items():
            if part.argv[: len(SERVE)] == SERVE:
                self.parts[name] = ForkedPart(
                    name, part.argv, part.environment, part.log_path, part.report, part.health_path
                )

    def _migrate(self) -> None:
        path = self.data_dir / "peloton.db"
        if self.database != f"sqlite:///{path}" or path.exists():
            super()._migrate()
            return
        with closing(sqlite3.connect(migrate_database())) as source, closing(sqlite3.connect(path)) as target:
            source.backup(target)
