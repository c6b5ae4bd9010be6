"""Reports of latencies over HTTPS, from clients with certificates."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from peloton.api.tls_files import TlsPaths
from peloton.model.ids import JobId
from services.hostmgr.latency_endpoint import LatencyEndpoint
from services.hostmgr.latency_reports import LatencyReports
from services.tls.authority import LocalAuthority
from services.tls.secured import TlsTransport

JOB = JobId("91b1b8e5-2ba8-41e7-bc23-0242ac11000d")
BODY = json.dumps({"pod": f"{JOB}-0-1", "p50_ms": 4, "p95_ms": 20.5, "p99_ms": 80, "requests": 7}).encode()
REQUEST = f"POST /v1/latencies HTTP/1.1\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY
LATE_S = 0.2


@pytest.fixture
def authority(tmp_path: Path) -> LocalAuthority:
    return LocalAuthority(tmp_path, "test")


@pytest.fixture
def endpoint(authority: LocalAuthority) -> Iterator[LatencyEndpoint]:
    issued = authority.issue_role("hostmgr", ["127.0.0.1"])
    transport = TlsTransport(TlsPaths(str(authority.ca_file), str(issued.cert), str(issued.key)))
    reports = LatencyReports(lambda: 0.0, 100)
    endpoint = LatencyEndpoint("127.0.0.1", 0, reports, request_s_max=LATE_S, context=transport.http_context())
    yield endpoint
    endpoint.stop()


def post(endpoint: LatencyEndpoint, authority: LocalAuthority, has_certificate: bool) -> bytes:
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    if has_certificate:
        issued = authority.issue("pod")
        context.load_cert_chain(issued.cert, issued.key)
    with (
        socket.create_connection(("127.0.0.1", endpoint.port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        connection.sendall(REQUEST)
        answer = connection.recv(1 << 16)
        if not answer:
            raise ConnectionResetError("eof")
        return answer


def test_a_report_of_a_pod_with_a_certificate_is_taken(endpoint: LatencyEndpoint, authority: LocalAuthority) -> None:
    """The endpoint asks for a certificate of its authority."""
    assert post(endpoint, authority, True).startswith(b"HTTP/1.0 200 OK")
    with pytest.raises(OSError, match=r"(?i)certificate required|eof|reset"):
        post(endpoint, authority, False)


def test_other_connections_do_not_keep_it_busy(endpoint: LatencyEndpoint, authority: LocalAuthority) -> None:
    """A client that sends nothing, and one that speaks plain text, lose their connections."""
    silent = [socket.create_connection(("127.0.0.1", endpoint.port), timeout=30) for _ in range(2)]
    silent[1].sendall(REQUEST)
    for connection in silent:
        with suppress(ConnectionError):
            while connection.recv(1 << 16):
                pass
        connection.close()

    assert post(endpoint, authority, True).startswith(b"HTTP/1.0 200 OK")
