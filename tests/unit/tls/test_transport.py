"""Ports and channels with TLS: certificates of both sides, replaced without a restart."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.errors import InvalidArgument, InvalidSettings
from services.servers.role_surface import roles_only, roles_only_in, roles_only_on_threads
from services.settings import load
from services.tls.authority import IssuedFiles, LocalAuthority
from services.tls.settings import read_transport
from services.tls.transport import PLAINTEXT, Transport
from tests.ports import free_ports
from tests.unit.tls.conftest import Transports

HOSTS = ["127.0.0.1", "localhost"]
PUBLIC, PRIVATE = "/peloton.api.v0.respool.ResourceManager/GetResourcePool", "/peloton.private.resmgr.Admission/Enqueue"
TIMEOUT_S = 30.0


class Echo(grpc.GenericRpcHandler):
    """Answers every call with its request."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request)


@contextmanager
def serving(transport: Transport, *around: Any) -> Iterator[str]:
    """Serve with threads; yield the address."""
    server = grpc.server(ThreadPoolExecutor(2), handlers=[Echo()], interceptors=list(around))
    port = transport.bind_for_clients(server, "127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


@asynccontextmanager
async def serving_async(transport: Transport, *around: Any) -> AsyncIterator[str]:
    async def echo(request: bytes, context: Any) -> bytes:
        return request

    async def count(request: bytes, context: Any) -> AsyncIterator[bytes]:
        for number in range(int(request)):
            yield str(number).encode()
            await asyncio.sleep(0.02)

    class Streams(grpc.GenericRpcHandler):
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
            if handler_call_details.method.endswith("Count"):
                return grpc.unary_stream_rpc_method_handler(count)
            return grpc.unary_unary_rpc_method_handler(echo)

    server = grpc.aio.server(handlers=[Streams()], interceptors=around)
    port = transport.bind(server, "127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


def call(transport: Transport, address: str, method: str = PRIVATE) -> bytes:
    channel = transport.open(address, [])
    try:
        send: Any = channel.unary_unary(method)
        answer: bytes = send(b"x", timeout=TIMEOUT_S)
        return answer
    finally:
        channel.close()


def refusal_of(transport: Transport, address: str, method: str = PRIVATE) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as refused:
        call(transport, address, method)
    error: Any = refused.value
    return error.code(), error.details()


def put(source: IssuedFiles, target: IssuedFiles) -> None:
    """Replace certificate and key, the way an agent that renews them does."""
    for old, new in ((target.key, source.key), (target.cert, source.cert)):
        part = old.with_suffix(".new")
        shutil.copy(new, part)
        part.replace(old)


async def shown_name(address: str, client: IssuedFiles, authority: LocalAuthority, alpn: str = "h2") -> str:
    """Return the common name that a server shows to a new connection."""
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    context.load_cert_chain(client.cert, client.key)
    context.set_alpn_protocols([alpn])
    host, _, port = address.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    subject = writer.get_extra_info("peercert")["subject"]
    writer.transport.abort()
    return str(subject[0][0][1])


def test_roles_call_each_other_by_certificates(authority: LocalAuthority, transport_of: Transports) -> None:
    """Server and client show certificates of one authority; another authority's name is worth nothing."""
    server = transport_of(authority.issue_role("resmgr", HOSTS))
    stranger = LocalAuthority(authority.folder / "other", "test")
    with serving(server) as address:
        assert b"x" == call(transport_of(authority.issue_role("worker", [])), address)
        other = transport_of(stranger.issue_role("worker", []))  # which trusts this authority, and is not trusted
        assert grpc.StatusCode.UNAVAILABLE is refusal_of(other, address)[0]
        assert grpc.StatusCode.UNAVAILABLE is refusal_of(PLAINTEXT, address)[0]


def test_a_server_of_another_name_is_refused(authority: LocalAuthority, transport_of: Transports) -> None:
    """A client checks the name of the server, which a setting can fix for all roles."""
    server, client = transport_of(authority.issue_role("resmgr", ["roles.test"])), authority.issue_role("worker", [])
    with serving(server) as address:
        assert grpc.StatusCode.UNAVAILABLE is refusal_of(transport_of(client), address)[0]
        assert b"x" == call(transport_of(client, server_name="roles.test"), address)


def test_private_calls_are_for_roles(authority: LocalAuthority, transport_of: Transports) -> None:
    """A user's certificate of the same authority, and a role of another trust domain, are no roles."""
    server = transport_of(authority.issue_role("hostmgr", HOSTS))
    role, user = transport_of(authority.issue_role("worker", [])), authority.issue_user("ann")
    alien = authority.issue("alien", "spiffe://elsewhere/role/worker")
    unknown = authority.issue("odd", "spiffe://test/role/intruder")
    named = transport_of(user, roles=["any"])
    with serving(server, *roles_only_on_threads(server, direct_calls=False)) as address:
        assert [b"x"] * 2 == [call(role, address), call(role, address, PUBLIC)]
        for issued in (user, alien, unknown):
            code, text = refusal_of(transport_of(issued, roles=["any"]), address)
            assert grpc.StatusCode.PERMISSION_DENIED is code
            assert text.startswith("service peloton.private.resmgr.Admission is for roles, whose certificates")
        assert grpc.StatusCode.PERMISSION_DENIED is refusal_of(named, address, PUBLIC)[0]
    with serving(server, *roles_only_on_threads(server, direct_calls=True)) as address:
        assert b"x" == call(named, address, PUBLIC)
        assert grpc.StatusCode.PERMISSION_DENIED is refusal_of(named, address)[0]


async def test_private_calls_on_an_event_loop_are_for_roles(
    authority: LocalAuthority, transport_of: Transports
) -> None:
    """The resource manager, and the api for its private services, do the same."""
    server = transport_of(authority.issue_role("resmgr", HOSTS))
    role, user = transport_of(authority.issue_role("api", [])), transport_of(authority.issue_user("ann"), roles=["any"])
    async with serving_async(server, *roles_only(server, direct_calls=False)) as address:
        assert b"x" == await asyncio.to_thread(call, role, address, PUBLIC)
        refused = await asyncio.to_thread(refusal_of, user, address, PUBLIC)
        assert grpc.StatusCode.PERMISSION_DENIED is refused[0]
    async with serving_async(server, *roles_only_in(["peloton.private.resmgr.Admission"], server)) as address:
        assert b"x" == await asyncio.to_thread(call, user, address, PUBLIC)
        refused = await asyncio.to_thread(refusal_of, user, address)
        assert grpc.StatusCode.PERMISSION_DENIED is refused[0]


def test_names_of_roles_can_be_given(authority: LocalAuthority, transport_of: Transports) -> None:
    """An authority without SPIFFE names roles by the subjects of certificates."""
    issued = authority.issue("resmgr.example.com", hosts=HOSTS)
    server = transport_of(issued, roles=["worker.example.com"])
    worker, user = (
        transport_of(authority.issue(name), roles=["any"]) for name in ("worker.example.com", "ann@example.com")
    )
    with serving(server, *roles_only_on_threads(server, direct_calls=False)) as address:
        assert b"x" == call(worker, address)
        assert grpc.StatusCode.PERMISSION_DENIED is refusal_of(user, address)[0]
    with pytest.raises(InvalidSettings, match=r"PELOTON_TLS_ROLES is not set, and the certificate .* has no SPIFFE id"):
        transport_of(issued)


def test_a_port_without_certificates_of_clients(authority: LocalAuthority, transport_of: Transports) -> None:
    """Clients that have tokens need the authority alone; such a connection is no role's."""
    issued, roles_port = authority.issue_role("api", HOSTS), free_ports(1)[0]
    server = transport_of(issued, asks_clients=False, roles_port=roles_port)
    credentials = grpc.ssl_channel_credentials(authority.ca_file.read_bytes())
    with (
        serving(server, *roles_only_on_threads(server, direct_calls=True)) as address,
        grpc.secure_channel(address, credentials) as channel,
    ):
        send: Any = channel.unary_unary(PUBLIC)
        assert b"x" == send(b"x", timeout=TIMEOUT_S)
        refused: Any = channel.unary_unary(PRIVATE)
        with pytest.raises(grpc.RpcError, match="PELOTON_ROLES_PORT"):
            refused(b"x", timeout=TIMEOUT_S)
        assert b"x" == call(transport_of(issued), f"127.0.0.1:{roles_port}")


async def test_a_renewed_certificate_is_shown(authority: LocalAuthority, transport_of: Transports) -> None:
    """New connections get the new certificate of the server, and a stream from before goes its way."""
    issued, client = authority.issue_role("resmgr", HOSTS), authority.issue_role("api", [])
    server, caller = transport_of(issued), transport_of(client)
    async with serving_async(server) as address:
        channel = caller.open_async(address, [])
        count: Any = channel.unary_stream("/test/Count")
        stream = count(b"20")
        assert b"0" == await anext(aiter(stream))
        put(authority.issue("renewed", "spiffe://test/role/resmgr", HOSTS), issued)
        put(authority.issue("renewed-client", "spiffe://test/role/api"), client)

        assert "renewed" == await shown_name(address, client, authority)
        send: Any = channel.unary_unary(PRIVATE)
        assert b"x" == await send(b"x", timeout=TIMEOUT_S)
        assert 19 == len([answer async for answer in stream])
        await channel.close()


def test_a_channel_follows_its_files(authority: LocalAuthority, transport_of: Transports) -> None:
    """A client whose certificate was renewed calls with the new one, on the same channel and stub."""
    server, client = transport_of(authority.issue_role("resmgr", HOSTS)), authority.issue_user("ann")
    with serving(server, *roles_only_on_threads(server, direct_calls=False)) as address:
        channel = transport_of(client, roles=["any"]).open(address, [])
        send: Any = channel.unary_unary(PRIVATE)
        with pytest.raises(grpc.RpcError, match="is for roles"):
            send(b"x", timeout=TIMEOUT_S)
        put(authority.issue_role("worker", []), client)
        assert b"x" == send(b"x", timeout=TIMEOUT_S)
        channel.close()


async def test_an_authority_that_is_removed_is_trusted_no_more(
    authority: LocalAuthority, transport_of: Transports, tmp_path: Path
) -> None:
    """A new file of authorities holds for the next connection to either kind of server."""
    new = LocalAuthority(tmp_path / "new", "test")
    before, after = authority.issue_role("api", []), new.issue_role("api", [])
    issued = authority.issue_role("resmgr", HOSTS)
    server = transport_of(issued)
    async with serving_async(server) as address, serving_http(server) as http_address:
        assert b"x" == await asyncio.to_thread(call, transport_of(before), address)
        assert b"hello" == await fetch(http_address, before, authority)
        put(new.issue_role("resmgr", HOSTS), issued)
        shutil.copy(new.ca_file, authority.ca_file)

        assert b"x" == await asyncio.to_thread(call, transport_of(after), address)
        assert b"hello" == await fetch(http_address, after, authority)
        refused = await asyncio.to_thread(refusal_of, transport_of(before), address)
        assert grpc.StatusCode.UNAVAILABLE is refused[0]
        with pytest.raises(OSError, match=r"(?i)ssl|reset|eof|unknown"):
            await fetch(http_address, before, authority)


@asynccontextmanager
async def serving_http(transport: Transport) -> AsyncIterator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=transport.http_context())
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


async def fetch(address: str, client: IssuedFiles | None, authority: LocalAuthority) -> bytes:
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    if client is not None:
        context.load_cert_chain(client.cert, client.key)
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        answer = await reader.read()
        if not answer:
            raise ConnectionResetError("eof")
        return answer
    finally:
        writer.transport.abort()


async def test_pages_ask_for_certificates_when_clients_must(
    authority: LocalAuthority, transport_of: Transports
) -> None:
    """An HTTP server refuses a client without a certificate, unless none is required."""
    issued, client = authority.issue_role("web", HOSTS), authority.issue_user("ann")
    async with serving_http(transport_of(issued)) as address:
        assert b"hello" == await fetch(address, client, authority)
        with pytest.raises(OSError, match=r"(?i)certificate required|eof|reset"):
            await fetch(address, None, authority)
    async with serving_http(transport_of(issued, asks_clients=False)) as address:
        assert b"hello" == await fetch(address, None, authority)


async def test_a_broken_file_keeps_the_old_certificate(
    authority: LocalAuthority, transport_of: Transports, caplog: pytest.LogCaptureFixture
) -> None:
    """A key of another certificate changes nothing; one error says so, and the next good pair is used."""
    issued, client = authority.issue_role("resmgr", HOSTS), authority.issue_role("api", [])
    server = transport_of(issued)
    async with serving_async(server) as address:
        shutil.copy(authority.issue("other").key, issued.key)
        for _ in range(3):
            assert "resmgr" == await shown_name(address, client, authority)
        errors = [one.message for one in caplog.records if one.levelname == "ERROR"]
        assert 1 == len(errors)
        assert "cannot be used, the old ones stay in use: TLS files" in errors[0]
        assert str(issued.key) in errors[0]

        put(authority.issue("renewed", "spiffe://test/role/resmgr", HOSTS), issued)
        assert "renewed" == await shown_name(address, client, authority)


def test_the_end_of_a_certificate_is_known(
    authority: LocalAuthority, transport_of: Transports, caplog: pytest.LogCaptureFixture
) -> None:
    """The end is a number, and soon a warning with the name."""
    issued = authority.issue_role("api", HOSTS, valid=timedelta(days=3))
    transport = transport_of(issued)
    transport.warn_of_expiry()
    assert ["the TLS certificate of spiffe://test/role/api expires in 3.0 days: replace its files, no restart is "
            "needed"] == caplog.messages  # fmt: skip

    caplog.clear()
    before = transport.expires_at()
    put(authority.issue("renewed", "spiffe://test/role/api", HOSTS), issued)
    assert transport.expires_at() > before + 300 * 86_400
    transport.warn_of_expiry()
    assert [] == [one.message for one in caplog.records if one.levelname == "WARNING"]
    assert PLAINTEXT.expires_at() is None


def test_settings_make_the_transport(authority: LocalAuthority) -> None:
    """All without a certificate is plain text; with one, its files are read at once."""
    issued = authority.issue_role("api", HOSTS)
    given = {"PELOTON_TLS_CERT_FILE": str(issued.cert), "PELOTON_TLS_CA_FILE": str(authority.ca_file)}
    assert read_transport(load({})) is PLAINTEXT
    settings = load({**given, "PELOTON_TLS_KEY_FILE": str(issued.key), "PELOTON_TLS_CLIENTS": "none"})
    assert read_transport(settings).has_tls
    with pytest.raises(InvalidArgument, match="no certificate with its key"):
        read_transport(load(given))
    with pytest.raises(InvalidArgument, match=r"/nowhere/key.pem: cannot be read: No such file"):
        read_transport(load({**given, "PELOTON_TLS_KEY_FILE": "/nowhere/key.pem"}))
    with pytest.raises(InvalidSettings, match="both, or none of them for plain text"):
        load({"PELOTON_TLS_CERT_FILE": str(issued.cert)})


def test_keys_of_the_authority_are_private(authority: LocalAuthority) -> None:
    """No other user can read a key, and the authority is the same when it is opened again."""
    issued = authority.issue_user("ann")
    again = LocalAuthority(authority.folder, "test")

    assert [0o600, 0o700] == [os.stat(path).st_mode & 0o777 for path in (issued.key, authority.folder)]
    assert authority.ca_file.read_bytes() == again.ca_file.read_bytes()
