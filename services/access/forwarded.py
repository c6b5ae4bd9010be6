"""Credentials of users, which roles that serve them pass on to the api in place of their own."""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import grpc
import grpc.aio

from peloton.api.channels import HeadersChannel
from peloton.api.v0.access import access_pb2 as pb
from peloton.errors import Unauthenticated
from services.access.caller import CLIENT_ADDRESS

Headers = tuple[tuple[str, str], ...]
FORWARDED: ContextVar[Headers] = ContextVar("FORWARDED", default=())
"""Credentials of the user for whom this task calls the api; (): it calls by itself."""
CLIENT: ContextVar[str] = ContextVar("CLIENT", default="")
"""Address of the user for whom this task calls the api; empty: it is not known."""
OPEN_S = 5.0
"""Time in seconds for which the answer whether the cluster asks for credentials is remembered."""
TIMEOUT_S = 5.0
_CREDENTIALS = ("authorization", "username", "password")


def credentials_in(given: Mapping[str, str]) -> Headers:
    """Return the credentials in headers of HTTP, as the api takes them. Raises Unauthenticated."""
    found = {name: value for name in _CREDENTIALS if (value := given.get(name))}
    kind, _, rest = found.get("authorization", "").partition(" ")
    if kind.lower() == "basic":
        try:
            name, _, password = b64decode(rest, validate=True).decode().partition(":")
        except ValueError:  # no base64, not ASCII, or no UTF-8 in it
            raise Unauthenticated("header authorization: want Basic and a name and password") from None
        found = {"username": name, "password": password}
    if any(not value.isascii() or not value.isprintable() for value in found.values()):
        raise Unauthenticated("credentials in headers are printable ASCII")
    return tuple(found.items())


class OpenCluster:
    """Knows whether the cluster asks for credentials. Where it does not, a role may call by itself for everyone."""

    def __init__(self) -> None:
        self._asked_s, self._is_open = -OPEN_S, False

    async def check(self, access: Any) -> None:
        """Raise Unauthenticated unless the cluster asks for no credentials, AioRpcError while that is not known."""
        now_s = time.monotonic()
        if now_s - self._asked_s >= OPEN_S:
            try:
                answer = await access.WhoAmI(pb.WhoAmIRequest(), timeout=TIMEOUT_S)
                self._is_open = not answer.is_enforced
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                    raise
                self._is_open = True  # an older api asks for none
            self._asked_s = now_s
        if not self._is_open:
            raise Unauthenticated("this cluster asks for credentials: sign in, or send a token or a name and password")


class UserChannel(HeadersChannel):
    """Channel whose calls carry the credentials of the user for whom they are made."""

    def __init__(self, channel: Any) -> None:
        super().__init__(channel, _list_headers)


def _list_headers() -> Headers:
    headers, client = FORWARDED.get(), CLIENT.get()
    return (*headers, (CLIENT_ADDRESS, client)) if headers and client else headers


def note_client(scope: Mapping[str, Any]) -> None:
    """Set CLIENT to the address of the client of an HTTP request."""
    CLIENT.set(str((scope.get("client") or ("",))[0])[:64])
