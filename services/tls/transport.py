"""TLS of a process, for every port that it listens on and every channel that it opens; or plain text for all of them.

A process has one certificate, which it shows as a server and as a client. Files are read again when they change: by
servers at the next handshake, by channels at the next call.
"""

from __future__ import annotations

import ssl
from typing import Any

from peloton.api.channels import PlainChannels
from services.tls.peer import Context


class Transport(PlainChannels):
    """Plain text: the channels and ports of a process without TLS."""

    has_tls = False
    denies = False
    """True when some certificates are denied."""

    def bind(self, server: Any, address: str) -> int:
        """Add a port for roles to a server of either kind, and return it. Raises RuntimeError when it is in use."""
        return int(server.add_insecure_port(address))

    def bind_for_clients(self, server: Any, address: str) -> int:
        """Add a port that clients reach. Raises RuntimeError when it is in use."""
        return self.bind(server, address)

    def http_context(self) -> ssl.SSLContext | None:
        """Return the context of an HTTP server; None: plain text."""
        return None

    @property
    def http_scheme(self) -> str:
        return "https" if self.has_tls else "http"

    @property
    def proves_roles(self) -> bool:
        """Return whether roles prove to servers who they are."""
        return self.has_tls

    def is_role(self, context: Context) -> bool:
        """Return whether the caller has proven to be a role. Without TLS it cannot."""
        return False

    def find_denied(self, context: Context) -> str:
        """Return the name by which the certificate of the caller is denied; empty: it is not."""
        return ""

    def expires_at(self) -> float | None:
        """Return when the certificate of this process expires, in seconds since the epoch; None without TLS."""
        return None

    def warn_of_expiry(self) -> None:
        """Warn in the log when the certificate expires soon."""


PLAINTEXT = Transport()
