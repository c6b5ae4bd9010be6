"""The program of a pod that runs calls for a ``PelotonExecutor``.

Its text travels in the job's configuration, so that an image needs Python and cloudpickle only: it imports nothing else
that is not in the standard library.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

CONNECT_S = 60.0
WATCH_S = 1.0
FUNCTIONS_MAX = 8
"""Functions that are kept unpickled between batches."""
KEEPALIVE = ((4, 15), (5, 5), (6, 4))
"""Values of TCP_KEEPIDLE, TCP_KEEPINTVL and TCP_KEEPCNT on Linux: a lost host is noticed after 35 seconds."""
TOKEN = "PELOTON_FUTURES_TOKEN"  # noqa: S105


class Leaving(Exception):
    """The pod has to end while it waits for calls."""


class Worker:
    """Runs batches of calls, each a pickled function and its pickled arguments, until the executor or the pod ends."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.is_busy = self.is_running = self.is_leaving = False
        self.functions: dict[bytes, Any] = {}

    def leave(self, *_: object) -> None:
        """Finish the present call, if there is one that the executor waits for, and end."""
        self.is_leaving = True
        if not self.is_busy or self.connection.poll(0):
            raise Leaving

    def watch(self) -> None:
        """End the process, with its call, soon after the executor has ended."""
        while True:
            time.sleep(WATCH_S)
            if self.is_running and self.connection.poll(0):  # nothing else comes while a batch runs
                os._exit(0)

    def serve(self) -> None:
        self.connection.send((int(os.environ.get("PELOTON_INSTANCE_ID", 0)), sys.version_info[:2]))
        while (batch := self.connection.recv()) is not None:
            self.is_busy = self.is_running = True
            began_s, results = time.monotonic(), []
            for number, function, arguments in batch:
                results.append((number, *self.run(function, arguments)))
                if self.is_leaving:
                    break
            self.is_running = False
            self.connection.send((results, time.monotonic() - began_s, self.is_leaving))
            self.is_busy = False
            if self.is_leaving:
                return

    def run(self, function: bytes, arguments: bytes) -> tuple[bool, bytes, str]:
        """Return whether the call succeeded, its pickled value or error, and the traceback of the error."""
        import cloudpickle

        try:
            if function not in self.functions:
                while len(self.functions) >= FUNCTIONS_MAX:
                    del self.functions[next(iter(self.functions))]
                self.functions[function] = pickle.loads(function)  # noqa: S301
            args, kwargs = pickle.loads(arguments)  # noqa: S301
            return True, cloudpickle.dumps(self.functions[function](*args, **kwargs)), ""
        except BaseException as error:  # also SystemExit of a call: the executor raises it in its turn
            text = traceback.format_exc()
            try:
                return False, cloudpickle.dumps(error), text
            except Exception:
                return False, pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}")), text


def keep_alive(connection: socket.socket) -> None:
    """Let the kernel notice that the other host is lost, and send small messages at once."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in KEEPALIVE if sys.platform == "linux" else ():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def connect(host: str, port: int, token: bytes) -> Connection:
    """Connect to the executor, each side proving to the other that it has the token. Exits when that fails."""
    until_s = time.monotonic() + CONNECT_S
    while True:
        try:
            stream = socket.create_connection((host, port), timeout=CONNECT_S)
            break
        except OSError as error:
            if time.monotonic() > until_s:
                sys.exit(f"cannot reach the executor at {host}:{port} within {CONNECT_S:.0f} s: {error}")
            time.sleep(1.0)
    stream.settimeout(None)
    keep_alive(stream)
    connection = Connection(stream.detach())
    answer_challenge(connection, token)
    deliver_challenge(connection, token)
    return connection


def main(address: str) -> None:
    host, _, port = address.rpartition(":")
    worker = Worker(connect(host, int(port), os.environ.pop(TOKEN).encode()))
    signal.signal(signal.SIGTERM, worker.leave)
    threading.Thread(target=worker.watch, daemon=True).start()
    try:
        worker.serve()
    except (EOFError, OSError):
        print("the executor has ended")
    except Leaving:
        print("the pod has to end")


if __name__ == "__main__":
    main(sys.argv[1])
