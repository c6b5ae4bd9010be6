"""Connections to Mesos show the certificate that is in the files."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from peloton import files
from peloton.api.mesos_access import TlsFiles, read_access
from services.lab.shared.http.tls import tls_context
from services.tls.authority import LocalAuthority


async def test_a_new_certificate_is_shown_to_the_next_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The context stays, and with it all that has been made of it."""
    monkeypatch.setattr(files, "CHECK_S", 0.0)
    authority = LocalAuthority(tmp_path, "test")
    issued = authority.issue("client", "spiffe://test/role/hostmgr")
    access = read_access("", "", True, TlsFiles(str(authority.ca_file), str(issued.cert), str(issued.key)))
    seen: list[str] = []

    def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        names = writer.get_extra_info("peercert")["subjectAltName"]
        seen.append(names[0][1])
        writer.close()

    context = tls_context(authority.issue_server("server", ["127.0.0.1"]), authority.ca_file)
    server = await asyncio.start_server(note, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    for name in ("hostmgr", "web"):
        authority.issue("client", f"spiffe://test/role/{name}")
        connection = access.connection("127.0.0.1", port, 10)
        await asyncio.to_thread(connection.connect)
        assert b"" == await asyncio.to_thread(connection.sock.recv, 1)
        connection.close()
    server.close()

    assert ["spiffe://test/role/hostmgr", "spiffe://test/role/web"] == seen
    assert isinstance(access.tls, ssl.SSLContext)
