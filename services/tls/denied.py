"""Certificates that are denied although an authority has signed them: those that were lost, before they expire."""

from __future__ import annotations

import ssl
from functools import lru_cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from services.access.files import read_parsed_file
from services.tls.certificate import read_certificate

SERIAL = "serial:"
CERTIFICATES_MAX = 10_000
"""Certificates whose names are remembered."""


def parse_denied(text: str) -> frozenset[str]:
    """Return the names in a file: a SPIFFE id, a common name or ``serial:`` with hexadecimal digits per line, and ``#``
    before comments. Raises ValueError naming the line.
    """
    names = set()
    for number, line in enumerate(text.splitlines(), 1):
        name = line.partition("#")[0].strip()
        if name.startswith(SERIAL):
            digits = name.removeprefix(SERIAL).replace(":", "")
            try:
                name = SERIAL + format(int(digits, 16), "x")
            except ValueError:
                raise ValueError(f"line {number}: want hexadecimal digits after {SERIAL}") from None
        if name:
            names.add(name)
    return frozenset(names)


@lru_cache(maxsize=CERTIFICATES_MAX)
def names_of(pem: bytes) -> tuple[str, ...]:
    """Return the names of a certificate by which it may be denied. Raises InvalidArgument."""
    found = read_certificate(pem)
    serial = SERIAL + format(x509.load_pem_x509_certificate(pem).serial_number, "x")
    return tuple(name for name in (found.spiffe_id, found.common_name, serial) if name)


class DeniedCertificates:
    """The file of denied certificates, read again when it changes. Raises InvalidSettings when it is bad."""

    def __init__(self, path: str) -> None:
        self._file = read_parsed_file(path, "file of denied certificates", parse_denied)

    def find(self, pem: bytes) -> str:
        """Return the name by which a certificate is denied; empty: it is not."""
        denied = self._file.get()
        return next((name for name in names_of(pem) if name in denied), "") if denied and pem else ""

    def check_in(self, context: ssl.SSLContext) -> None:
        """Let handshakes of a context fail for clients whose certificate is denied."""
        find = self.find

        class CheckedSocket(ssl.SSLSocket):
            def do_handshake(self, *arguments: Any) -> None:
                super().do_handshake(*arguments)
                _check(self.getpeercert(binary_form=True))

        class CheckedObject(ssl.SSLObject):
            def do_handshake(self) -> None:
                super().do_handshake()
                _check(self.getpeercert(binary_form=True))

        def _check(der: bytes | None) -> None:
            if der and (name := find(x509.load_der_x509_certificate(der).public_bytes(Encoding.PEM))):
                raise ssl.SSLError(f"the certificate {name} is denied")

        context.sslsocket_class = CheckedSocket
        context.sslobject_class = CheckedObject
