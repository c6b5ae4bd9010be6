"""A scripted apiserver: a function answers each request with bytes."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from services.hostmgr.kubernetes.apiserver.access import Access, read_access
from services.hostmgr.kubernetes.apiserver.kubeconfig import ClusterEntry, UserEntry
from services.hostmgr.kubernetes.apiserver.wire import ApiServer
from tests.unit.hostmgr.mesos.sockets import Server

CERTIFICATES = Path(__file__).resolve().parents[3] / "certificates"
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Asked(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


Answerer = Callable[[Asked], Iterable[bytes]]
"""Pieces of the answer, each sent on its own. An empty piece closes the connection."""


@contextmanager
def run_scripted(answer: Answerer, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    """Serve every connection by this function, on threads."""

    def serve(sock: socket.socket) -> None:
        connection = tls.wrap_socket(sock, server_side=True) if tls else sock
        with connection:
            for asked in _requests(connection):
                for piece in answer(asked):
                    if not piece:
                        return
                    connection.sendall(piece)

    server = Server(serve)
    try:
        yield server
    finally:
        server.close()


def _requests(connection: socket.socket) -> Iterator[Asked]:
    pending = b""
    while True:
        while b"\r\n\r\n" not in pending:
            if not (data := connection.recv(1 << 20)):
                return
            pending += data
        head, _, pending = pending.partition(b"\r\n\r\n")
        found = _LENGTH.search(head)
        length = int(found[1]) if found else 0
        while len(pending) < length:
            if not (data := connection.recv(1 << 20)):
                return
            pending += data
        body, pending = pending[:length], pending[length:]
        first, *lines = head.decode().split("\r\n")
        method, path, _ = first.split(" ")
        yield Asked(method, path, {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}, body)


@contextmanager
def api_of(server: Server, user: UserEntry | None = None) -> Iterator[ApiServer]:
    api = ApiServer(Access(ClusterEntry(f"http://{server.address}"), user or UserEntry()))
    try:
        yield api
    finally:
        api.close()


def answer(status: int, body: bytes | dict[str, Any] = b"", *headers: str) -> bytes:
    text = body if isinstance(body, bytes) else orjson.dumps(body)
    lines = "".join(f"{header}\r\n" for header in headers)
    return f"HTTP/1.1 {status} Status\r\nContent-Length: {len(text)}\r\n{lines}\r\n".encode() + text


def chunk_answer(status: int = 200) -> bytes:
    """Return the head of a chunked answer."""
    return f"HTTP/1.1 {status} Status\r\nTransfer-Encoding: chunked\r\n\r\n".encode()


def status(code: int, reason: str, message: str = "", **details: Any) -> dict[str, Any]:
    return {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}


def write_kubeconfig(folder: Path, cluster: dict[str, Any], user: dict[str, Any] | None = None) -> Path:
    """Write a kubeconfig with one context."""
    tree = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path = folder / "kubeconfig"
    path.write_bytes(orjson.dumps(tree))
    return path


def access_to(server: str, folder: Path, user: Any = None, **cluster: Any) -> Access:
    return read_access(str(write_kubeconfig(folder, {"server": server, **cluster}, user)))
