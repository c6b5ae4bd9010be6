"""The connection between a host manager and its Mesos master, which can be cut and can lose a call or an answer."""

from __future__ import annotations

import contextlib
import re
import socket
import threading

CALL = re.compile(rb'"type": ?"([A-Z_]+)"')


class Link:
    """Forwards TCP connections to ``target`` (host, port); ``calls`` are the types of calls that passed, in order."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.calls: list[str] = []
        self.lose_call = ""  # the next call of this type does not arrive, and its connection ends
        self.hold_call = ""  # calls of this type do not arrive, and their connections stay open
        self.lose_answer = ""  # the next call of this type arrives, its answer does not
        self._server = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_up = True
        self.held = threading.Event()
        self._released = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.getsockname()[1]}"

    def cut(self) -> None:
        """End every connection. New ones are accepted."""
        with self._lock:
            for sock in self._open:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def down(self) -> None:
        """End every connection, and every new one, until ``up``."""
        self._is_up = False
        self.cut()

    def up(self) -> None:
        self._is_up = True

    def close(self) -> None:
        self._is_up = False
        self._released.set()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            if not self._is_up:
                client.close()
                continue
            try:
                master = socket.create_connection(self.target, timeout=60)
            except OSError:
                client.close()
                continue
            master.settimeout(None)
            with self._lock:
                self._open |= {client, master}
            ends_quietly = threading.Event()
            threading.Thread(target=self._pump, args=(client, master, True, ends_quietly), daemon=True).start()
            threading.Thread(target=self._pump, args=(master, client, False, ends_quietly), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_calls: bool, answer_lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                if is_calls and not self._pass(data, answer_lost):
                    break
                if not is_calls and answer_lost.is_set():
                    break
                sink.sendall(data)
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open -= {source}
        source.close()

    def _pass(self, data: bytes, answer_lost: threading.Event) -> bool:
        types = [found.decode() for found in CALL.findall(data)]
        if self.hold_call in types:
            self.held.set()
            self._released.wait()
            return False
        if self.lose_call in types:
            self.lose_call = ""
            return False
        if self.lose_answer in types:
            self.lose_answer = ""
            answer_lost.set()
        self.calls += types
        return True
