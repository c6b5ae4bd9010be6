"""An OIDC issuer as its clients see it: addresses by its discovery document, PKCE, and requests for tokens.

The tokens are not verified here: the api does.
"""

from __future__ import annotations

import json
import secrets
import ssl
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, OpenerDirector, Request, build_opener

from peloton.errors import Unauthenticated, Unavailable
from peloton.files import read_authorities
from peloton.model.text import shorten

DOCUMENT_BYTES_MAX = 1 << 20
TIMEOUT_S = 5.0
SCOPES = ("openid", "email", "profile", "groups")
OFFLINE = "offline_access"
"""Scope that asks for a refresh token."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

Fetch = Callable[[str], bytes]
"""Address -> document, of at most DOCUMENT_BYTES_MAX. Raises OSError, ValueError."""


class Refused(Unauthenticated):
    """The issuer refuses a request; ``error`` is OAuth's word for the reason, such as ``access_denied``."""

    def __init__(self, message: str, error: str) -> None:
        super().__init__(message)
        self.error = error


@dataclass(frozen=True)
class Flow:
    """An authorization code flow that has begun."""

    state: str
    verifier: str
    nonce: str


@dataclass(frozen=True)
class Tokens:
    """The tokens of a user. Without a ``refresh_token`` the user signs in again when the ID token expires."""

    id_token: str
    refresh_token: str = ""


