"""A server whose process is frozen or starved when a client connects."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def late_server(address: str, seconds: float) -> Iterator[str]:
    """The address whose first connection is accepted at once, as the kernel does, and is silent for ``seconds``; then
    the server at ``address`` answers.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    ends: list[socket.socket] = [listener]
    is_over = threading.Event()

    def serve() -> None:
        with suppress(OSError):  # the end of the test closes them all
            near, _ = listener.accept()
            ends.append(near)
            is_over.wait(seconds)
            host, _, port = address.rpartition(":")
            far = socket.create_connection((host, int(port)))
            ends.append(far)
            back = threading.Thread(target=copy, args=(far, near))
            back.start()
            copy(near, far)
            back.join()

    server = threading.Thread(target=serve)
    server.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        is_over.set()
        for each in ends:
            with suppress(OSError):  # not connected any more
                each.shutdown(socket.SHUT_RDWR)
        server.join()
        for each in ends:
            each.close()


def copy(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until one of the sockets is closed; then close the other end."""
    with suppress(OSError):
        while chunk := source.recv(65_536):
            target.sendall(chunk)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
