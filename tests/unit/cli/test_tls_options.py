"""Commands against an API with TLS: files by options, and errors that say what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from peloton.api.tls_files import TlsPaths
from services.tls.authority import LocalAuthority
from services.tls.secured import TlsTransport
from tests.unit.cli.conftest import Run


@pytest.fixture
def authority(tmp_path: Path) -> LocalAuthority:
    return LocalAuthority(tmp_path / "authority", "test")


@pytest.fixture
def address(authority: LocalAuthority) -> Iterator[str]:
    """Serve an api without services."""
    issued = authority.issue_role("api", ["127.0.0.1"])
    server = grpc.server(ThreadPoolExecutor(1))
    port = TlsTransport(TlsPaths(str(authority.ca_file), str(issued.cert), str(issued.key))).bind(server, "127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def test_files_are_options(authority: LocalAuthority, address: str, run: Run) -> None:
    """A call with authority and certificate arrives."""
    ann = authority.issue_user("ann")
    result = run(f"-a {address} --ca-file {authority.ca_file} --cert-file {ann.cert} --key-file {ann.key} job list")

    assert result.stderr.startswith(f"{address} does not offer this call (UNIMPLEMENTED)")


def test_errors_say_what_is_missing(authority: LocalAuthority, address: str, run: Run, tmp_path: Path) -> None:
    """A missing certificate, another authority, and a file that is not there are one line each."""
    for options in (f"--ca-file {authority.ca_file}", ""):
        assert run(f"-a {address} {options} job list").stderr == (
            f"Peloton at {address} closes the connection: TLS with a certificate may be needed "
            "(--ca-file, --cert-file and --key-file)\n"
        )
    other = LocalAuthority(tmp_path / "other", "test")
    assert run(f"-a {address} --ca-file {other.ca_file} job list").stderr.startswith(
        f"no TLS with Peloton at {address}: CERTIFICATE_VERIFY_FAILED"
    )
    assert run(f"-a {address} --ca-file /nowhere.pem job list").stderr == (
        "TLS file /nowhere.pem: cannot be read: No such file or directory\n"
    )
