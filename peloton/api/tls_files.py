"""PEM files of TLS that are read again when they change, without a restart."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from peloton.errors import InvalidArgument
from peloton.files import Note, ReloadedFiles, read_file

FILE_BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class TlsPaths:
    """Paths of PEM files; empty: none."""

    ca: str = ""
    cert: str = ""
    key: str = ""  # empty: the key is in ``cert``

    @property
    def given(self) -> list[str]:
        return [path for path in (self.ca, self.cert, self.key) if path]


class Pem(NamedTuple):
    """Contents of the files, which belong together; empty: none."""

    ca: bytes
    cert: bytes
    key: bytes


PemFiles: TypeAlias = ReloadedFiles[Pem]


def read_pem_files(paths: TlsPaths, note: Note = lambda fault: None) -> PemFiles:
    """Return the contents of PEM files, which follow the files. Raises InvalidArgument naming the file."""
    return ReloadedFiles(paths.given, lambda: _read(paths), note)


def _read(paths: TlsPaths) -> Pem:
    """Read and check the files. Raises InvalidArgument naming the file."""
    pem = Pem(_content(paths.ca), _content(paths.cert), _content(paths.key or paths.cert))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if paths.ca:
        try:
            context.load_verify_locations(cadata=pem.ca.decode("ascii"))
        except (ValueError, ssl.SSLError) as error:
            raise InvalidArgument(f"TLS file {paths.ca}: no certificates of authorities: {error}") from None
    if paths.cert:
        try:
            context.load_cert_chain(paths.cert, paths.key or None, password=lambda: b"")
        except (OSError, ValueError) as error:
            names = f"{paths.cert} and {paths.key}" if paths.key else paths.cert
            raise InvalidArgument(f"TLS files {names}: no certificate with its key, unencrypted: {error}") from None
    return pem


def _content(path: str) -> bytes:
    """Return the content of a file, and nothing for no path. Raises InvalidArgument."""
    if not path:
        return b""
    try:
        return read_file(path, "TLS file", FILE_BYTES_MAX)
    except OSError as error:
        raise InvalidArgument(f"TLS file {path}: cannot be read: {error.strerror}") from None
