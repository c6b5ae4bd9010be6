"""Clients with TLS: files from arguments, the environment, or the file of a cluster."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from peloton import files
from peloton.api.tls_files import TlsPaths
from peloton.client import JOBMGR, NO_RETRIES, AsyncClient, Client, Tls
from peloton.client.tls import cluster_file, find_tls, write_cluster
from peloton.errors import InvalidArgument
from services.tls.authority import LocalAuthority
from services.tls.peer import identity_of
from services.tls.secured import TlsTransport

METHOD = "/peloton.api.v0.gang.GangService/GetGang"
TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> LocalAuthority:
    return LocalAuthority(tmp_path_factory.mktemp("authority"), "test")


class WhoAmI(grpc.GenericRpcHandler):
    """Answers with the name of the caller and the token of the call."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        def answer(request: bytes, context: Any) -> bytes:
            identity, metadata = identity_of(context), dict(context.invocation_metadata())
            return f"{identity and identity.name} {metadata.get('authorization', '-')}".encode()

        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.fixture(scope="module")
def address(authority: LocalAuthority) -> Iterator[str]:
    """Serve as an api; yield its address."""
    issued = authority.issue_role("api", ["localhost", "127.0.0.1"])
    transport = TlsTransport(TlsPaths(str(authority.ca_file), str(issued.cert), str(issued.key)))
    server = grpc.server(ThreadPoolExecutor(2), handlers=[WhoAmI()])
    port = transport.bind(server, "127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def tls_of(authority: LocalAuthority, name: str = "ann") -> Tls:
    issued = authority.issue_user(name)
    return Tls(str(authority.ca_file), str(issued.cert), str(issued.key))


def ask(client: Client) -> str:
    with client:
        call: Any = client.channel(JOBMGR).unary_unary(METHOD)
        answer: bytes = call(b"", timeout=TIMEOUT_S)
        return answer.decode()


def test_a_client_shows_its_certificate_and_its_token(authority: LocalAuthority, address: str) -> None:
    """Files of the arguments, and headers made for each call."""
    client = Client(address, tls=tls_of(authority), metadata=lambda: [("authorization", "Bearer x")])

    assert "spiffe://test/user/ann Bearer x" == ask(client)


async def test_so_does_a_client_of_an_event_loop(authority: LocalAuthority, address: str) -> None:
    """The same arguments."""
    async with AsyncClient(address, tls=tls_of(authority), metadata=lambda: [("authorization", "Bearer x")]) as client:
        call: Any = client.channel(JOBMGR).unary_unary(METHOD)
        assert b"spiffe://test/user/ann Bearer x" == await call(b"", timeout=TIMEOUT_S)


def test_several_addresses_have_the_name_of_the_first(authority: LocalAuthority, address: str) -> None:
    """gRPC checks no names of several addresses, so the client names one for all."""
    assert "spiffe://test/user/ann -" == ask(Client(f"{address},{address}", tls=tls_of(authority)))
    other = Tls(**{**vars(tls_of(authority)), "server_name": "other.test"})
    for addresses in (address, f"{address},{address}"):
        with pytest.raises(grpc.RpcError):
            ask(Client(addresses, tls=other, retry=NO_RETRIES))


def test_files_come_from_the_environment(
    authority: LocalAuthority, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs need no arguments; a plain address is never called in plain text then."""
    tls = tls_of(authority)
    for name in ("ca_file", "cert_file", "key_file"):
        monkeypatch.setenv(f"PELOTON_API_{name.upper()}", getattr(tls, name))

    assert "spiffe://test/user/ann -" == ask(Client(address))
    assert find_tls(address) == tls


def test_files_come_from_the_file_of_the_cluster(
    authority: LocalAuthority, address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The file that a local cluster writes is found by its address, and read by its user alone."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    tls = tls_of(authority, 'a"nn\\')
    path = write_cluster(address, tls)

    assert path == cluster_file(address)
    assert 0o600 == path.stat().st_mode & 0o777
    assert find_tls(f"{address},elsewhere:1") == tls
    assert find_tls("elsewhere:1") is None
    assert find_tls(address, {}) is None
    assert "spiffe://test/user/" in ask(Client(address))


@pytest.mark.parametrize(
    ("content", "fault"),
    [(b"ca_file = ", "is not TOML"), (b"\xff", "is not TOML"), (b"#" * 70_000, "has more than 65,536")],
)
def test_a_broken_file_of_a_cluster_is_named(
    content: bytes, fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The client falls back to no plain text."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = cluster_file("127.0.0.1:1")
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(InvalidArgument, match=rf"{path}:? .*{fault}"):
        Client("127.0.0.1:1")


def test_a_file_that_is_missing_is_named(authority: LocalAuthority) -> None:
    """The error comes before any call."""
    with pytest.raises(InvalidArgument, match=r"TLS file /nowhere/ca.pem: cannot be read: No such file"):
        Client("127.0.0.1:1", tls=Tls(ca_file="/nowhere/ca.pem"))


def test_an_open_client_follows_its_files(
    authority: LocalAuthority, address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A certificate that is renewed is shown by the next call."""
    monkeypatch.setattr(files, "CHECK_S", 0.0)
    first, second = tls_of(authority, "ann"), tls_of(authority, "bob")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    shutil.copy(first.cert_file, cert), shutil.copy(first.key_file, key)
    with Client(address, tls=Tls(str(authority.ca_file), str(cert), str(key))) as client:
        call: Any = client.channel(JOBMGR).unary_unary(METHOD)
        assert b"spiffe://test/user/ann -" == call(b"", timeout=TIMEOUT_S)
        shutil.copy(second.cert_file, cert), shutil.copy(second.key_file, key)
        assert b"spiffe://test/user/bob -" == call(b"", timeout=TIMEOUT_S)
