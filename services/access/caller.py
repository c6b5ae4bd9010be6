"""The caller of the request that this task answers."""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from urllib.parse import quote, unquote

from peloton.access.caller import UNRESTRICTED, Caller, CallerKind
from peloton.model.by_hand import shorten_name

CALLER: ContextVar[Caller] = ContextVar("CALLER", default=UNRESTRICTED)
"""Set by the interceptor of the api. Without credentials in the settings it stays the default."""

CLIENT_OF_ROLE: ContextVar[str] = ContextVar("CLIENT_OF_ROLE", default="")
"""Address of the user for whom a role that serves users has sent this request; empty: the peer itself has sent it."""

CERTIFICATE = "certificate"
"""Issuer of a caller whose name is the SPIFFE id of its certificate, or the common name of one without an id."""

UNNAMED_ROLE = "peloton"
"""Name of a role that the secret of roles proves."""

ON_BEHALF_OF, ITS_GROUPS = "peloton-on-behalf-of", "peloton-on-behalf-of-groups"
"""Headers by which a proxy names the user for whom it calls, percent-encoded; groups have commas between."""


CLIENT_ADDRESS = "peloton-client-address"
"""Header by which a role that serves users names the address from which a user calls."""


def name_creator() -> str:
    """Return the name of the user to whom a job of this request belongs; empty for anonymous callers and for processes
    of Peloton, which call for no user."""
    caller = CALLER.get()
    return "" if caller.kind in (CallerKind.ANONYMOUS, CallerKind.ROLE) else shorten_name(caller.name)


def list_caller_headers() -> tuple[tuple[str, str], ...]:
    """Return the headers by which a forwarded call names the caller of this request."""
    caller = CALLER.get()
    return () if caller.is_anonymous else ((ON_BEHALF_OF, quote(caller.name, safe="")),)


def read_person(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """Return the name of the user for whom another process forwards a call; empty: the call names none."""
    return next((unquote(str(value)) for key, value in metadata or () if key == ON_BEHALF_OF), "")
