"""An authority, and transports with certificates of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from peloton import files
from peloton.api.tls_files import TlsPaths
from services.tls.authority import IssuedFiles, LocalAuthority
from services.tls.secured import TlsTransport


@pytest.fixture
def authority(tmp_path: Path) -> LocalAuthority:
    return LocalAuthority(tmp_path / "authority", "test")


@pytest.fixture(autouse=True)
def check_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examine files at each use."""
    monkeypatch.setattr(files, "CHECK_S", 0.0)


Transports = Callable[..., TlsTransport]


@pytest.fixture
def transport_of(authority: LocalAuthority) -> Transports:
    """Return the maker of the transport of a certificate."""

    def make(issued: IssuedFiles, asks_clients: bool = True, **more: object) -> TlsTransport:
        paths = TlsPaths(str(authority.ca_file), str(issued.cert), str(issued.key))
        return TlsTransport(paths, asks_clients=asks_clients, **more)  # type: ignore[arg-type]

    return make
