"""Identification of callers: the credentials of a call, proven by the authenticators that the settings name."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Protocol
from urllib.parse import unquote

from peloton.access.caller import ANONYMOUS, Caller, CallerKind, Grant, Role
from peloton.access.tokens import PREFIX
from peloton.errors import PermissionDenied, Unauthenticated
from services.access.basic import BasicUsers
from services.access.bindings import Bindings, BindingsFile, grant
from services.access.caller import CLIENT_ADDRESS, ITS_GROUPS, ON_BEHALF_OF, UNNAMED_ROLE
from services.access.failures import Failures, network_of, network_of_address
from services.access.role_token import ROLE_TOKEN
from services.access.tokens import Tokens

CREDENTIAL_CHARS_MAX = 16 * 1024
"""Characters of one header with credentials."""
GROUPS_MAX = 1_000
KNOWN_MAX = 10_000
"""Verified credentials that are remembered."""
KNOWN_S = 60.0
"""Longest time for which verified credentials are remembered, while no file changes."""
AUTHORIZATION, USERNAME, PASSWORD = "authorization", "username", "password"
_PRESENTED = frozenset({AUTHORIZATION, USERNAME, PASSWORD, ON_BEHALF_OF, ITS_GROUPS})
CREDENTIALS = _PRESENTED | {ROLE_TOKEN, CLIENT_ADDRESS}
"""Headers that never pass to another process."""
BEARER = "bearer "
ADDRESS_CHARS_MAX = 64
_SERVES_USERS = frozenset({"web", "aurorabridge", UNNAMED_ROLE})


class Oidc(Protocol):
    """Authenticator of JWTs."""

    async def authenticate(self, token: str) -> tuple[Caller, float]: ...


@dataclass(frozen=True)
class SignInPlace:
    """The OIDC issuer at which users sign in, and the client there whose tokens are for this cluster."""

    issuer: str = ""
    client_id: str = ""


@dataclass(frozen=True)
class Authenticators:
    """Authenticators that are configured, and the grants of callers without credentials."""

    tokens: Tokens | None = None
    basic: BasicUsers | None = None
    oidc: Oidc | None = None
    bindings: BindingsFile | None = None
    anonymous: Caller = ANONYMOUS
    certified: Callable[[Any], Caller | None] = lambda context: None
    """Finds the caller that the connection of a call proves."""
    sign_in: SignInPlace = SignInPlace()


@dataclass(frozen=True, slots=True)
class _Known:
    caller: Caller
    until_s: float  # monotonic
    expires_s: float  # Unix; 0: never
    versions: tuple[int, ...]


class Access:
    """Finds the caller of each call."""

    def __init__(self, by: Authenticators, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._by, self._clock_s = by, clock_s
        self._failures = Failures(clock_s)
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._key = secrets.token_bytes(32)

    @property
    def sign_in(self) -> SignInPlace:
        return self._by.sign_in

    async def identify(self, context: Any) -> Caller:
        """Return the caller of a call, with its grants.

        Raises Unauthenticated for invalid credentials, ResourceExhausted after too many of them, and PermissionDenied
        for a caller that may not call on behalf of others.
        """
        presented = read_credentials(context.invocation_metadata())
        certified = self._by.certified(context)
        if not presented and certified is None:
            default = self._by.basic.default() if self._by.basic is not None else None
            return default or self._by.anonymous
        connection = f"{certified.kind} {certified.name}" if certified is not None else ""
        key = self._hash("\0".join((*presented, "", connection)))
        if (known := self._recall(key)) is not None:
            return known
        peer = _find_peer(context, certified, presented)
        self._failures.check(peer)
        versions = self._versions()
        try:
            caller, expires_s = await self._prove(dict(pair.split("\0", 1) for pair in presented), certified)
        except Unauthenticated:
            if peer:
                self._failures.note(peer)
            raise
        until_s = self._clock_s() + KNOWN_S
        caller = replace(caller, expires_s=expires_s)
        self._known[key] = _Known(caller, until_s, expires_s, versions)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return caller

    def find_client(self, context: Any) -> str:
        """Return the address of the user for whom a role that serves users calls; empty: the peer calls by itself.

        Others may send the header, too, and are not believed. Roles that prove themselves by a secret have no names.
        """
        certified = self._by.certified(context)
        is_role = certified is not None and certified.kind is CallerKind.ROLE
        if certified is None or not is_role or certified.name not in _SERVES_USERS:
            return ""
        return _read_client(context)[:ADDRESS_CHARS_MAX]

    def _recall(self, key: bytes) -> Caller | None:
        known = self._known.get(key)
        if known is None:
            return None
        is_old = known.until_s <= self._clock_s() or 0 < known.expires_s <= time.time()
        if is_old or known.versions != self._versions():
            del self._known[key]
            return None
        return known.caller

    def _versions(self) -> tuple[int, ...]:
        """Return the versions of all files, after reading those that have changed."""
        by = self._by
        return tuple(file.read_version() for file in (by.tokens, by.basic, by.bindings) if file is not None)

    async def _prove(self, presented: dict[str, str], certified: Caller | None) -> tuple[Caller, float]:
        caller, expires_s = await self._prove_direct(presented, certified)
        bindings: Bindings = self._by.bindings.get() if self._by.bindings is not None else {}
        caller = grant(caller, bindings)
        if ON_BEHALF_OF in presented:
            caller = grant(_stand_in(caller, presented), bindings)
        return caller, expires_s

    async def _prove_direct(self, presented: dict[str, str], certified: Caller | None) -> tuple[Caller, float]:
        """Return the caller that its own credentials prove; those of a header precede the certificate."""
        by = self._by
        if authorization := presented.get(AUTHORIZATION):
            if not authorization.lower().startswith(BEARER):
                raise Unauthenticated("header authorization: want Bearer and a token")
            token = authorization[len(BEARER) :].strip()
            if token.startswith(PREFIX) and by.tokens is not None:
                return by.tokens.authenticate(token)
            if by.oidc is not None and token.count(".") == 2:
                return await by.oidc.authenticate(token)
            raise Unauthenticated("the token is of no kind that this cluster accepts")
        if USERNAME in presented or PASSWORD in presented:
            if by.basic is None:
                raise Unauthenticated("this cluster accepts no user names and passwords")
            return by.basic.authenticate(presented.get(USERNAME, ""), presented.get(PASSWORD, "")), 0.0
        if certified is None:
            raise Unauthenticated("a call on behalf of a user needs credentials of its own")
        return certified, 0.0

    def _hash(self, text: str) -> bytes:
        return blake2b(text.encode(errors="surrogatepass"), key=self._key, digest_size=32).digest()


def read_credentials(metadata: Iterable[tuple[str, str | bytes]] | None) -> tuple[str, ...]:
    """Return the headers with credentials, each as key, NUL and value. Raises Unauthenticated."""
    found: list[str] = []
    for key, value in metadata or ():
        if key not in _PRESENTED:
            continue
        if isinstance(value, bytes) or len(value) > CREDENTIAL_CHARS_MAX:
            raise Unauthenticated(f"header {key} has more than {CREDENTIAL_CHARS_MAX:,} characters, or is not text")
        if any(other.startswith(f"{key}\0") for other in found):
            raise Unauthenticated(f"header {key} is there twice")
        found.append(f"{key}\0{value}")
    return tuple(found)


def _find_peer(context: Any, certified: Caller | None, presented: tuple[str, ...]) -> str:
    """Return whose failures are counted; empty: those of no one. The web pages bring credentials of many users, and
    name the address of each: only passwords may be found by trying.
    """
    if certified is None or certified.kind is not CallerKind.ROLE:
        return network_of(context.peer())
    if not any(pair.startswith(f"{USERNAME}\0") for pair in presented):
        return ""
    return network_of_address(_read_client(context))


def _read_client(context: Any) -> str:
    """Return the address of a user that the caller names."""
    return next((str(value) for key, value in context.invocation_metadata() or () if key == CLIENT_ADDRESS), "")


def _stand_in(proxy: Caller, presented: dict[str, str]) -> Caller:
    """Return the user on whose behalf a proxy calls."""
    if proxy.kind is not CallerKind.ROLE and not proxy.has(Role.PROXY):
        raise PermissionDenied(f"{proxy} may not call on behalf of others: it needs role {Role.PROXY}")
    name = unquote(presented[ON_BEHALF_OF])
    groups = tuple(unquote(each) for each in presented.get(ITS_GROUPS, "").split(",") if each)
    if not name or len(groups) > GROUPS_MAX:
        raise Unauthenticated(f"a call on behalf of a user names it, and at most {GROUPS_MAX:,} of its groups")
    return Caller(name, CallerKind.USER, groups, issuer=proxy.name, via=proxy.name)


def anonymous_with(role: str) -> Caller:
    """Return the caller without credentials that a setting describes: the name of a role, or none."""
    return ANONYMOUS if role in ("", "none") else replace(ANONYMOUS, grants=(Grant(Role(role)),))
