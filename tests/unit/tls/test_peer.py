"""The identity of a caller is that of its certificate."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from services.tls.authority import IssuedFiles, LocalAuthority
from services.tls.peer import PeerIdentity, identity_of, role_in, spiffe_id_of_role

METHOD = "/test.Service/Get"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> LocalAuthority:
    return LocalAuthority(tmp_path_factory.mktemp("authority"), "test")


def server_credentials(authority: LocalAuthority, asks: bool) -> grpc.ServerCredentials:
    issued = authority.issue_role("api", ["127.0.0.1"])
    pair = (issued.key.read_bytes(), issued.cert.read_bytes())
    return grpc.ssl_server_credentials([pair], authority.ca_file.read_bytes() if asks else None, asks)


def client_credentials(authority: LocalAuthority, issued: IssuedFiles | None) -> grpc.ChannelCredentials:
    pair = (issued.key.read_bytes(), issued.cert.read_bytes()) if issued else (None, None)
    return grpc.ssl_channel_credentials(authority.ca_file.read_bytes(), *pair)


def ask(authority: LocalAuthority, issued: IssuedFiles | None, asks: bool = True) -> PeerIdentity | None:
    """Return the identity that a server with threads sees."""
    seen: list[PeerIdentity | None] = []

    def answer(request: bytes, context: Any) -> bytes:
        seen.append(identity_of(context))
        return request

    server = grpc.server(ThreadPoolExecutor(1))
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {"Get": grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Service", handlers),))
    port = server.add_secure_port("127.0.0.1:0", server_credentials(authority, asks))
    server.start()
    try:
        with grpc.secure_channel(f"127.0.0.1:{port}", client_credentials(authority, issued)) as channel:
            call: Any = channel.unary_unary(METHOD)
            call(b"x", timeout=30)
    finally:
        server.stop(None).wait()
    return seen[0]


def test_the_spiffe_id_is_the_name(authority: LocalAuthority) -> None:
    """A certificate with a SPIFFE id has this name, and its role."""
    identity = ask(authority, authority.issue_role("resmgr", []))

    assert PeerIdentity("spiffe://test/role/resmgr", "resmgr") == identity
    assert ("spiffe://test/role/resmgr", "resmgr", "test") == (identity.name, identity.role, identity.trust_domain)


def test_a_user_has_no_role(authority: LocalAuthority) -> None:
    """A person's certificate names a person."""
    identity = ask(authority, authority.issue_user("ann"))

    assert PeerIdentity("spiffe://test/user/ann", "ann") == identity
    assert "" == identity.role


def test_without_a_spiffe_id_the_common_name_counts(authority: LocalAuthority) -> None:
    """A certificate of an authority without SPIFFE has the name of its subject."""
    identity = ask(authority, authority.issue("bob"))

    assert identity is not None
    assert ("bob", "", "") == (identity.name, identity.role, identity.trust_domain)


def test_a_common_name_is_no_spiffe_id(authority: LocalAuthority) -> None:
    """A name of the form of a SPIFFE id counts only where authorities check it as one."""
    found = {"transport_security_type": [b"ssl"], "x509_common_name": [b"spiffe://test/role/api"]}
    context: Any = type("Context", (), {"auth_context": lambda self: found})()
    assert identity_of(context) is None


def test_a_connection_without_certificate_has_no_identity(authority: LocalAuthority) -> None:
    """A server that asks for no certificate learns no name."""
    assert ask(authority, None, asks=False) is None


def test_a_server_that_asks_refuses_other_certificates(authority: LocalAuthority, tmp_path: Path) -> None:
    """No certificate, that of another authority, and an expired one are no way in."""
    stranger = LocalAuthority(tmp_path, "test").issue_role("api", [])
    for issued in (None, stranger, authority.issue("late", valid=timedelta(seconds=-5))):
        with pytest.raises(grpc.RpcError) as refused:
            ask(authority, issued)
        assert grpc.StatusCode.UNAVAILABLE is refused.value.code()


async def test_the_same_on_an_event_loop(authority: LocalAuthority) -> None:
    """A server with an event loop sees the same identity."""
    seen: list[PeerIdentity | None] = []

    async def answer(request: bytes, context: Any) -> bytes:
        seen.append(identity_of(context))
        return request

    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {"Get": grpc.unary_unary_rpc_method_handler(answer)}
    server = grpc.aio.server(handlers=[grpc.method_handlers_generic_handler("test.Service", handlers)])
    port = server.add_secure_port("127.0.0.1:0", server_credentials(authority, True))
    await server.start()
    credentials = client_credentials(authority, authority.issue_user("ann"))
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
        call: Any = channel.unary_unary(METHOD)
        await call(b"x", timeout=30)
    await server.stop(None)

    assert [PeerIdentity("spiffe://test/user/ann", "ann")] == seen


@pytest.mark.parametrize(
    ("spiffe_id", "role"),
    [
        (spiffe_id_of_role("a.example", "worker"), "worker"),
        ("spiffe://a.example/role", ""),
        ("spiffe://a.example/user/role/worker", ""),
        ("spiffe:///role/worker", ""),
        ("https://a.example/role/worker", ""),
        ("", ""),
    ],
)
def test_a_role_is_named_by_its_path(spiffe_id: str, role: str) -> None:
    """An id of a role has the form TRUST-DOMAIN/role/NAME, and others are of no role."""
    assert role == role_in(spiffe_id)
