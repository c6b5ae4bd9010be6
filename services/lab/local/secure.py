"""TLS of a local cluster: an authority in its data folder, and certificates for its roles, its pods and its user."""

from __future__ import annotations

import contextlib
import getpass
import socket
from collections.abc import Sequence
from pathlib import Path

from peloton.api.channels import PlainChannels
from peloton.client.tls import Tls, channels_of, cluster_file, write_cluster
from peloton.extras import require_extra
from services.lab.local.roles import BRIDGE, ROLES, WEB

TRUST_DOMAIN = "local.peloton"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
SERVER_NAME = "localhost"
POD, KUBERNETES = "pod", "kubernetes"
POD_VARIABLES = ("PELOTON_API_CA_FILE", "PELOTON_API_CERT_FILE", "PELOTON_API_KEY_FILE", "PELOTON_API_SERVER_NAME")


class LocalTls:
    """Certificates in a folder, which are issued again at each start; the authority stays."""

    def __init__(self, folder: Path) -> None:
        """Raises Unimplemented without the extra, and OSError."""
        require_extra("local", "cryptography", "a secure local cluster")
        from services.tls.authority import LocalAuthority

        authority = LocalAuthority(folder.resolve(), TRUST_DOMAIN)
        self._ca_file, self.ca_file = str(authority.ca_file), authority.ca_file
        hosts = [*LOOPBACK, socket.gethostname()]
        self._roles = {role: authority.issue_role(role, hosts) for role in (*ROLES, WEB, BRIDGE)}
        self.kubernetes_file = authority.issue_server(KUBERNETES, hosts)
        pod, user = authority.issue(POD, f"spiffe://{TRUST_DOMAIN}/{POD}"), authority.issue_user(getpass.getuser())
        self.browser_file = authority.write_browser_file(user)
        self._pod = (self._ca_file, str(pod.cert), str(pod.key), SERVER_NAME)
        self.user = Tls(self._ca_file, str(user.cert), str(user.key), SERVER_NAME)

    def environment_of(self, role: str) -> dict[str, str]:
        """Return the settings of a role."""
        issued = self._roles[role]
        return {
            "PELOTON_TLS_CA_FILE": self._ca_file,
            "PELOTON_TLS_CERT_FILE": str(issued.cert),
            "PELOTON_TLS_KEY_FILE": str(issued.key),
        }

    @property
    def pod_environment(self) -> dict[str, str]:
        """Return the variables by which pods call the API."""
        return dict(zip(POD_VARIABLES, self._pod, strict=True))


def channels_to_api(secured: LocalTls | None) -> PlainChannels:
    """Return the maker of channels to the API: with TLS if the cluster has it, else plain text."""
    return channels_of(secured.user if secured else None)


def announce(secured: LocalTls | None, ports: Sequence[int]) -> None:
    """Write the files by which commands and programs find TLS of the API on these ports, or remove old ones."""
    for address in (f"{host}:{port}" for port in ports for host in ("127.0.0.1", "localhost")):
        if secured is not None:
            write_cluster(address, secured.user)
        else:
            with contextlib.suppress(OSError):
                cluster_file(address).unlink(missing_ok=True)