@dataclass(frozen=True)
class Issuer:
    """An issuer whose discovery document has been read. Methods block, and raise Unavailable and Refused."""

    name: str
    document: Mapping[str, object]
    ca_file: str = ""

    def find(self, kind: str) -> str:
        """Return the address of an endpoint; "": the issuer does not offer it."""
        address = str(self.document.get(kind) or "")
        if address:
            try:
                check_address(address)
            except ValueError as error:
                raise Unavailable(f"the {kind} of the issuer {self.name}: {error}") from None
        return address

    def endpoint(self, kind: str) -> str:
        if not (address := self.find(kind)):
            raise Unavailable(f"the issuer {self.name} has no {kind}")
        return address

    def scope(self, *wanted: str) -> str:
        """Return those of the scopes that the issuer lists; all of them where it has no list."""
        listed = self.document.get("scopes_supported")
        return " ".join(each for each in wanted if not isinstance(listed, list) or each in ("openid", *listed))

    def begin(self, client_id: str, callback: str, *scopes: str) -> tuple[Flow, str]:
        """Return a new flow, and the address at the issuer where the user proves its identity."""
        flow = Flow(secrets.token_urlsafe(32), secrets.token_urlsafe(48), secrets.token_urlsafe(32))
        challenge = urlsafe_b64encode(sha256(flow.verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": callback,
            "scope": self.scope(*SCOPES, *scopes),
            "state": flow.state,
            "nonce": flow.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        address = self.endpoint("authorization_endpoint")
        return flow, f"{address}{'&' if '?' in address else '?'}{urlencode(query)}"

    def finish(self, flow: Flow, client_id: str, code: str, callback: str, secret: str = "") -> Tokens:
        """Exchange the code of a flow for tokens."""
        fields = {"code": code, "redirect_uri": callback, "code_verifier": flow.verifier}
        tokens = self.grant("authorization_code", client_id, fields, secret)
        if claims_of(tokens.id_token).get("nonce") != flow.nonce:
            raise Unauthenticated(f"{self.name} answers with a token of another sign-in")
        return tokens

    def grant(self, kind: str, client_id: str, fields: Mapping[str, str], secret: str = "") -> Tokens:
        """Ask for tokens by a grant of this kind."""
        answer = self.post("token_endpoint", {"grant_type": kind, "client_id": client_id, **fields}, secret)
        token, refresh_token = answer.get("id_token"), answer.get("refresh_token")
        if not isinstance(token, str) or not token:
            raise Unauthenticated(f"{self.name} answers without an ID token")
        return Tokens(token, refresh_token if isinstance(refresh_token, str) else "")

    def post(self, kind: str, fields: Mapping[str, str], secret: str = "") -> dict[str, object]:
        """Send a form to an endpoint, and return the object that it answers with."""
        headers = {"accept": "application/json"}
        if secret:
            pair = f"{quote(fields['client_id'], safe='')}:{quote(secret, safe='')}"
            headers["authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        request = Request(self.endpoint(kind), urlencode(fields).encode(), headers)  # noqa: S310 - endpoint checks it
        try:
            with _opener(self.ca_file).open(request, timeout=TIMEOUT_S) as response:
                content = response.read(DOCUMENT_BYTES_MAX + 1)
            return parse_document(content) if content else {}
        except HTTPError as error:
            with error:
                raise self._refusal(error.code, error.read(DOCUMENT_BYTES_MAX)) from None
        except (OSError, ValueError) as error:
            raise _unavailable(self.name, error) from None

    def _refusal(self, status: int, content: bytes) -> Refused | Unavailable:
        try:
            document = parse_document(content)
        except ValueError:
            document = {}
        if status >= 500 and "error" not in document:
            return Unavailable(f"the issuer {self.name} does not answer: HTTP status {status}")
        reason = shorten(str(document.get("error") or f"HTTP status {status}"), 100)
        more = shorten(str(document.get("error_description") or ""), 300)
        return Refused(f"the issuer {self.name} refuses: {reason}{f' ({more})' if more else ''}", reason)


def discover(name: str, ca_file: str = "") -> Issuer:
    """Return an issuer by its address. Raises Unavailable."""
    try:
        return Issuer(name, read_discovery(name, make_fetch(ca_file)), ca_file)
    except (OSError, ValueError) as error:
        raise _unavailable(name, error) from None


def read_discovery(name: str, fetch: Fetch) -> Mapping[str, object]:
    """Return the discovery document of an issuer. Raises OSError, ValueError."""
    found = parse_document(fetch(f"{name.rstrip('/')}/.well-known/openid-configuration"))
    if found.get("issuer") != name:
        raise ValueError(f"the issuer at {name} calls itself {str(found.get('issuer'))[:200]}")
    return found


class NoRedirects(HTTPRedirectHandler):
    """Handler that follows no redirect, whose target might be any address and would get the secrets of a request."""

    def redirect_request(self, *args: object, **named: object) -> Request | None:
        return None


def _opener(ca_file: str) -> OpenerDirector:
    context = ssl.create_default_context(cadata=read_authorities(ca_file)) if ca_file else _trust_system()
    return build_opener(NoRedirects, HTTPSHandler(context=context))


@cache
def _trust_system() -> ssl.SSLContext:
    """Return a context with the authorities of the system, which takes 20 ms to read."""
    return ssl.create_default_context()


def make_fetch(ca_file: str = "") -> Fetch:
    """Return a function that fetches documents. ``ca_file``: authorities of the issuer; empty: those of the system."""
    opener = _opener(ca_file)

    def fetch(address: str) -> bytes:
        check_address(address)
        try:
            with opener.open(address, timeout=TIMEOUT_S) as response:
                found: bytes = response.read(DOCUMENT_BYTES_MAX + 1)
        except HTTPError as error:
            error.close()
            raise OSError(f"{address} answers {error.code}") from None
        if len(found) > DOCUMENT_BYTES_MAX:
            raise ValueError(f"{address} answers more than {DOCUMENT_BYTES_MAX:,} bytes")
        return found

    return fetch


def check_address(address: str) -> None:
    """Raise ValueError for an address that is neither https nor on this machine."""
    parts = urlsplit(address)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise ValueError(f"{address[:200]}: want https://, or http:// on a loopback address")


def parse_document(document: bytes) -> dict[str, object]:
    """Return the JSON object of an issuer. Raises ValueError."""
    try:
        parsed = json.loads(document)
    except RecursionError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ValueError("a document of the issuer is no JSON object")
    return parsed


def claims_of(token: str) -> dict[str, Any]:
    """Return the claims of a JWT, which are not verified here; {} for another token."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        found = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _unavailable(name: str, error: Exception) -> Unavailable:
    return Unavailable(f"the issuer {name} does not answer: {error}")
