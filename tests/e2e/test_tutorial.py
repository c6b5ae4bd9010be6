"""docs/tutorial.md, run line by line against a `peloton up` of its own, which then ends on Ctrl-C without a trace."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.quick_cli import quick_cli
from tests.ports import free_ports

ROOT = Path(__file__).parent.parent.parent
INSTALLED = Path(sys.executable).parent
MARK = "PELOTON_TEST_MARK"

pytestmark = pytest.mark.xdist_group("tutorial")


@contextmanager
def peloton_up(environment: dict[str, str], log: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        command = [sys.executable, "-m", "tests.e2e.forked_up", "up", "--port", str(port)]
        up = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
        try:
            wait_for_line(log, "ready", up)
            yield up
        finally:
            up.send_signal(signal.SIGINT)
            up.wait(240)


def wait_for_line(log: Path, word: str, process: subprocess.Popen[bytes], timeout_s: float = 300) -> None:
    deadline_s = time.monotonic() + timeout_s
    while word not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline_s, log.read_text()
        time.sleep(0.1)


def script() -> str:
    """The tutorial's shell blocks as one script; a block that is to fail ends it with 97 when it does not."""
    text = (ROOT / "docs" / "tutorial.md").read_text()
    lines = ["set -eu"]
    for kind, body in re.findall(r"^```shell *([a-z]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if kind == "fails":
            lines.append(f"if ( set -e\n{body}); then exit 97; fi")
        elif kind != "background":
            lines.append(body)
    return "\n".join(lines)


def processes_with(mark: str) -> list[str]:
    """Command lines of processes that carry the mark in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def test_the_tutorial_works_as_written(tmp_path: Path) -> None:
    """Every line of it does what it says; the cluster ends with 0 on Ctrl-C and leaves no process behind."""
    (port,), mark, log = free_ports(1), uuid.uuid4().hex, tmp_path / "up.log"
    environment = {
        **os.environ,
        "PATH": f"{INSTALLED}:{os.environ['PATH']}",
        "PELOTON_ADDRESS": f"127.0.0.1:{port}",
        MARK: mark,
    }

    with peloton_up(environment, log, port) as up, quick_cli(tmp_path) as quick:
        quickly = {**environment, "PATH": f"{quick}:{environment['PATH']}"}
        lesson = subprocess.run(
            ["bash", "-x", "-c", script()], cwd=ROOT, env=quickly, capture_output=True, text=True, timeout=900
        )

    assert lesson.returncode == 0, f"{lesson.stdout[-3000:]}\n{lesson.stderr[-3000:]}\n{log.read_text()[-3000:]}"
    assert up.returncode == 0
    assert processes_with(mark) == []
