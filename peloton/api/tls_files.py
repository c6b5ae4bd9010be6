"""PEM files of TLS that are read again when they change, without a restart. A broken new file keeps the old content."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from peloton.errors import InvalidArgument
from peloton.files import Stamp, read_file, read_stamp

Say = Callable[[str, bool], None]
"""Takes a sentence about changed files, and whether it is of a fault."""

CHECK_PERIOD_S = 1.0
"""Seconds between checks whether files have changed."""
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


class ReloadingFiles:
    """The contents of PEM files, and a number that grows with each change of them. Thread-safe."""

    def __init__(
        self, paths: TlsPaths, say: Say = lambda text, is_fault: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Read the files. Raises InvalidArgument naming the file."""
        self._say = say
        self._paths = paths
        self._clock = clock
        self._lock = threading.Lock()
        self._seen, self._pem = _read(paths)
        self._checked_s = clock()
        self._failed = 0  # checks in a row that found broken files
        self.generation = 1

    def read(self) -> Pem:
        """Return the contents; the files are examined at most once per CHECK_PERIOD_S."""
        with self._lock:
            now_s = self._clock()
            if now_s - self._checked_s >= CHECK_PERIOD_S:
                self._checked_s = now_s
                self._check()
            return self._pem

    def _check(self) -> None:
        try:
            if self._failed == 0 and _stamps(self._paths) == self._seen:
                return
            seen, pem = _read(self._paths)
        except (InvalidArgument, OSError) as error:
            self._failed += 1
            if self._failed == 2:  # a certificate and its key are seldom replaced in the same instant
                self._say(f"TLS files have changed and cannot be used, the old ones stay in use: {error}", True)
            return
        self._failed, self._seen = 0, seen
        if pem != self._pem:
            self._pem = pem
            self.generation += 1
            self._say(f"TLS files have changed and are in use: {', '.join(self._paths.given)}", False)


def _stamps(paths: TlsPaths) -> list[Stamp]:
    """Raises OSError."""
    return [read_stamp(path) for path in paths.given]


def _read(paths: TlsPaths) -> tuple[list[Stamp], Pem]:
    """Read and check the files. Raises InvalidArgument naming the file."""
    try:
        before = _stamps(paths)
    except OSError as error:
        raise InvalidArgument(f"TLS file {error.filename}: cannot be read: {error.strerror}") from None
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
    try:
        is_changing = _stamps(paths) != before
    except OSError as error:
        raise InvalidArgument(f"TLS file {error.filename}: cannot be read: {error.strerror}") from None
    if is_changing:
        raise InvalidArgument(f"TLS files {', '.join(paths.given)}: they change while they are read")
    return before, pem


def _content(path: str) -> bytes:
    """Return the content of a file, and nothing for no path. Raises InvalidArgument."""
    if not path:
        return b""
    try:
        return read_file(path, "TLS file", FILE_BYTES_MAX)
    except OSError as error:
        raise InvalidArgument(f"TLS file {path}: cannot be read: {error.strerror}") from None
