"""HTTP basic authentication like Mesos's masters and agents, and certificates."""

from __future__ import annotations

import binascii
import hmac
import json
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path

from services.lab.shared.bounded_file import read_bounded
from services.lab.shared.http.server import TEXT, Request, Response

SCHEDULER, READWRITE, AGENT = "mesos-master-scheduler", "mesos-master-readwrite", "mesos-agent-readonly"
"""Realms. Read-only pages of the master are open, as in a Mesos without --authenticate_http_readonly."""
OPEN_ON_AGENTS = ("/health", "/version")


class Authentication:
    def __init__(self, credentials: Mapping[str, str]) -> None:
        """Create the check; ``credentials`` are principal -> secret, empty to accept every caller."""
        self._credentials = credentials

    def refuse(self, request: Request, realm: str) -> Response | None:
        """Return a 401 for an unknown caller; else set the principal of the request."""
        if not self._credentials or not realm:
            return None
        principal = self.principal(request.headers)
        if principal is None:
            headers = (("WWW-Authenticate", f'Basic realm="{realm}"'), ("Content-Type", TEXT))
            return Response(401, b"401 Unauthorized.", headers)
        request.principal = principal
        return None

    def principal(self, headers: Mapping[str, str]) -> str | None:
        """Return the principal of the caller; None if it is unknown, "" if no credentials are required."""
        if not self._credentials:
            return ""
        principal, secret = _basic(headers.get("authorization", ""))
        known = self._credentials.get(principal)
        is_known = known is not None and hmac.compare_digest(known.encode(), secret.encode())
        return principal if is_known else None


def master_realm(path: str) -> str:
    path = path.removeprefix("/master")
    if path == "/api/v1/scheduler":
        return SCHEDULER
    return READWRITE if path == "/api/v1" else ""


def agent_realm(path: str) -> str:
    return "" if path in OPEN_ON_AGENTS else AGENT


def _basic(header: str) -> tuple[str, str]:
    """Return principal and secret; "" for any other header."""
    scheme, _, text = header.partition(" ")
    try:
        principal, _, secret = b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return (principal, secret) if scheme.lower() == "basic" else ("", "")


def load_credentials(path: Path) -> dict[str, str]:
    """Read principal -> secret. Raises ValueError naming the file."""
    try:
        rows = json.loads(read_bounded(path))["credentials"]
        return {str(row["principal"]): str(row["secret"]) for row in rows}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f'{path}: want {{"credentials": [{{"principal": ..., "secret": ...}}]}}: {error!r}') from None
