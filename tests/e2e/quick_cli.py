"""A ``peloton`` for the PATH of scripts: each command is forked from a process that has loaded the command line.

A command that a shell starts takes most of a second of CPU for its imports. A forked one has the arguments, the
environment, the folder and the standard streams that the shell gives it, and the shell gets its exit code.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ORDER_BYTES_MAX = 1 << 20
STREAMS = (0, 1, 2)
LOADED = ("cli.local", "cli.job.group", "cli.task.group", "cli.respool.group", "cli.host.group")
"""The groups of commands that scripts use; a command loads another one in its own process."""
CALLER = """#!{python} -SE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect({path!r})
    order = {{"words": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd()}}
    socket.send_fds(server, [json.dumps(order).encode()], {streams})
    sys.exit(int(server.recv(16) or b"137"))
"""


@contextmanager
def quick_cli(folder: Path, *modules: str) -> Iterator[Path]:
    """Yield a folder for the PATH, in which ``peloton`` works until the block ends. ``modules`` are loaded as well."""
    path, caller = folder / "orders", folder / "bin" / "peloton"
    caller.parent.mkdir()
    caller.write_text(CALLER.format(python=sys.executable, path=str(path), streams=STREAMS))
    caller.chmod(0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        command = [sys.executable, "-m", "tests.e2e.quick_cli", str(listener.fileno()), *modules]
        with subprocess.Popen(command, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL) as server:
            try:
                yield caller.parent
            finally:
                server.kill()


def accept_orders(listener: socket.socket) -> tuple[socket.socket, dict[str, Any], list[int]]:
    """Return the caller, the order and the streams, in each child; the parent accepts orders until it is killed."""
    while True:
        caller, _ = listener.accept()
        message, streams, _, _ = socket.recv_fds(caller, ORDER_BYTES_MAX, len(STREAMS))
        if not os.fork():
            return caller, json.loads(message), streams
        for each in (caller.detach(), *streams):
            os.close(each)


def become(order: dict[str, Any], streams: list[int]) -> None:
    """Give this process what a shell gives the command."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for own, theirs in zip(STREAMS, streams, strict=True):
        os.dup2(theirs, own)
        os.close(theirs)
    # The server's streams may be files, whose positions they remember.
    sys.stdin = io.TextIOWrapper(io.FileIO(0, "r"))
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w"), write_through=True)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w"), errors="backslashreplace", write_through=True)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(str(order["folder"]))
    sys.argv = ["peloton", *order["words"]]


if __name__ == "__main__":
    from cli.main import main

    for name in (*LOADED, *sys.argv[2:]):
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children
    caller, order, streams = accept_orders(socket.socket(fileno=int(sys.argv[1])))
    become(order, streams)
    leave = os._exit

    def report(code: int) -> None:
        caller.send(str(code).encode())
        leave(code)

    os._exit = report  # type: ignore[assignment]  # some commands end so
    code = 1
    try:
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        caller.send(str(code).encode())
