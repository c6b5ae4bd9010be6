"""Certificates that are denied before they expire."""

from __future__ import annotations

import asyncio
import http.client
import ssl
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509

from peloton import files
from peloton.api.channels import PlainChannels
from peloton.client.tls import Tls, channels_of
from peloton.errors import InvalidSettings
from services.hostmgr.latency_endpoint import LatencyEndpoint
from services.hostmgr.latency_reports import LatencyReports
from services.servers.role_surface import roles_only, roles_only_on_threads
from services.tls.authority import IssuedFiles, LocalAuthority
from services.tls.denied import parse_denied
from tests.unit.test_http_floods import serving as serving_http
from tests.unit.tls.conftest import Transports
from tests.unit.tls.test_transport import HOSTS, PUBLIC, call, refusal_of, serving, serving_async


@pytest.fixture(autouse=True)
def read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CHECK_S", 0.0)


def serial_of(issued: IssuedFiles) -> str:
    return f"serial:{x509.load_pem_x509_certificate(issued.cert.read_bytes()).serial_number:X}"


def test_a_file_names_certificates() -> None:
    """Comments and colons in serials are ignored; a bad serial is named by its line."""
    text = "# lost\nspiffe://test/user/ann  # on a train\n\nserial:0A:1B\nbob\n"
    assert {"spiffe://test/user/ann", "serial:a1b", "bob"} == parse_denied(text)
    with pytest.raises(ValueError, match="line 2: want hexadecimal digits after serial:"):
        parse_denied("a\nserial:xyz")


def test_a_bad_file_is_refused_at_the_start(
    authority: LocalAuthority, transport_of: Transports, tmp_path: Path
) -> None:
    """A file that is missing would deny nothing."""
    with pytest.raises(InvalidSettings, match=r"file of denied certificates .*missing: the file cannot be read"):
        transport_of(authority.issue_role("api", HOSTS), denied_file=str(tmp_path / "missing"))


@pytest.mark.parametrize("method", [PUBLIC, "/peloton.private.test/Echo"])
def test_calls_of_a_denied_certificate_are_refused(
    authority: LocalAuthority, transport_of: Transports, tmp_path: Path, method: str
) -> None:
    """A role and a user are denied by name or serial from the next call on; others are served."""
    denied = tmp_path / "denied"
    denied.write_text("")
    server = transport_of(authority.issue_role("resmgr", HOSTS), denied_file=str(denied))
    worker, web = authority.issue_role("worker", []), authority.issue_role("web", [])
    lost, kept = transport_of(worker), transport_of(web)
    with serving(server, *roles_only_on_threads(server, direct_calls=True)) as address:
        assert b"x" == call(lost, address, method)
        for line in ("spiffe://test/role/worker", serial_of(worker)):
            denied.write_text(f"{line}  # lost\n")
            code, text = refusal_of(lost, address, method)
            assert grpc.StatusCode.UNAUTHENTICATED is code
            assert text.endswith("is denied by PELOTON_TLS_DENIED_FILE")
            assert b"x" == call(kept, address, method)
        denied.write_text("")
        assert b"x" == call(lost, address, method)


async def test_a_server_with_an_event_loop_refuses_it_too(
    authority: LocalAuthority, transport_of: Transports, tmp_path: Path
) -> None:
    """The api and the resource manager refuse a public call of a denied certificate."""
    (tmp_path / "denied").write_text("spiffe://test/user/ann\n")
    server = transport_of(authority.issue_role("api", HOSTS), denied_file=str(tmp_path / "denied"))
    ann, bob = authority.issue_user("ann"), authority.issue_user("bob")
    async with serving_async(server, *roles_only(server, direct_calls=True)) as address:
        role = authority.issue_role("worker", [])
        users = [channels_of(Tls(str(authority.ca_file), str(one.cert), str(one.key))) for one in (ann, bob)]
        clients = [transport_of(role), *users]
        found = [await asyncio.to_thread(code_of, client, address) for client in clients]
    assert ["OK", "UNAUTHENTICATED", "OK"] == found


def code_of(channels: PlainChannels, address: str) -> str:
    channel = channels.open(address, [])
    send: Any = channel.unary_unary(PUBLIC)
    try:
        send(b"x", timeout=10)
    except grpc.RpcError as error:
        return str(error.code().name)
    finally:
        channel.close()
    return "OK"


def ask(port: int, context: ssl.SSLContext, path: str) -> int:
    connection = http.client.HTTPSConnection("localhost", port, timeout=10, context=context)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def context_of(authority: LocalAuthority, issued: IssuedFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    context.load_cert_chain(issued.cert, issued.key)
    return context


async def test_handshakes_of_a_denied_certificate_fail(
    authority: LocalAuthority, transport_of: Transports, tmp_path: Path
) -> None:
    """Pages and the endpoints with threads refuse it, and serve others."""
    denied, ann, bob = tmp_path / "denied", authority.issue_user("ann"), authority.issue_user("bob")
    denied.write_text("spiffe://test/user/ann\n")
    server = transport_of(authority.issue_role("web", [*HOSTS, "localhost"]), denied_file=str(denied))
    endpoint = LatencyEndpoint("127.0.0.1", 0, LatencyReports(lambda: 0.0), context=server.http_context())
    try:
        async with serving_http(server) as port:
            for served, path, status in ((port, "/none", 404), (endpoint.port, "/none", 501)):
                assert status == await asyncio.to_thread(ask, served, context_of(authority, bob), path)
                with pytest.raises(OSError, match=r"(?i)reset|closed|eof|disconnected|certificate"):
                    await asyncio.to_thread(ask, served, context_of(authority, ann), path)
    finally:
        endpoint.stop()
