"""Files of pods come from agents of Mesos that ask for credentials and certificates."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.api.mesos_access import OPEN, MesosAccess, TlsFiles, read_access
from peloton.api.tls_files import TlsPaths
from peloton.client.steps import Fetch, fetch
from services.tls.authority import LocalAuthority
from services.tls.secured import TlsTransport


class Agent(http.server.BaseHTTPRequestHandler):
    """Answers with the credentials that it got."""

    def do_GET(self) -> None:
        body = (self.headers.get("Authorization") or "none").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def authority(tmp_path: Path) -> LocalAuthority:
    return LocalAuthority(tmp_path, "test")


@pytest.fixture
def port(authority: LocalAuthority) -> Iterator[int]:
    """Serve as an agent that asks for certificates."""
    issued = authority.issue("agent", "spiffe://test/agent", ["127.0.0.1"])
    transport = TlsTransport(TlsPaths(str(authority.ca_file), str(issued.cert), str(issued.key)))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Agent)
    server.socket = transport.http_context().wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def access_of(authority: LocalAuthority) -> MesosAccess:
    issued, secret = authority.issue("ann"), authority.folder / "secret"
    secret.write_text("s3cret\n")
    files = TlsFiles(str(authority.ca_file), str(issued.cert), str(issued.key))
    return read_access("ann", str(secret), True, files)


def test_an_agent_with_tls_gets_certificate_and_credentials(authority: LocalAuthority, port: int) -> None:
    """The access of a client holds for each file that it reads."""
    found = fetch(Fetch("127.0.0.1", port, "/files"), access_of(authority))

    assert b"Basic YW5uOnMzY3JldA==" == found
    with pytest.raises(OSError, match=r"(?i)remote end closed|reset|bad"):
        fetch(Fetch("127.0.0.1", port, "/files"), OPEN)
