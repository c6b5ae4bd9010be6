"""Hostile connections: raw sockets that hold HTTP/2 streams and connections, and read nothing."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.nightly import first_of

MIB = 2**20
COUNTS = first_of([600, 3_000])
"""Hostile connections or streams of a test; the larger number nightly."""
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADERS, _SETTINGS, _DATA, _END_HEADERS = 1, 4, 0, 4


def read_memory_mib() -> float:
    """Return the resident memory of this process."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


@contextmanager
def holding(
    port: int, count: int, sent: bytes = b"", context: ssl.SSLContext | None = None
) -> Iterator[list[socket.socket]]:
    """Hold connections that send some bytes and nothing more; with TLS if there is a ``context``."""
    held: list[socket.socket] = []
    try:
        for _ in range(count):
            one = socket.create_connection(("127.0.0.1", port), timeout=60)
            held.append(one if context is None else context.wrap_socket(one, server_hostname="localhost"))
            if sent:
                held[-1].sendall(sent)
        yield held
    finally:
        for one in held:
            one.close()


def encode_streams(path: str, count: int, message: bytes | None = None) -> bytes:
    """Return what a client sends to open streams of a gRPC method: with the beginning of a message, or without one."""
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x", "te": "trailers",
              "content-type": "application/grpc"}  # fmt: skip
    block = b"".join(_literal(name.encode(), value.encode()) for name, value in fields.items())
    streams = (_frame(_HEADERS, _END_HEADERS, stream, block) for stream in range(1, 2 * count, 2))
    data = (_frame(_DATA, 0, stream, message) for stream in range(1, 2 * count, 2)) if message is not None else ()
    return b"".join((_PREFACE, _frame(_SETTINGS, 0, 0, b""), *streams, *data))


def encode_message(message: bytes, size_bytes: int | None = None) -> bytes:
    """Return a message of gRPC, which may say that it is longer."""
    return struct.pack(">BI", 0, len(message) if size_bytes is None else size_bytes) + message


def _literal(name: bytes, value: bytes) -> bytes:
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body
