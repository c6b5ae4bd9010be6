"""TLS of a process that has a certificate."""

from __future__ import annotations

import logging
import ssl
import tempfile
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import grpc
import grpc.aio

from peloton.api.channels import Options, TlsChannels
from peloton.api.tls_files import Pem, TlsPaths, read_pem_files
from peloton.errors import InvalidArgument, InvalidSettings
from services.setting_rules import ROLES
from services.tls.certificate import Certificate, read_certificate
from services.tls.denied import DeniedCertificates
from services.tls.peer import Context, identity_of, trust_domain_of
from services.tls.transport import Transport

log = logging.getLogger(__name__)

EXPIRES_SOON_S = 14 * 24 * 3600.0
"""Time before the end of a certificate from which on the log warns of it."""


class TlsTransport(Transport):
    """TLS with certificates of both sides, between roles always, and from clients if ``asks_clients``."""

    has_tls = True

    def __init__(
        self,
        paths: TlsPaths,
        *,
        asks_clients: bool = True,
        server_name: str = "",
        roles: Iterable[str] = (),
        roles_port: int = 0,
        denied_file: str = "",
    ) -> None:
        """``roles``: names of the certificates of roles; empty: those of the own trust domain. ``roles_port``: one more
        port next to that for clients, which asks for certificates; 0: none. ``denied_file`` names certificates that are
        denied. Raises InvalidArgument naming a file, and
        InvalidSettings.
        """
        self._asks_clients, self._roles_port = asks_clients, roles_port
        self._files = read_pem_files(paths, partial(_note, paths))
        self._channels = TlsChannels(self._files, server_name)
        self._roles = frozenset(roles)
        self._denied = DeniedCertificates(denied_file) if denied_file else None
        self.denies = self._denied is not None
        self._own = (self._files.generation, read_certificate(self._files.get().cert))
        self._http: tuple[int, ssl.SSLContext] | None = None
        if not self._roles and not trust_domain_of(self._own[1].spiffe_id):
            raise InvalidSettings(
                f"PELOTON_TLS_ROLES is not set, and the certificate {paths.cert} has no SPIFFE id: want "
                "spiffe://TRUST-DOMAIN/role/ROLE in it, or the names of the certificates of roles in the setting"
            )

    def bind(self, server: Any, address: str) -> int:
        return int(server.add_secure_port(address, self._server_credentials(asks=True)))

    def bind_for_clients(self, server: Any, address: str) -> int:
        if self._roles_port:
            self.bind(server, f"{address.rpartition(':')[0]}:{self._roles_port}")
        return int(server.add_secure_port(address, self._server_credentials(self._asks_clients)))

    def _server_credentials(self, asks: bool) -> grpc.ServerCredentials:
        sent = self._files.generation

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            """Return the new certificate, before each handshake; None: it has not changed."""
            nonlocal sent
            pem, generation = self._files.get(), self._files.generation
            if sent == generation:
                return None
            sent = generation
            return _configuration(pem)

        make: Any = grpc.dynamic_ssl_server_credentials
        return make(_configuration(self._files.get()), fetch, asks)  # type: ignore[no-any-return]

    def open(self, target: str, options: Options) -> grpc.Channel:
        return self._channels.open(target, options)

    def open_async(self, target: str, options: Options, interceptors: Sequence[Any] = ()) -> grpc.aio.Channel:
        return self._channels.open_async(target, options, interceptors)

    def http_context(self) -> ssl.SSLContext:
        """Return a context whose connections get that of the present files, which only its callback can replace."""
        context = self._present_http_context()

        def choose(connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
            connection.context = self._present_http_context()

        context.sni_callback = choose
        if self._denied is not None:
            self._denied.check_in(context)
        return context

    def _present_http_context(self) -> ssl.SSLContext:
        pem, generation = self._files.get(), self._files.generation
        if self._http is None or self._http[0] != generation:
            self._http = (generation, _http_context(pem, self._asks_clients))
        return self._http[1]

    def is_role(self, context: Context) -> bool:
        identity = identity_of(context)
        if identity is None or self.find_denied(context):
            return False
        if self._roles:
            return identity.name in self._roles
        return identity.role in ROLES and identity.trust_domain == trust_domain_of(self._certificate().spiffe_id)

    def find_denied(self, context: Context) -> str:
        if self._denied is None:
            return ""
        return self._denied.find(next(iter(context.auth_context().get("x509_pem_cert", ())), b""))

    def expires_at(self) -> float:
        return self._certificate().expires_at

    def warn_of_expiry(self) -> None:
        certificate = self._certificate()
        left_s = certificate.expires_at - time.time()
        if left_s < EXPIRES_SOON_S:
            name = certificate.spiffe_id or certificate.common_name
            when = f"expires in {left_s / 86_400:.1f} days" if left_s > 0 else "has expired"
            log.warning("the TLS certificate of %s %s: replace its files, no restart is needed", name, when)

    def _certificate(self) -> Certificate:
        pem, generation = self._files.get(), self._files.generation
        if self._own[0] != generation:
            try:
                self._own = (generation, read_certificate(pem.cert))
            except InvalidArgument as error:
                log.warning("names and dates of the TLS certificate: %s", error)
                self._own = (generation, self._own[1])
        return self._own[1]


def _note(paths: TlsPaths, fault: Exception | None) -> None:
    if fault is not None:
        log.error("TLS files have changed and cannot be used, the old ones stay in use: %s", fault)
    else:
        log.info("TLS files have changed and are in use: %s", ", ".join(paths.given))


def _configuration(pem: Pem) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.cert)], pem.ca)


def _http_context(pem: Pem, asks: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_verify_locations(cadata=pem.ca.decode("ascii"))
    context.verify_mode = ssl.CERT_REQUIRED if asks else ssl.CERT_NONE
    with tempfile.NamedTemporaryFile() as file:  # readable by this user alone; ssl takes paths, and files may change
        file.write(pem.cert + b"\n" + pem.key)
        file.flush()
        context.load_cert_chain(file.name)
    return context
