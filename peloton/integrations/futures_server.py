"""The port of a ``PelotonExecutor``, at which its workers fetch calls and leave results."""

from __future__ import annotations

import logging
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

from peloton.integrations.futures_calls import Calls
from peloton.integrations.futures_worker import keep_alive

log = logging.getLogger(__name__)

HANDSHAKE_S = 10
WAIT_S = 0.5
"""Seconds between two looks of an idle worker's thread at its connection."""
PYTHON = sys.version_info[:2]


class ResultServer:
    """Hands calls to the workers that connect and prove that they have the token: a thread for each.

    ``host`` is what workers connect to; all interfaces listen then, else only the one with ``local_address``. A worker
    that had no call for ``idle_s`` is let go, except the last ``workers_min``.
    """

    def __init__(
        self,
        calls: Calls,
        token: bytes,
        *,
        local_address: str,
        host: str = "",
        port: int = 0,
        workers_min: int = 0,
        workers_max: int = 8,
        idle_s: float = 30.0,
    ) -> None:
        self.worker_count = 0
        self._calls, self._token = calls, token
        self._workers_min, self._connections_max, self._idle_s = workers_min, 2 * workers_max, idle_s
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()
        self._socket = socket.create_server(("" if host else local_address, port), backlog=1024)
        self.address = f"{host or local_address}:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, name="peloton-workers", daemon=True).start()

    def close(self) -> None:
        """Close the port and all connections, at which the workers end."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with self._lock:
            for connection in self._connections:
                with suppress(OSError), borrow(connection) as stream:  # which a lost worker has ended
                    stream.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                stream, _ = self._socket.accept()
            except OSError:
                return
            with self._lock:
                is_one_too_many = len(self._connections) >= self._connections_max
            if is_one_too_many:
                log.warning(
                    "refused a connection: %s are open, limit %s", len(self._connections), self._connections_max
                )
                stream.close()
                continue
            keep_alive(stream)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", HANDSHAKE_S, 0))
            connection = Connection(stream.detach())
            with self._lock:
                self._connections.add(connection)
            threading.Thread(target=self._attend, args=(connection,), name="peloton-worker", daemon=True).start()

    def _attend(self, connection: Connection) -> None:
        try:
            deliver_challenge(connection, self._token)
            answer_challenge(connection, self._token)
            instance, version = connection.recv()
            set_unlimited(connection)
            if version != PYTHON:
                mine, other = ".".join(map(str, PYTHON)), ".".join(map(str, version))
                self._calls.break_off(f"the workers run Python {other}, and this process {mine}: pickles need the same")
                return
            with self._lock:
                self.worker_count += 1
            try:
                self._hand_out(connection, instance)
            finally:
                with self._lock:
                    self.worker_count -= 1
        except (AuthenticationError, EOFError, OSError) as error:
            log.info("a connection ended: %s", error)
        finally:
            with self._lock:
                self._connections.discard(connection)
                connection.close()

    def _hand_out(self, connection: Connection, instance: int) -> None:
        """Hand calls to a worker until it leaves, is let go or is lost."""
        idle_since_s, is_leaving = time.monotonic(), False
        while not is_leaving:
            batch = self._calls.take(self.worker_count, WAIT_S)
            if connection.poll(0):  # a worker sends nothing unasked: it is lost
                self._calls.put_back(batch)
                return
            if not batch:
                if self._may_leave(time.monotonic() - idle_since_s):
                    connection.send(None)
                    return
                continue
            try:
                connection.send([(position, call.function, call.arguments) for position, call in enumerate(batch)])
                results, seconds, is_leaving = connection.recv()
            except (EOFError, OSError):
                log.warning("instance %s was lost with %s calls", instance, len(batch))
                self._calls.lose(batch, instance)
                return
            self._calls.settle(batch, results, seconds)
            idle_since_s = time.monotonic()

    def _may_leave(self, idle_s: float) -> bool:
        if self._calls.is_closed and not self._calls.outstanding():
            return True
        return idle_s > self._idle_s and self.worker_count > self._workers_min


@contextmanager
def borrow(connection: Connection) -> Iterator[socket.socket]:
    """Yield the socket of a connection, which is left open also after an error: the connection closes it."""
    stream = socket.socket(fileno=connection.fileno())
    try:
        yield stream
    finally:
        stream.detach()


def set_unlimited(connection: Connection) -> None:
    """Let reads of the connection wait as long as a call takes."""
    with borrow(connection) as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
