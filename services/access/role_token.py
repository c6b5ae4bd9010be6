"""The secret by which processes of Peloton identify to each other where they have no certificates."""

from __future__ import annotations

import hmac
import ssl
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from secrets import token_bytes
from typing import Any, NamedTuple, cast

import grpc
import grpc.aio

from peloton.api.channels import HeadersChannel, Options
from peloton.errors import InvalidSettings
from services.access.files import describe, read_bounded
from services.tls.transport import Transport

ROLE_TOKEN = "peloton-role-token"  # noqa: S105
"""Header with the secret. It is next to the headers of users: the web pages pass these on."""
CHARS_MIN, BYTES_MAX = 32, 4_096


def read_role_token(path: str) -> str:
    """Return the secret of a file. Raises InvalidSettings."""
    try:
        secret = read_bounded(path, BYTES_MAX).strip()
    except (OSError, ValueError) as error:
        raise InvalidSettings(f"role token file {Path(path)}: {describe(error)}") from error
    if len(secret) < CHARS_MIN or not (secret.isascii() and secret.isprintable()):
        raise InvalidSettings(
            f"role token file {path}: the secret has {len(secret)} characters; want at least {CHARS_MIN} of printable "
            f"ASCII"
        )
    return secret


class RoleToken:
    """The secret, compared in constant time."""

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self._key = token_bytes(32)
        self._hash = self._hash_of(secret)

    def is_in(self, metadata: Sequence[tuple[str, str | bytes]] | None) -> bool:
        """Return whether the headers of a call have the secret."""
        sent = next((value for key, value in metadata or () if key == ROLE_TOKEN), "")
        return isinstance(sent, str) and hmac.compare_digest(self._hash_of(sent), self._hash)

    def _hash_of(self, text: str) -> bytes:
        return blake2b(text.encode(errors="surrogatepass"), key=self._key, digest_size=32).digest()


class TokenTransport(Transport):
    """A transport whose channels carry the secret, and whose servers take it for a proof."""

    def __init__(self, inner: Transport, token: RoleToken) -> None:
        self._inner, self._token = inner, token
        self.has_tls, self.denies = inner.has_tls, inner.denies
        self._headers = ((ROLE_TOKEN, token.secret),)

    @property
    def proves_roles(self) -> bool:
        return True

    def is_role(self, context: Any) -> bool:
        return self._token.is_in(context.invocation_metadata()) or self._inner.is_role(context)

    def open(self, target: str, options: Options) -> grpc.Channel:
        return grpc.intercept_channel(self._inner.open(target, options), AddHeaders(self._headers))

    def open_async(self, target: str, options: Options, interceptors: Sequence[Any] = ()) -> grpc.aio.Channel:
        channel = self._inner.open_async(target, options, interceptors)
        return cast("grpc.aio.Channel", HeadersChannel(channel, lambda: self._headers))

    def bind(self, server: Any, address: str) -> int:
        return self._inner.bind(server, address)

    def bind_for_clients(self, server: Any, address: str) -> int:
        return self._inner.bind_for_clients(server, address)

    def http_context(self) -> ssl.SSLContext | None:
        return self._inner.http_context()

    def find_denied(self, context: Any) -> str:
        return self._inner.find_denied(context)

    def expires_at(self) -> float | None:
        return self._inner.expires_at()

    def warn_of_expiry(self) -> None:
        self._inner.warn_of_expiry()


class Details(NamedTuple):
    method: str
    timeout: float | None
    metadata: Any
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class AddHeaders(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Adds headers to the calls of a channel with threads."""

    def __init__(self, headers: Sequence[tuple[str, str]]) -> None:
        self._headers = headers

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self._add(client_call_details), request)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self._add(client_call_details), request)

    def _add(self, details: Any) -> Details:
        return Details(
            method=details.method,
            timeout=details.timeout,
            metadata=[*(details.metadata or ()), *self._headers],
            credentials=details.credentials,
            wait_for_ready=getattr(details, "wait_for_ready", None),
            compression=getattr(details, "compression", None),
        )
