"""Keys of an OIDC issuer, found by its discovery document."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

import jwt

from peloton.files import read_authorities

DOCUMENT_BYTES_MAX = 1 << 20
TIMEOUT_S = 5.0
KEYS_MAX = 100
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

Fetch = Callable[[str], bytes]
"""Address -> document, of at most DOCUMENT_BYTES_MAX. Raises OSError, ValueError."""


class NoRedirects(HTTPRedirectHandler):
    """Handler that follows no redirect, which might lead to any address."""

    def redirect_request(self, *args: object, **named: object) -> Request | None:
        return None


def _context(ca_file: str) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=read_authorities(ca_file) if ca_file else None)


def make_fetch(ca_file: str = "") -> Fetch:
    """Return what fetches documents. ``ca_file``: authorities of the issuer; empty: those of the system."""
    opener = build_opener(NoRedirects, HTTPSHandler(context=_context(ca_file)))

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


def read_keys(issuer: str, fetch: Fetch) -> Mapping[str, jwt.PyJWK]:
    """Return the public signing keys of an issuer by their ids. Raises OSError, ValueError."""
    discovery = parse_document(fetch(f"{issuer.rstrip('/')}/.well-known/openid-configuration"))
    if discovery.get("issuer") != issuer:
        raise ValueError(f"the issuer at {issuer} calls itself {str(discovery.get('issuer'))[:200]}")
    rows = parse_document(fetch(str(discovery.get("jwks_uri", "")))).get("keys")
    if not isinstance(rows, list) or not 0 < len(rows) <= KEYS_MAX:
        raise ValueError(f"{issuer} has no list of 1 to {KEYS_MAX} keys")
    found = {}
    for row in rows:
        if not isinstance(row, dict) or row.get("use", "sig") != "sig" or row.get("kty") == "oct":
            continue
        try:
            key = jwt.PyJWK(row)
        except (jwt.PyJWTError, ValueError):  # of an algorithm that is not known here
            continue
        found[key.key_id or ""] = key
    if not found:
        raise ValueError(f"{issuer} has no key that can be used")
    return found


def parse_document(document: bytes) -> dict[str, object]:
    """Return the JSON object of an issuer. Raises ValueError."""
    try:
        parsed = json.loads(document)
    except RecursionError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ValueError("a document of the issuer is no JSON object")
    return parsed
