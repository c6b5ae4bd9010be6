"""The address of an apiserver, TLS to it, and credentials."""

from __future__ import annotations

import os
import ssl
import tempfile
import threading
from collections.abc import Mapping
from urllib.parse import urlsplit

from peloton.errors import InvalidArgument
from peloton.files import read_authorities, read_file, read_stamp
from services.hostmgr.kubernetes.apiserver.credentials import Credential, Plugin, TokenFile, source_of
from services.hostmgr.kubernetes.apiserver.kubeconfig import ClusterEntry, UserEntry, fault_of_address, read_kubeconfig
from services.hostmgr.kubernetes.settings import IN_CLUSTER

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Folder in which a pod with a service account has its token and the authority of the apiserver's certificate."""
_PORTS = {"http": 80, "https": 443}


class Access:
    """Address, TLS and credentials of an apiserver. Thread-safe."""

    def __init__(self, cluster: ClusterEntry, user: UserEntry) -> None:
        url = urlsplit(cluster.server)
        self.server = cluster.server
        self.host = url.hostname or ""
        self.port = url.port or _PORTS[url.scheme]
        self.path = url.path.rstrip("/")  # prefix of each request's path
        self.host_header = url.netloc
        self.server_name = cluster.server_name or self.host  # expected in the certificate
        self._is_tls = url.scheme == "https"
        self._cluster = cluster
        self._user = user
        self._source = source_of(user, cluster)
        self._lock = threading.Lock()
        self._context: ssl.SSLContext | None = None
        self._made_from: tuple[object, ...] = ()

    def authorization(self) -> str:
        """Return the value of the header, or empty. Raises OSError."""
        return self._source.credential(renew=False).authorization

    def renew(self, authorization: str, context: ssl.SSLContext | None) -> bool:
        """Renew the credentials that the apiserver rejected; return whether there are others now. Raises OSError."""
        if self.authorization() != authorization or self.tls() is not context:
            return True
        return self._source.credential(renew=True).authorization != authorization or self.tls() is not context

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context for the next connection, built again when a file has changed; None for plain text.
        Raises OSError."""
        if not self._is_tls:
            return None
        written = self._source.credential(renew=False)
        with self._lock:
            made_from = (*map(read_stamp, self._files()), written.certificate)
            if self._context is None or made_from != self._made_from:
                self._context = self._make(written)
                self._made_from = made_from
            return self._context

    def check(self) -> None:
        """Raise OSError naming the field for unusable files, and for a missing plugin."""
        if isinstance(self._source, Plugin):
            if fault := self._source.fault:
                raise OSError(fault)
        elif isinstance(self._source, TokenFile):
            try:
                self.authorization()
            except OSError as error:
                raise OSError(f"tokenFile: {error}") from None
        if self._is_tls:
            self._make(Credential())

    def _files(self) -> list[str]:
        """Return the files that no embedded data replaces."""
        cluster, user = self._cluster, self._user
        pairs = (
            (cluster.ca_file, cluster.ca_data),
            (user.certificate_file, user.certificate_data),
            (user.key_file, user.key_data),
        )
        return [file for file, data in pairs if file and not data]

    def _make(self, written: Credential) -> ssl.SSLContext:
        cluster = self._cluster
        ca_file = "" if cluster.ca_data else cluster.ca_file
        try:
            authorities = read_authorities(ca_file) if ca_file else cluster.ca_data.decode("ascii")
            context = ssl.create_default_context(cadata=authorities or None)
        except (OSError, ValueError, InvalidArgument) as error:
            where = f"certificate-authority: {ca_file}" if ca_file else "certificate-authority-data"
            raise OSError(f"{where}: not the certificate of an authority: {error}") from None
        # Authorities of clusters often lack extensions that only Python 3.13 requires.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not cluster.checks_certificate:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        try:
            if pem := written.certificate or self._certificate():
                _load(context, pem)
        except (OSError, ValueError, InvalidArgument) as error:
            raise OSError(f"client-certificate, client-key: not a certificate with its key: {error}") from None
        return context

    def _certificate(self) -> bytes:
        """Return the certificate of the user with its key. Raises OSError."""
        user = self._user
        if not (user.certificate_file or user.certificate_data):
            return b""
        certificate = user.certificate_data or read_file(user.certificate_file, "client-certificate")
        return certificate + b"\n" + (user.key_data or read_file(user.key_file, "client-key"))


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """Load a certificate; Python does so from files alone. An empty password prevents OpenSSL's prompt on the
    terminal."""
    with tempfile.NamedTemporaryFile(prefix="peloton-", suffix=".pem") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name, password="")


def read_access(
    kubernetes: str,
    context: str = "",
    environment: Mapping[str, str] = os.environ,
    service_account: str = SERVICE_ACCOUNT,
) -> Access:
    """Return the access for ``kubernetes``, the path of a kubeconfig or ``in-cluster``. Raises InvalidArgument naming
    file, field and rule."""
    if kubernetes == IN_CLUSTER:
        access = _in_cluster(context, environment, service_account)
    else:
        access = Access(*read_kubeconfig(kubernetes, context))
    try:
        access.check()
    except OSError as error:
        raise InvalidArgument(f"{kubernetes}: {error}") from None
    return access


def _in_cluster(context: str, environment: Mapping[str, str], service_account: str) -> Access:
    if context:
        raise InvalidArgument(f"PELOTON_KUBERNETES_CONTEXT={context!r}: contexts are of a kubeconfig, not in-cluster")
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise InvalidArgument(
            "in-cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is no pod of a cluster"
        )
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    if fault := fault_of_address(server):
        raise InvalidArgument(f"in-cluster: KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT: {fault}")
    user = UserEntry("service account", token_file=f"{service_account}/token")
    return Access(ClusterEntry(server, ca_file=f"{service_account}/ca.crt"), user)
