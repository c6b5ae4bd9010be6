"""Credentials and TLS of connections to Mesos."""

from __future__ import annotations

import ssl
import tempfile
from base64 import b64encode
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPSConnection
from typing import Any

from peloton.api.tls_files import PemFiles, TlsPaths, read_pem_files
from peloton.errors import InvalidArgument
from peloton.files import read_authorities, read_file, read_text_file

DENIED = (401, 403)
"""HTTP statuses by which a master denies access."""


@dataclass(frozen=True)
class MesosAccess:
    """Access to the master and its agents."""

    principal: str = ""  # empty: no authentication
    secret: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None  # None: plain text

    @property
    def authorization(self) -> str:
        """Header value of HTTP basic authentication; empty without a principal."""
        if not self.principal:
            return ""
        return "Basic " + b64encode(f"{self.principal}:{self.secret}".encode()).decode()

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": self.authorization} if self.principal else {}

    def connection(self, host: str, port: int, timeout_s: float) -> HTTPConnection:
        """Return a connection that is not open yet."""
        if self.tls is None:
            return HTTPConnection(host, port, timeout=timeout_s)
        return HTTPSConnection(host, port, timeout=timeout_s, context=self.tls)

    @property
    def header(self) -> str:
        """Header as a line of a request; empty without a principal."""
        return f"Authorization: {self.authorization}\r\n" if self.principal else ""

    def denial(self, master: str | None, why: str) -> str:
        """Return the error for an operator, which names the settings to change."""
        if not self.principal:
            return (
                f"Mesos master {master} denies access without credentials ({why}): "
                "set PELOTON_MESOS_PRINCIPAL and PELOTON_MESOS_SECRET_FILE"
            )
        return (
            f"Mesos master {master} denies access to principal {self.principal!r} ({why}): "
            "check PELOTON_MESOS_PRINCIPAL and PELOTON_MESOS_SECRET_FILE"
        )


OPEN = MesosAccess()


@dataclass(frozen=True)
class TlsFiles:
    """Paths of TLS files, empty for none. ``checks_names``: a certificate must name its host."""

    ca: str = ""  # empty: the certificate authorities of this machine
    cert: str = ""
    key: str = ""  # empty: the key is in ``cert``
    checks_names: bool = True


def read_access(principal: str, secret_file: str, tls: bool, files: TlsFiles) -> MesosAccess:
    """Read the credentials and TLS files. Raises InvalidArgument naming the setting."""
    if bool(principal) != bool(secret_file):
        raise InvalidArgument("PELOTON_MESOS_PRINCIPAL and PELOTON_MESOS_SECRET_FILE go together: set both or none")
    if ":" in principal or not principal.isprintable():
        raise InvalidArgument(f"PELOTON_MESOS_PRINCIPAL={principal!r}: no colon and no control characters in it")
    given = {"CA": files.ca, "CERT": files.cert, "KEY": files.key}
    if not tls and any(given.values()):
        name = next(name for name, path in given.items() if path)
        raise InvalidArgument(f"PELOTON_MESOS_TLS_{name}_FILE has no effect without PELOTON_MESOS_TLS=true")
    return MesosAccess(principal, _secret(secret_file) if secret_file else "", _context(files) if tls else None)


class ReloadingContext(ssl.SSLContext):
    """A client's context that shows a new certificate, and trusts new authorities besides the old ones, from the next
    connection on after the files have changed.
    """

    files: PemFiles | None = None
    _seen = 1

    def wrap_socket(self, *arguments: Any, **named: Any) -> ssl.SSLSocket:
        self._renew()
        return super().wrap_socket(*arguments, **named)

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        self._renew()
        return super().wrap_bio(*arguments, **named)

    def _renew(self) -> None:
        if self.files is None:
            return
        pem = self.files.get()
        if self._seen != self.files.generation:
            self._seen = self.files.generation
            with tempfile.NamedTemporaryFile() as file:  # readable by this user alone; ssl takes paths
                file.write(pem.cert + b"\n" + pem.key)
                file.flush()
                self.load_cert_chain(file.name)
            if pem.ca:
                self.load_verify_locations(cadata=pem.ca.decode("ascii"))


def _secret(path: str) -> str:
    """Return the content of the file, without the end of its line."""
    try:
        secret = read_text_file(path, "file").rstrip("\r\n")
    except (OSError, InvalidArgument) as error:
        raise InvalidArgument(f"PELOTON_MESOS_SECRET_FILE={path}: cannot be read: {error}") from None
    if not secret:
        raise InvalidArgument(f"PELOTON_MESOS_SECRET_FILE={path}: the file is empty")
    return secret


def _context(files: TlsFiles) -> ssl.SSLContext:
    if files.key and not files.cert:
        raise InvalidArgument("PELOTON_MESOS_TLS_KEY_FILE has no effect without PELOTON_MESOS_TLS_CERT_FILE")
    try:
        authorities = read_authorities(files.ca) if files.ca else None
        default = ssl.create_default_context(cadata=authorities)
        context = ReloadingContext(ssl.PROTOCOL_TLS_CLIENT)
        context.verify_flags = default.verify_flags
        if authorities:
            context.load_verify_locations(cadata=authorities)
        else:
            context.load_default_certs()
    except (OSError, InvalidArgument) as error:
        raise InvalidArgument(f"PELOTON_MESOS_TLS_CA_FILE={files.ca}: not a CA file: {error}") from None
    context.check_hostname = files.checks_names
    if files.cert:
        try:
            for file in filter(None, (files.cert, files.key)):
                read_file(file, "file")  # OpenSSL reads without a bound
            context.load_cert_chain(files.cert, files.key or None)
            context.files = read_pem_files(TlsPaths(files.ca, files.cert, files.key))
        except (OSError, InvalidArgument) as error:
            key = f", PELOTON_MESOS_TLS_KEY_FILE={files.key}" if files.key else ""
            raise InvalidArgument(
                f"PELOTON_MESOS_TLS_CERT_FILE={files.cert}{key}: not a certificate with its key: {error}"
            ) from None
    return context
